//! Who behind a Service gets traffic on a node, who does not, and why: for every kind of traffic.
//!
//! In: a [`Planner`] that has heard of the Service, and the objects themselves. Out: an [`Explanation`]. What is said to be in is
//! what [`oracle::judge`] forwards a packet to that is made for the question, so that it cannot differ from what the rules do; only
//! the reasons are looked up beside it. `trace` follows one packet, `who` says whose an address is.

mod left;
mod pod;
mod sentences;
pub mod trace;
mod ways;
pub mod who;

use std::sync::Arc;

use api::view::{EndpointSlice, Pod, Service};

use crate::oracle::{self, Outcome, Packet, Rule};
use crate::planner::Planner;
use crate::reasons::{Reason, Standing};
use crate::service_port::{PortKey, ServicePort};
use crate::{Frontend, Role};

pub use self::ways::{pod_interface, stranger};

/// A Service and what stands behind it, as the API has it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The Service.
    pub service: &'a Service,
    /// Its slices.
    pub slices: &'a [EndpointSlice],
    /// The Pods that its selector matches.
    pub pods: &'a [Pod],
}

/// How a Service stands on a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// `namespace/name` of the Service.
    pub service: String,
    /// The node.
    pub node: String,
    /// What serves it, if it is not served by address.
    pub kind: Kind,
    /// Its ports, each in each of its families.
    pub ports: Vec<Port>,
    /// Who stands behind it and belongs to none of these ports.
    pub left: Vec<Left>,
    /// What people should know beside that.
    pub problems: Vec<String>,
}

/// In which way a Service leads to its endpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// By its addresses.
    Addresses,
    /// By name alone: it is headless.
    Headless,
    /// It is another name.
    Name,
    /// Another program serves it.
    Foreign(Box<str>),
    /// It has no address yet.
    NoAddress,
}

/// A port of a Service, in a family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// As it is planned.
    pub planned: Arc<ServicePort>,
    /// The ways that lead to it.
    pub ways: Vec<Way>,
    /// Its endpoints.
    pub candidates: Vec<Candidate>,
}

/// A kind of sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Sender {
    /// A Pod of this node.
    Pod,
    /// The node itself.
    Node,
    /// Somebody outside of the cluster, one that may use the load balancer if any may.
    Outside,
    /// Somebody outside who may not.
    Unlisted,
}

/// A way to a Service port: by a frontend, from a kind of sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Where packets arrive.
    pub frontend: Frontend,
    /// What that is to the Service.
    pub role: Role,
    /// Who sends.
    pub sender: Sender,
    /// The packet that was judged; none where there is no address to send it to.
    pub packet: Option<Packet>,
    /// What happens to it.
    pub outcome: Outcome,
    /// By which rule it finds its endpoints, if it gets so far.
    pub rule: Option<Rule>,
    /// Who has this frontend instead.
    pub taken: Option<PortKey>,
}

/// An endpoint of a Service port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its address.
    pub address: String,
    /// Its port, if it has the one that is asked for.
    pub port: Option<u16>,
    /// Its node.
    pub node: Option<Box<str>>,
    /// The Pod that has this address, as `namespace/name`.
    pub pod: Option<String>,
    /// How it stands, for each way in turn.
    pub stands: Vec<Stand>,
}

/// Somebody who belongs to no port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Its address, or the Pod's name where it has none.
    pub what: String,
    /// The Pod, as `namespace/name`.
    pub pod: Option<String>,
    /// The slice that names it.
    pub slice: Option<String>,
    /// Why it gets nothing.
    pub out: Out,
}

/// How an endpoint stands for a kind of traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stand {
    /// It gets traffic, as do others.
    In {
        /// How many get it, each as much as the others.
        of: usize,
        /// It is about to go, and gets traffic because nothing better is left.
        last_resort: bool,
    },
    /// It gets none.
    Out(Out),
}

/// Why an endpoint gets no traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// It is not ready.
    NotReady,
    /// It is about to go, and there are better ones.
    Terminating,
    /// It is about to go, and does not answer any more.
    Ended,
    /// It is on another node, and this traffic stays.
    OtherNode(Option<Box<str>>),
    /// Its hints are for other nodes, and there are some for this one.
    NodeHints(Box<[Box<str>]>),
    /// Its hints are for other zones, and there are some for this one.
    ZoneHints(Box<[Box<str>]>),
    /// Its address is the cluster IP of a Service.
    ClusterIp,
    /// The sender is fenced off by source ranges.
    SourceRanges,
    /// Another Service has the frontend.
    Taken(PortKey),
    /// Node ports are not served here in this family.
    NotServedHere,
    /// Its slice has no such port; these it has.
    NoSuchPort(Vec<String>),
    /// The Service has no address of its family.
    OtherFamily(&'static str),
    /// Packets cannot be sent to addresses of this type.
    AddressType(Box<str>),
    /// Nothing can be sent to its address: why.
    Unfit(&'static str),
    /// Its slice says that the Service has no address.
    HeadlessSlice,
    /// The Pod has no address yet; what it waits for.
    PodPending(String),
    /// The Pod has ended so.
    PodEnded(Box<str>),
    /// No slice names the Pod.
    NotInSlice,
}

impl Planner {
    /// How a Service stands on the node of this planner, which must have heard of it and of its slices.
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
            left: left::left(&ports, subject, self.plan.options.rootless),
            problems: problems.collect(),
            service,
            ports,
        }
    }

    fn why_port(&self, planned: &Arc<ServicePort>, subject: &Subject<'_>) -> Port {
        let ways = ways::ways(&self.plan, planned);
        let reasons = self.reasons(&planned.key);
        let candidate = |reason: &Reason| Candidate {
            address: reason.backend.ip.to_string(),
            port: Some(reason.backend.port),
            node: reason.endpoint.place.node.clone(),
            pod: pod::named(subject.pods, &reason.backend.ip.to_string()),
            stands: ways.iter().map(|way| stand(way, reason)).collect(),
        };
        let mut candidates: Vec<Candidate> = reasons.iter().map(candidate).collect();
        candidates.extend(left::without_port(planned, subject, &reasons, &ways, self.plan.options.rootless));
        Port { planned: Arc::clone(planned), ways, candidates }
    }
}

/// How an endpoint stands for one way.
fn stand(way: &Way, reason: &Reason) -> Stand {
    if let Some(key) = &way.taken {
        return Stand::Out(Out::Taken(key.clone()));
    }
    let standing = way.rule.and_then(|rule| if rule.stays_here() { reason.local } else { reason.cluster });
    if let Outcome::Forward(forward) = &way.outcome
        && forward.backends.contains(&reason.backend)
    {
        return Stand::In { of: forward.backends.len(), last_resort: standing == Some(Standing::LastResort) };
    }
    let place = &reason.endpoint.place;
    Stand::Out(match standing {
        Some(Standing::NotReady) if reason.endpoint.terminating && !reason.endpoint.serving => Out::Ended,
        Some(Standing::NotReady) => Out::NotReady,
        Some(Standing::Terminating) => Out::Terminating,
        Some(Standing::OtherNode) => Out::OtherNode(place.node.clone()),
        Some(Standing::FartherThanNode) => Out::NodeHints(place.nodes.clone()),
        Some(Standing::FartherThanZone) => Out::ZoneHints(place.zones.clone()),
        Some(Standing::ClusterIp) => Out::ClusterIp,
        Some(Standing::Chosen | Standing::LastResort) => match &way.outcome {
            Outcome::Drop(oracle::Why::SourceRange(_)) => Out::SourceRanges,
            _ => Out::NotServedHere,
        },
        None => Out::NotServedHere,
    })
}

/// In which way a Service leads to its endpoints.
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
