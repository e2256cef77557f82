//! Services with selector: why the Pods they match are not endpoints.
//!
//! In: what the slices lack, and the Pods. Each Pod has at most one obstacle that keeps it from being the needed endpoint;
//! the obstacles of all Pods together determine the reason. Obstacles that resolve with time have precedence over permanent
//! ones: with such a Pod, waiting helps.

use std::net::IpAddr;

use api::ip::Family;
use api::view::pod::ContainerPort;
use api::view::service::{ServicePort, TargetPort};

use crate::cluster::{Cluster, Pod};
use crate::coverage::Need;
use crate::finding::{Finding, code};
use crate::model::{Service, port_name, protocol_name};
use crate::pod_state::{port_text, target_of};
use crate::similar::value_distance;
use crate::words::{count, list};

/// How many Pods, ports or groups of ports are named.
const NAMED: usize = 3;

/// What keeps a Pod from being a needed endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle<'a> {
    /// It has terminated.
    Finished,
    /// It is being deleted.
    Deleting,
    /// It has no port of the wanted name.
    NoPort,
    /// It has no address yet.
    NoAddress,
    /// It has addresses, but only of the other family.
    WrongFamily,
    /// Its address belongs to a Service.
    IsClusterIp(IpAddr, &'a str),
    /// Its Node does not exist.
    NoNode,
    /// Its condition Ready is not True.
    NotReady,
}

/// Pods and their obstacles.
type Hindered<'a, P> = Vec<(&'a P, Obstacle<'a>)>;

/// Explains why needs are not met; none when the Pods are ready and only the slices are not up to date yet.
pub(crate) fn explain<C: Cluster>(cluster: &C, service: &Service, pods: &[&C::Pod], unmet: &[Need]) -> Option<Finding> {
    let mut findings: Vec<(Finding, Vec<usize>)> = Vec::new();
    for need in unmet {
        let obstacles = pods.iter().map(|pod| Some((*pod, obstacle(cluster, service, *pod, *need)?)));
        // A Pod without obstacle serves as soon as it is in the slices.
        let Some(hindered) = obstacles.collect::<Option<Hindered<'_, C::Pod>>>() else { continue };
        let finding = judge(service, &hindered, *need);
        match findings.iter_mut().find(|(same, _)| same.message == finding.message) {
            Some((_, ports)) => ports.extend(need.port),
            None => findings.push((finding, need.port.into_iter().collect())),
        }
    }
    let first = findings.first()?.0.clone();
    let concerns_all = |ports: &[usize]| (0..service.ports().len()).all(|port| ports.contains(&port));
    let say = |(finding, mut ports): (Finding, Vec<usize>)| {
        ports.dedup();
        if concerns_all(&ports) && finding.code != code::NO_SUCH_TARGET_PORT {
            return finding.message;
        }
        let names: Vec<String> = ports.iter().filter_map(|port| service.ports().get(*port)).map(port_name).collect();
        format!("{} {}: {}", if names.len() == 1 { "port" } else { "ports" }, list(&names, NAMED), finding.message)
    };
    let said: Vec<String> = findings.into_iter().take(NAMED).map(say).collect();
    Some(Finding { message: said.join("; "), ..first })
}

/// The Pods that a Service selects and that are not its endpoints: the name of each, and why.
#[must_use]
pub fn excluded<C: Cluster>(cluster: &C, service: &Service) -> Vec<(String, String)> {
    let Some(selector) = service.selector() else { return Vec::new() };
    let any = Need { family: None, port: None };
    let reason = |pod: &&C::Pod| Some((pod.name().to_owned(), why(*pod, obstacle(cluster, service, *pod, any)?)));
    cluster.matching(service.namespace(), selector).iter().filter_map(reason).collect()
}

fn obstacle<'a, C: Cluster>(cluster: &'a C, service: &Service, pod: &C::Pod, need: Need) -> Option<Obstacle<'a>> {
    let insists = service.spec.publish_not_ready_addresses;
    let families = need.family.map_or_else(|| service.families(), |family| vec![family]);
    let standing = pod.standing();
    if standing.finished {
        return Some(Obstacle::Finished);
    }
    if standing.deleting && !insists {
        return Some(Obstacle::Deleting);
    }
    if need.port.and_then(|port| service.ports().get(port)).is_some_and(|port| !has_target(pod, port)) {
        return Some(Obstacle::NoPort);
    }
    if standing.addresses.is_empty() {
        return Some(Obstacle::NoAddress);
    }
    let mut looping = None;
    let mut reachable = false;
    for address in standing.addresses.iter().copied().filter(|ip| families.contains(&Family::of(*ip))) {
        match cluster.service_at(address) {
            Some(other) => looping = looping.or(Some(Obstacle::IsClusterIp(address, other))),
            None => reachable = true,
        }
    }
    if !reachable {
        return Some(looping.unwrap_or(Obstacle::WrongFamily));
    }
    if insists {
        return None;
    }
    if !cluster.has_node(standing.node) {
        return Some(Obstacle::NoNode);
    }
    (!standing.ready).then_some(Obstacle::NotReady)
}

/// Whether the target of a port exists in a Pod.
fn has_target(pod: &impl Pod, port: &ServicePort) -> bool {
    match port.target() {
        TargetPort::Number(_) => true,
        TargetPort::Name(name) => pod.has_port(&name, port.protocol),
    }
}

/// The reason why a need is not met, when every Pod has an obstacle.
fn judge<P: Pod>(service: &Service, hindered: &Hindered<'_, P>, need: Need) -> Finding {
    let those = |wanted: fn(&Obstacle<'_>) -> bool| -> Hindered<'_, P> {
        hindered.iter().filter(|(_, obstacle)| wanted(obstacle)).copied().collect()
    };
    let waiting = those(|obstacle| matches!(obstacle, Obstacle::NoAddress | Obstacle::NotReady));
    if !waiting.is_empty() {
        return not_ready(service, &waiting, hindered.len());
    }
    let classes = [
        those(|obstacle| matches!(obstacle, Obstacle::NoPort)),
        those(|obstacle| matches!(obstacle, Obstacle::WrongFamily)),
        those(|obstacle| matches!(obstacle, Obstacle::IsClusterIp(..))),
        those(|obstacle| matches!(obstacle, Obstacle::NoNode)),
    ];
    // The first of the largest; `max_by_key` would take the last.
    let largest = classes.into_iter().rev().max_by_key(Vec::len).unwrap_or_default();
    let Some((pod, obstacle)) = largest.first() else { return not_ready(service, hindered, hindered.len()) };
    let (name, others) = (pod.name(), others(largest.len().saturating_sub(1)));
    match obstacle {
        Obstacle::NoPort => no_port(service, need.port.unwrap_or_default(), *pod, &others),
        Obstacle::IsClusterIp(address, other) => {
            let message = format!(
                "the address {address} of pod {name}{others} is the cluster IP of Service {other}; connections would \
                 go round in circles, so it is left out"
            );
            Finding::new(code::ENDPOINT_IS_CLUSTER_IP, message, service.describe_pod(name))
        }
        Obstacle::NoNode => no_node(service, *pod, &others),
        _ => {
            let families = need.family.map_or_else(|| service.families(), |family| vec![family]);
            let families: Vec<&str> = families.into_iter().map(Family::as_str).collect();
            let families = families.join(" or ");
            let message = format!("pod {name}{others} has no {families} address, as this Service needs");
            Finding::new(code::WRONG_FAMILY, message, service.edit())
        }
    }
}

fn no_node(service: &Service, pod: &impl Pod, others: &str) -> Finding {
    let (name, node) = (pod.name(), pod.standing().node);
    let message = match node {
        "" => format!("pod {name}{others} has an address but is bound to no node, so it is unreachable"),
        _ => format!(
            "pod {name}{others} is bound to node {node}, which does not exist. Register the Node or delete the pod."
        ),
    };
    Finding::new(code::NODE_MISSING, message, format!("kubectl delete pod {name} -n {}", service.namespace()))
}

/// ` (like 2 other pods)`.
fn others(number: usize) -> String {
    if number == 0 { String::new() } else { format!(" (like {})", count(number, "other pod")) }
}

fn not_ready<P: Pod>(service: &Service, waiting: &Hindered<'_, P>, all: usize) -> Finding {
    let message = match &waiting[..] {
        [(pod, Obstacle::NotReady)] if all == 1 => match pod.detail().excuse() {
            Some(why) => format!("pod {} is not ready: {why}", pod.name()),
            None => format!("pod {} is not ready", pod.name()),
        },
        [(pod, obstacle)] if all == 1 => format!("pod {} {}", pod.name(), why(*pod, *obstacle)),
        many => {
            // Only those that are named are read.
            let shown = many.iter().enumerate().map(|(place, (pod, obstacle))| {
                if place < NAMED { format!("{} {}", pod.name(), why(*pod, *obstacle)) } else { String::new() }
            });
            let shown: Vec<String> = shown.collect();
            format!("0 of {} are ready: {}", count(all, "matching pod"), list(&shown, NAMED))
        }
    };
    let details: Vec<_> = waiting.iter().take(NAMED).map(|(pod, _)| (pod.name(), pod.detail())).collect();
    let crashing = details.iter().find_map(|(pod, detail)| Some((pod, detail.crashing()?)));
    let fix = match (crashing, waiting.first()) {
        (Some((pod, container)), _) => {
            format!("kubectl logs {pod} -n {} -c {container} --previous", service.namespace())
        }
        (None, Some((pod, _))) => service.describe_pod(pod.name()),
        (None, None) => service.describe(),
    };
    let evidence = details.iter().flat_map(|(pod, detail)| detail.evidence(pod)).collect();
    Finding { evidence, ..Finding::new(code::PODS_NOT_READY, message, fix) }
}

fn why(pod: &impl Pod, obstacle: Obstacle<'_>) -> String {
    let said = |what: &str| pod.detail().excuse().map_or_else(|| what.to_owned(), |why| format!("{what} ({why})"));
    match obstacle {
        Obstacle::Finished => "has finished".to_owned(),
        Obstacle::Deleting => "is being deleted".to_owned(),
        Obstacle::NoAddress => said("has no address yet"),
        Obstacle::WrongFamily => "has no address of the family of the Service".to_owned(),
        Obstacle::IsClusterIp(address, other) => {
            format!("has the address {address}, the cluster IP of Service {other}")
        }
        Obstacle::NoNode => "is bound to no existing node".to_owned(),
        Obstacle::NoPort | Obstacle::NotReady => said("is not ready"),
    }
}

fn no_port(service: &Service, index: usize, pod: &impl Pod, others: &str) -> Finding {
    let Some(port) = service.ports().get(index) else {
        return Finding::new(code::NO_SUCH_TARGET_PORT, "a port has no target", service.edit());
    };
    let name = match port.target() {
        TargetPort::Name(name) => name,
        TargetPort::Number(number) => number.to_string().into(),
    };
    let (detail, pod) = (pod.detail(), pod.name());
    let declared = detail.ports();
    let message = if let Some(same) = declared.iter().find(|one| one.name == name) {
        let (other, protocol) = (protocol_name(same.protocol), protocol_name(port.protocol));
        format!("targetPort {name} is a {other} port of pod {pod}{others}, and the Service asks for {protocol}")
    } else {
        let named: Vec<&str> = declared.iter().map(|one| &*one.name).filter(|name| !name.is_empty()).collect();
        let ports = match named[..] {
            [] => "none of its ports has a name".to_owned(),
            [one] => format!("its only named port is {one}"),
            _ => format!("its ports are {}", list(&named, NAMED + 2)),
        };
        format!("targetPort {name} is not a port of pod {pod}{others}; {ports}")
    };
    let fix = meant(port, &declared).map_or_else(|| service.edit(), |one| service.retarget(index, &target_of(one)));
    let evidence = declared.iter().map(|one| format!("pod {pod} declares port {}", port_text(one))).collect();
    Finding { evidence, ..Finding::new(code::NO_SUCH_TARGET_PORT, message, fix) }
}

/// The declared port that a Service port probably means: one whose name is similar, its own name or number, or the only one.
fn meant<'a>(port: &ServicePort, declared: &[&'a ContainerPort]) -> Option<&'a ContainerPort> {
    let same: Vec<&ContainerPort> = declared.iter().copied().filter(|one| one.protocol == port.protocol).collect();
    let similar = match port.target() {
        TargetPort::Name(name) => {
            let ranked = same.iter().filter_map(|one| Some((value_distance(&name, &one.name)?, *one)));
            ranked.min_by_key(|(distance, _)| *distance).map(|(_, one)| one)
        }
        TargetPort::Number(_) => None,
    };
    let find = |fits: &dyn Fn(&ContainerPort) -> bool| same.iter().copied().find(|one| fits(one));
    similar
        .or_else(|| find(&|one| !port.name.is_empty() && one.name == port.name))
        .or_else(|| find(&|one| one.container_port == port.port))
        .or_else(|| if let [one] = same[..] { Some(one) } else { None })
}
