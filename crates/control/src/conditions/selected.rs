//! Services with selector: why the Pods they match do not serve them.
//!
//! In: what the slices lack, and the Pods. Each Pod has at most one obstacle on its way to being the endpoint that is needed;
//! the obstacles of all Pods together make the reason. Pods that are on their way count before Pods that will never arrive:
//! when one of the former is there, time will help.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::Protocol;
use api::view::service::TargetPort;

use super::coverage::Need;
use super::list::Finding;
use super::pod_state::excuse;
use super::stored::Stored;
use super::words::{count, list};
use crate::controller::View;
use crate::objects::pod::Pod;
use crate::objects::service::{Port, Service};
use crate::selection::resolve;

/// How many Pods, ports or groups of ports are named.
const NAMED: usize = 3;

/// What keeps a Pod from being an endpoint that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Obstacle<'a> {
    /// It has ended for good.
    Finished,
    /// It is being deleted.
    Deleting,
    /// It has no port of the name that is asked for.
    NoPort,
    /// It has no address yet.
    NoAddress,
    /// It has addresses, but only of the other family.
    WrongFamily,
    /// Its address belongs to a Service.
    IsClusterIp(IpAddr, &'a str),
    /// Its node is not there.
    NoNode,
    /// It says that it is not ready.
    NotReady,
}

/// Pods and their obstacles.
type Hindered<'a> = Vec<(&'a Arc<Pod>, Obstacle<'a>)>;

/// Says why needs are not met; nothing when the Pods are as they should be and only the slices are not yet.
pub(super) fn explain(
    view: &View<'_>,
    service: &Service,
    stored: &Stored,
    pods: &[&Arc<Pod>],
    unmet: &[Need],
) -> Option<Finding> {
    let mut findings: Vec<(Finding, Vec<usize>)> = Vec::new();
    for need in unmet {
        let obstacles = pods.iter().map(|pod| Some((*pod, obstacle(view, service, pod, *need)?)));
        // A Pod without obstacle serves as soon as the slices show it.
        let Some(hindered) = obstacles.collect::<Option<Hindered<'_>>>() else { continue };
        let finding = judge(service, &hindered, *need);
        match findings.iter_mut().find(|(same, _)| *same == finding) {
            Some((_, ports)) => ports.extend(need.port),
            None => findings.push((finding, need.port.into_iter().collect())),
        }
    }
    let reason = findings.first()?.0.reason;
    let concerns_all = |ports: &[usize]| (0..service.ports.len()).all(|port| ports.contains(&port));
    let say = |(finding, mut ports): (Finding, Vec<usize>)| {
        ports.dedup();
        if concerns_all(&ports) && finding.reason != "NoSuchTargetPort" {
            return finding.message;
        }
        let names: Vec<String> = ports.iter().map(|port| stored.spec.ports[*port].called()).collect();
        format!("{} {}: {}", if names.len() == 1 { "port" } else { "ports" }, list(&names, NAMED), finding.message)
    };
    let said: Vec<String> = findings.into_iter().take(NAMED).map(say).collect();
    Some(Finding::bad(reason, said.join("; ")))
}

fn obstacle<'a>(view: &View<'a>, service: &Service, pod: &Pod, need: Need) -> Option<Obstacle<'a>> {
    let insists = service.publish_not_ready;
    let has_family = |address: &IpAddr| match need.family {
        Some(family) => Family::of(*address) == family,
        None => service.families.contains(&Family::of(*address)),
    };
    if pod.finished {
        return Some(Obstacle::Finished);
    }
    if pod.deleting && !insists {
        return Some(Obstacle::Deleting);
    }
    if need.port.is_some_and(|port| resolve(&service.ports[port], pod).is_none()) {
        return Some(Obstacle::NoPort);
    }
    if pod.addresses.is_empty() {
        return Some(Obstacle::NoAddress);
    }
    let mut looping = None;
    let mut reachable = false;
    for address in pod.addresses.iter().copied().filter(has_family) {
        match view.world.services.at(address) {
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
    if view.world.nodes.get(&pod.node).is_none() {
        return Some(Obstacle::NoNode);
    }
    (!pod.ready).then_some(Obstacle::NotReady)
}

/// The reason why a need is not met, when every Pod has an obstacle.
fn judge(service: &Service, hindered: &Hindered<'_>, need: Need) -> Finding {
    let those = |wanted: fn(&Obstacle<'_>) -> bool| -> Hindered<'_> {
        hindered.iter().filter(|(_, obstacle)| wanted(obstacle)).copied().collect()
    };
    let waiting = those(|obstacle| matches!(obstacle, Obstacle::NoAddress | Obstacle::NotReady));
    if !waiting.is_empty() {
        return not_ready(&waiting, hindered.len());
    }
    let classes = [
        those(|obstacle| matches!(obstacle, Obstacle::NoPort)),
        those(|obstacle| matches!(obstacle, Obstacle::WrongFamily)),
        those(|obstacle| matches!(obstacle, Obstacle::IsClusterIp(..))),
        those(|obstacle| matches!(obstacle, Obstacle::NoNode)),
    ];
    // The first of the largest; `max_by_key` would take the last.
    let largest = classes.into_iter().rev().max_by_key(Vec::len).unwrap_or_default();
    let Some((pod, obstacle)) = largest.first() else { return not_ready(hindered, hindered.len()) };
    let (name, others) = (pod.name(), others(largest.len() - 1));
    match obstacle {
        Obstacle::NoPort => no_port(need.port.map(|port| &service.ports[port]), pod, &others),
        Obstacle::IsClusterIp(address, other) => Finding::bad(
            "EndpointIsClusterIP",
            format!(
                "the address {address} of pod {name}{others} is the cluster IP of Service {other}; connections would \
                 go round in circles, so it is left out"
            ),
        ),
        Obstacle::NoNode if pod.node.is_empty() => Finding::bad(
            "NodeMissing",
            format!("pod {name}{others} has an address but is bound to no node, so nobody can reach it"),
        ),
        Obstacle::NoNode => Finding::bad(
            "NodeMissing",
            format!(
                "pod {name}{others} is bound to node {}, which does not exist. Register the Node or delete the pod.",
                pod.node
            ),
        ),
        _ => {
            let families: Vec<&str> = match need.family {
                Some(family) => vec![family.as_str()],
                None => service.families.iter().map(|family| family.as_str()).collect(),
            };
            let families = families.join(" or ");
            Finding::bad("WrongFamily", format!("pod {name}{others} has no {families} address, as this Service needs"))
        }
    }
}

/// ` (like 2 other pods)`.
fn others(number: usize) -> String {
    if number == 0 { String::new() } else { format!(" (like {})", count(number, "other pod")) }
}

fn not_ready(waiting: &Hindered<'_>, all: usize) -> Finding {
    let message = match &waiting[..] {
        [(pod, obstacle)] if all == 1 => match obstacle {
            Obstacle::NotReady => match excuse(&pod.entry.value) {
                Some(why) => format!("pod {} is not ready: {why}", pod.name()),
                None => format!("pod {} is not ready", pod.name()),
            },
            _ => format!("pod {} {}", pod.name(), why(pod, *obstacle)),
        },
        many => {
            // Only those that are named are read.
            let shown = many.iter().enumerate().map(|(place, (pod, obstacle))| {
                if place < NAMED { format!("{} {}", pod.name(), why(pod, *obstacle)) } else { String::new() }
            });
            let shown: Vec<String> = shown.collect();
            format!("0 of {} are ready: {}", count(all, "matching pod"), list(&shown, NAMED))
        }
    };
    Finding::bad("PodsNotReady", message)
}

fn why(pod: &Pod, obstacle: Obstacle<'_>) -> String {
    let said = |what: &str| excuse(&pod.entry.value).map_or_else(|| what.to_owned(), |why| format!("{what} ({why})"));
    match obstacle {
        Obstacle::Finished => "has finished".to_owned(),
        Obstacle::Deleting => "is being deleted".to_owned(),
        Obstacle::NoAddress => said("has no address yet"),
        _ => said("is not ready"),
    }
}

fn no_port(port: Option<&Port>, pod: &Pod, others: &str) -> Finding {
    let (name, protocol) = match port {
        Some(Port { target: TargetPort::Name(name), protocol, .. }) => (&**name, *protocol),
        _ => ("", None),
    };
    let same = pod.ports.iter().find(|port| *port.name == *name);
    let message = if let Some(same) = same {
        let [other, protocol] = [same.protocol, protocol].map(|one| one.map_or("?", Protocol::as_str));
        let pod = pod.name();
        format!("targetPort {name} is a {other} port of pod {pod}{others}, and the Service asks for {protocol}")
    } else {
        let ports: Vec<&str> = pod.ports.iter().map(|port| &*port.name).collect();
        let ports = match ports.len() {
            0 => "none of its ports has a name".to_owned(),
            1 => format!("its only named port is {}", ports[0]),
            _ => format!("its ports are {}", list(&ports, NAMED + 2)),
        };
        format!("targetPort {name} is not a port of pod {}{others}; {ports}", pod.name())
    };
    Finding::bad("NoSuchTargetPort", message)
}
