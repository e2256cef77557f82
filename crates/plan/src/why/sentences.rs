//! Texts of explanations: one sentence per cause.

use std::fmt;

use super::{Candidate, EndpointTraffic, ExclusionReason, Explanation, Kind, Port, Sender, TrafficPath};
use crate::oracle::{MasqueradeReason, Outcome, RejectReason, Rule};
use crate::{PortKey, RedirectedFrontends, Role};

/// Endpoints without traffic that a summary names.
const NAMED: usize = 3;
/// How a redirected cluster IP is served.
pub(super) const LAYER7: &str = "the cluster IP leads to the gateway of this node, which selects an endpoint for each \
                                 request of this node and its Pods";

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pod => "from a Pod",
            Self::Node => "from the node",
            Self::Outside => "from outside",
            Self::Unlisted => "from outside of the source ranges",
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster IP",
            Self::LoadBalancer => "load-balancer address",
            Self::External => "external IP",
            Self::NodePort => "node port",
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InternalCluster => "internalTrafficPolicy is Cluster: any endpoint may answer",
            Self::InternalLocal => "internalTrafficPolicy is Local: only endpoints of this node may answer",
            Self::ExternalCluster => "externalTrafficPolicy is Cluster: any endpoint may answer",
            Self::ExternalLocal => "externalTrafficPolicy is Local: only endpoints of this node may answer",
            Self::FromPod => {
                "externalTrafficPolicy is Local, but the sender is a Pod of the cluster: any endpoint may answer"
            }
            Self::FromNode => {
                "externalTrafficPolicy is Local, but the sender is the node itself: any endpoint may answer"
            }
        })
    }
}

impl fmt::Display for MasqueradeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MasqueradeAll => "this node masquerades all traffic to cluster IPs",
            Self::NotPod => "the sender is not a Pod: replies must return through this node",
            Self::ExternalPolicy => "externalTrafficPolicy is Cluster: replies must return through this node",
            Self::RemotePod => "the sender is a Pod of another node: replies must return through this one",
            Self::Node => "the sender is the node itself",
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEndpoints(key) if key.redirected.is_some() => {
                write!(f, "no listener on this node is known for {key}")
            }
            Self::NoEndpoints(key) => write!(f, "{key} has no endpoint that could answer"),
            Self::NoLeader(key) => {
                write!(f, "the traffic policy of {key} is `leader`, and no endpoint that could answer holds its Lease")
            }
            Self::NoLocalEndpoints(key) => {
                write!(f, "{key} wants this traffic to stay on its node (policy Local), and has no endpoint here")
            }
            Self::SourceRange(key) => {
                write!(f, "the sender is in none of the loadBalancerSourceRanges of {}", key.service)
            }
            Self::NoSuchPort => f.write_str("the Service with this address has no such port"),
            Self::NoSuchService => f.write_str("the address is kept for Services, and no Service has it"),
        }
    }
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |names: &[Box<str>]| names.join(", ");
        match self {
            Self::NotReady => f.write_str("it is not ready"),
            Self::Terminating => f.write_str("it is terminating, and others are there to stay"),
            Self::Ended => f.write_str("it is terminating, and no longer answers"),
            Self::OtherNode(Some(node)) => {
                write!(f, "it is on node {node}, and this traffic stays here (policy Local)")
            }
            Self::OtherNode(None) => f.write_str("it names no node, and this traffic stays on its node (policy Local)"),
            Self::NodeHints(nodes) => {
                write!(f, "its hints are for nodes {}, and others are for this one", names(nodes))
            }
            Self::ZoneHints(zones) => write!(f, "its hints are for zone {}, and others are for this one", names(zones)),
            Self::ClusterIp => f.write_str("its address is the cluster IP of a Service: traffic would loop"),
            Self::NotLeader => f.write_str("its Pod does not hold the Lease of the leader"),
            Self::SourceRanges => f.write_str("the sender is in none of the loadBalancerSourceRanges"),
            Self::Taken(key) => write!(f, "{key} has this address and port"),
            Self::NotServedHere => f.write_str("this node serves node ports on no address of this family"),
            Self::NoSuchPort(ports) if ports.is_empty() => f.write_str("its slice has no ports"),
            Self::NoSuchPort(ports) => write!(f, "its slice has no port of this name; it has {}", ports.join(", ")),
            Self::OtherFamily(family) => write!(f, "its address is {family}, and the Service has no {family} address"),
            Self::AddressType(kind) => write!(f, "it is of type {kind}, to which no packet can be sent"),
            Self::Unfit(why) => write!(f, "its address {why}"),
            Self::HeadlessSlice => f.write_str("its slice is marked as that of a headless Service"),
            Self::PodPending(waits) => write!(f, "the Pod has no address yet: it waits {waits}"),
            Self::PodEnded(phase) => write!(f, "the Pod has ended ({phase})"),
            Self::NotInSlice => {
                f.write_str("no EndpointSlice contains the Pod: the controllers have not synced yet, or do not run")
            }
        }
    }
}

impl fmt::Display for EndpointTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receives { of: 1, last_resort: false, .. } => f.write_str("all of it"),
            Self::Receives { share, of, last_resort: false } => write!(f, "{share} of {of}"),
            Self::Receives { share, of, last_resort: true } => {
                write!(f, "{share} of {of}, terminating: no ready endpoint is left")
            }
            Self::Excluded(out) => out.fmt(f),
        }
    }
}

impl Candidate {
    /// Whether it gets traffic on some path.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.traffic.iter().any(|stand| matches!(stand, EndpointTraffic::Receives { .. }))
    }

    /// Why it gets none, where the reason is the same on every path.
    #[must_use]
    pub fn out(&self) -> Option<&ExclusionReason> {
        let Some(EndpointTraffic::Excluded(first)) = self.traffic.first() else { return None };
        (!self.is_in()).then_some(first)
    }

    /// `address:port`, or the address where the port is unknown.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.port, self.address.contains(':')) {
            (None, _) => self.address.clone(),
            (Some(port), false) => format!("{}:{port}", self.address),
            (Some(port), true) => format!("[{}]:{port}", self.address),
        }
    }
}

impl TrafficPath {
    /// The outcome in short.
    #[must_use]
    pub fn verdict(&self) -> String {
        match (&self.taken, &self.outcome) {
            (Some(key), _) => format!("goes to {key}, which has this address and port"),
            (None, Outcome::Forward(forward)) if forward.backends.len() == 1 => "goes to the one endpoint".to_owned(),
            (None, Outcome::Forward(forward)) => format!("is spread over {} endpoints", forward.backends.len()),
            (None, Outcome::Refuse(why)) => format!("is refused: {why}"),
            (None, Outcome::Drop(why)) => format!("is dropped: {why}"),
            (None, Outcome::Pass) => "is not served on this node".to_owned(),
        }
    }
}

impl Explanation {
    /// Everything in one sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { service, node, .. } = self;
        match &self.kind {
            Kind::Name => format!(
                "{service} is another name for something outside: names lead there, and no packet passes the proxy."
            ),
            Kind::Headless => {
                format!("{service} is headless: its name leads straight to its ready endpoints, without the proxy.")
            }
            Kind::Foreign(name) => format!("{service} is served by another program, `{name}`, as its label says."),
            Kind::NoAddress => format!("{service} has no address or no port that could be served."),
            Kind::Addresses => {
                let ports: Vec<String> = self.ports.iter().map(summary).collect();
                let first = ports.first().cloned().unwrap_or_default();
                if ports.iter().all(|one| *one == first) {
                    return format!("On node {node}, {first}.");
                }
                let each = self
                    .ports
                    .iter()
                    .zip(&ports)
                    .map(|(port, says)| format!("port {}: {says}", name(&port.planned.key)));
                format!("On node {node}, {}.", each.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

fn name(key: &PortKey) -> String {
    let name = if key.port.is_empty() { key.protocol.as_str() } else { &key.port };
    let place = key.redirected.map_or("", RedirectedFrontends::suffix);
    format!("{name}{place} ({})", key.family.as_str())
}

/// State of a port.
fn summary(port: &Port) -> String {
    let target = port.planned.served_by();
    match port.planned.key.redirected.filter(|_| target.is_none()) {
        Some(_) if port.candidates.is_empty() => return "no listener on this node is known".to_owned(),
        Some(RedirectedFrontends::LoadBalancer) => return "the listener gets traffic".to_owned(),
        Some(RedirectedFrontends::ClusterIp) => return LAYER7.to_owned(),
        None => {}
    }
    if port.paths.is_empty() {
        return "it has no address besides the cluster IP, which leads to the gateway of this node".to_owned();
    }
    let inside = port.candidates.iter().filter(|one| one.is_in()).count();
    let all = port.candidates.len();
    let mut says = match (inside, all) {
        (0, 0) => "there is no endpoint, so connections are refused".to_owned(),
        (0, _) => format!("none of {all} endpoints gets traffic"),
        (1, 1) => "the one endpoint gets traffic".to_owned(),
        _ if inside == all => format!("all {all} endpoints get traffic"),
        _ => format!("{inside} of {all} endpoints get traffic"),
    };
    let outside: Vec<_> = port.candidates.iter().filter_map(|one| Some((one, one.out()?))).collect();
    for (one, out) in outside.iter().take(NAMED) {
        says.push_str(&format!("; {} does not: {out}", one.place()));
    }
    if outside.len() > NAMED {
        says.push_str(&format!("; nor do {} more", outside.len() - NAMED));
    }
    let failing = port.paths.iter().find(|path| inside > 0 && !matches!(path.outcome, Outcome::Forward(_)));
    if let Some(path) = failing.filter(|path| path.sender != Sender::Unlisted) {
        says.push_str(&format!("; but traffic {} to its {} {}", path.sender, path.role, path.verdict()));
    }
    match target {
        Some(target) => format!("redirected to {target} without a listener: {says}"),
        None => says,
    }
}
