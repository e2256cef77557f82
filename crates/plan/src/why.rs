//! Explains which endpoints of a Service get traffic on a node, and why others do not, per kind of traffic.
//!
//! In: a [`Planner`] that knows the Service, and the objects. Out: an [`Explanation`]. Which endpoints get traffic is
//! taken from [`oracle::judge`] for a representative packet, so it cannot differ from the rules; only the reasons are
//! computed here. `trace` explains one packet, `owners` the owner of an address.

pub mod owners;
mod paths;
mod pod;
mod sentences;
pub mod trace;
mod unassigned;

use std::sync::Arc;

use api::view::{EndpointSlice, Pod, Service};

use crate::oracle::{self, Outcome, Packet, Rule};
use crate::planner::Planner;
use crate::reasons::{EndpointStatus, Reason};
use crate::service_port::{PortKey, ServicePort};
use crate::{Frontend, Role};

pub use self::paths::{pod_interface, stranger};

/// A Service with its slices and Pods, as in the API.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The Service.
    pub service: &'a Service,
    /// Its slices.
    pub slices: &'a [EndpointSlice],
    /// Pods that match its selector.
    pub pods: &'a [Pod],
}

/// State of a Service on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// `namespace/name` of the Service.
    pub service: String,
    /// The node.
    pub node: String,
    /// How it is served.
    pub kind: Kind,
    /// Its ports, per family.
    pub ports: Vec<Port>,
    /// Endpoints and Pods that belong to none of these ports.
    pub unassigned: Vec<Unassigned>,
    /// Other problems.
    pub problems: Vec<String>,
}

/// How a Service is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// By the proxy.
    Addresses,
    /// Headless: by DNS only.
    Headless,
    /// ExternalName: an alias.
    Name,
    /// By another proxy (label `service.kubernetes.io/service-proxy-name`).
    Foreign(Box<str>),
    /// No address yet.
    NoAddress,
}

/// A port of a Service in a family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The planned port.
    pub planned: Arc<ServicePort>,
    /// Traffic paths to it.
    pub paths: Vec<TrafficPath>,
    /// Its endpoints.
    pub candidates: Vec<Candidate>,
}

/// Kind of source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Sender {
    /// A Pod of this node.
    Pod,
    /// The node itself.
    Node,
    /// A client outside the cluster; one in loadBalancerSourceRanges, if set.
    Outside,
    /// A client outside the cluster that is not in loadBalancerSourceRanges.
    Unlisted,
}

/// A traffic path to a Service port: a frontend and a kind of source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrafficPath {
    /// The frontend.
    pub frontend: Frontend,
    /// Its role.
    pub role: Role,
    /// Kind of source.
    pub sender: Sender,
    /// The packet that was judged; none without a destination address.
    pub packet: Option<Packet>,
    /// What happens to it.
    pub outcome: Outcome,
    /// The rule that selects the endpoints, if any does.
    pub rule: Option<Rule>,
    /// The Service port that owns this frontend instead.
    pub taken: Option<PortKey>,
}

/// An endpoint of a Service port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its address.
    pub address: String,
    /// Its port, if it has the target port.
    pub port: Option<u16>,
    /// Its node.
    pub node: Option<Box<str>>,
    /// `namespace/name` of the Pod with this address.
    pub pod: Option<String>,
    /// Its state for each path, in order.
    pub traffic: Vec<EndpointTraffic>,
}

/// An endpoint or Pod that belongs to no port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unassigned {
    /// Its address, or the name of a Pod without one.
    pub what: String,
    /// `namespace/name` of the Pod.
    pub pod: Option<String>,
    /// Its slice.
    pub slice: Option<String>,
    /// Why it gets no traffic.
    pub out: ExclusionReason,
}

/// Whether an endpoint gets traffic of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointTraffic {
    /// It gets traffic.
    Receives {
        /// Its share of new connections: so many …
        share: usize,
        /// … of so many.
        of: usize,
        /// It is terminating and gets traffic because no ready endpoint is left.
        last_resort: bool,
    },
    /// It gets no traffic.
    Excluded(ExclusionReason),
}

/// Why an endpoint gets no traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExclusionReason {
    /// It is not ready.
    NotReady,
    /// It is terminating, and others are ready.
    Terminating,
    /// It is terminating and not serving.
    Ended,
    /// It is on another node, and the policy is Local.
    OtherNode(Option<Box<str>>),
    /// Its hints are for other nodes, and other endpoints are hinted for this one.
    NodeHints(Box<[Box<str>]>),
    /// Its hints are for other zones, and other endpoints are hinted for this one.
    ZoneHints(Box<[Box<str>]>),
    /// Its address is the cluster IP of a Service.
    ClusterIp,
    /// The traffic policy is `leader`, and its Pod does not hold the Lease.
    NotLeader,
    /// The source is not in loadBalancerSourceRanges.
    SourceRanges,
    /// Another Service owns the frontend.
    Taken(PortKey),
    /// This node serves no node ports of this family.
    NotServedHere,
    /// Its slice has no such port, but these.
    NoSuchPort(Vec<String>),
    /// The Service has no address of its family.
    OtherFamily(&'static str),
    /// The address type is not supported.
    AddressType(Box<str>),
    /// The address is invalid, and why.
    Unfit(&'static str),
    /// Its slice is labelled as headless.
    HeadlessSlice,
    /// The Pod has no address yet; what it waits for.
    PodPending(String),
    /// The Pod has terminated in this phase.
    PodEnded(Box<str>),
    /// No slice contains the Pod.
    NotInSlice,
}

impl Planner {
    /// Explains a Service on the node of this planner, which must know it and its slices.
    #[must_use]
    pub fn why(&self, subject: &Subject<'_>) -> Explanation {
        let metadata = &subject.service.metadata;
        let service = format!("{}/{}", metadata.namespace, metadata.name);
        let planned = self.plan.ports.values().filter(|port| *port.key.service == *service);
        let ports: Vec<Port> = planned.map(|port| self.why_port(port, subject)).collect();
        let problems = self.problems().filter(|problem| *problem.service == *service).map(|problem| problem.what);
        Explanation {
            node: self.plan.options.node_name.clone(),
            kind: kind(subject.service, ports.is_empty()),
            unassigned: unassigned::unassigned(&ports, subject, self.plan.options.rootless),
            problems: problems.collect(),
            service,
            ports,
        }
    }

    fn why_port(&self, planned: &Arc<ServicePort>, subject: &Subject<'_>) -> Port {
        let paths = paths::paths(&self.plan, planned);
        let reasons = self.reasons(&planned.key);
        let candidate = |reason: &Reason| Candidate {
            address: reason.backend.ip.to_string(),
            port: Some(reason.backend.port),
            node: reason.endpoint.location.node.clone(),
            pod: pod::named(subject.pods, &reason.backend.ip.to_string()),
            traffic: paths.iter().map(|path| endpoint_traffic(path, reason)).collect(),
        };
        let mut candidates: Vec<Candidate> = reasons.iter().map(candidate).collect();
        if planned.key.redirected.is_none() {
            candidates.extend(unassigned::without_port(planned, subject, &reasons, &paths, self.plan.options.rootless));
        }
        Port { planned: Arc::clone(planned), paths, candidates }
    }
}

/// State of an endpoint for one path.
fn endpoint_traffic(path: &TrafficPath, reason: &Reason) -> EndpointTraffic {
    if let Some(key) = &path.taken {
        return EndpointTraffic::Excluded(ExclusionReason::Taken(key.clone()));
    }
    let standing = path.rule.and_then(|rule| if rule.is_local() { reason.local } else { reason.cluster });
    if let Outcome::Forward(forward) = &path.outcome
        && forward.backends.contains(&reason.backend)
    {
        let (share, of) = forward.share(&reason.backend);
        return EndpointTraffic::Receives { share, of, last_resort: standing == Some(EndpointStatus::LastResort) };
    }
    let location = &reason.endpoint.location;
    EndpointTraffic::Excluded(match standing {
        Some(EndpointStatus::NotReady) if reason.endpoint.terminating && !reason.endpoint.serving => {
            ExclusionReason::Ended
        }
        Some(EndpointStatus::NotReady) => ExclusionReason::NotReady,
        Some(EndpointStatus::Terminating) => ExclusionReason::Terminating,
        Some(EndpointStatus::OtherNode) => ExclusionReason::OtherNode(location.node.clone()),
        Some(EndpointStatus::HintedForOtherNode) => ExclusionReason::NodeHints(location.nodes.clone()),
        Some(EndpointStatus::HintedForOtherZone) => ExclusionReason::ZoneHints(location.zones.clone()),
        Some(EndpointStatus::ClusterIp) => ExclusionReason::ClusterIp,
        Some(EndpointStatus::NotLeader) => ExclusionReason::NotLeader,
        Some(EndpointStatus::Chosen | EndpointStatus::LastResort) => match &path.outcome {
            Outcome::Drop(oracle::RejectReason::SourceRange(_)) => ExclusionReason::SourceRanges,
            _ => ExclusionReason::NotServedHere,
        },
        None => ExclusionReason::NotServedHere,
    })
}

/// How a Service is served.
fn kind(service: &Service, unplanned: bool) -> Kind {
    if service.is_external_name() {
        Kind::Name
    } else if service.is_headless() {
        Kind::Headless
    } else if let Some(name) = service.proxy_name() {
        Kind::Foreign(name.into())
    } else if unplanned {
        Kind::NoAddress
    } else {
        Kind::Addresses
    }
}
