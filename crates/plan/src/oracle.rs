//! What must happen to a packet: the judge of every backend.
//!
//! Written from the rules of the specification, in their order, without regard to how any backend does it.

use std::net::IpAddr;

use api::ip::Family;
use api::view::Protocol;

use crate::claims::{Frontend, Role};
use crate::plan::Plan;
use crate::service_port::{Backend, PortKey, ServicePort};

/// The first packet of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Who sends it.
    pub source: IpAddr,
    /// Whether its source is an address of this node.
    pub from_node: bool,
    /// The interface it comes in on; nothing for packets of the node itself.
    pub interface: Option<String>,
    /// Where it is sent.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
}

/// What must happen to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is none of our business.
    Pass,
    /// Its sender is told that nobody is there.
    Refuse(Why),
    /// It is lost.
    Drop(Why),
    /// It goes to one of several backends, each as likely as the others.
    Forward(Forward),
}

/// Where a packet goes, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// Of which Service port.
    pub port: PortKey,
    /// By which kind of frontend it came.
    pub role: Role,
    /// The backends.
    pub backends: Vec<Backend>,
    /// Whether the backend sees the node instead of the sender, whichever backend it is.
    pub masquerade: bool,
    /// Backends that see the node because they are the sender themselves.
    pub hairpin: Vec<Backend>,
    /// How long the sender stays with its backend, in seconds.
    pub affinity: Option<u32>,
}

/// Why a packet does not arrive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The Service has no endpoint that could answer.
    NoEndpoints(PortKey),
    /// The Service wants its traffic to stay on this node, and there is no endpoint here.
    NoLocalEndpoints(PortKey),
    /// The sender is not among those that may use the load balancer.
    SourceRange(PortKey),
    /// The address is that of a Service, which has no such port.
    NoSuchPort,
    /// The address is kept for Services, and no Service has it.
    NoSuchService,
}

/// The rule by which a packet finds its endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// To the cluster IP of a Service whose traffic from inside may go anywhere.
    InternalCluster,
    /// To the cluster IP of a Service whose traffic from inside stays on its node.
    InternalLocal,
    /// To an outer address of a Service whose traffic from outside may go anywhere.
    ExternalCluster,
    /// To an outer address of a Service whose traffic from outside stays on its node.
    ExternalLocal,
    /// From a Pod to an outer address of such a Service: as if it left and came back.
    PodWithin,
    /// From a node itself to an outer address of such a Service.
    NodeWithin,
}

impl Rule {
    /// Whether only endpoints of this node are asked.
    #[must_use]
    pub const fn stays_here(self) -> bool {
        matches!(self, Self::InternalLocal | Self::ExternalLocal)
    }
}

/// Why a backend sees the node instead of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Masked {
    /// All traffic to cluster IPs is masqueraded here.
    Always,
    /// The sender of traffic to a cluster IP is no Pod.
    Stranger,
    /// Traffic from outside may go to other nodes, and its answers must come back by this one.
    ByPolicy,
    /// The sender is a Pod of another node.
    PodElsewhere,
    /// The sender is the node.
    Node,
}

/// What happens to a packet behind its frontend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Course {
    /// By which rule it finds its endpoints.
    pub rule: Rule,
    /// Why the backend sees the node; nothing when it sees the sender.
    pub masked: Option<Masked>,
}

/// Judges a packet.
#[must_use]
pub fn judge(plan: &Plan, packet: &Packet) -> Outcome {
    let Some((role, port)) = find(plan, packet) else { return unclaimed(plan, packet) };
    if role == Role::LoadBalancer && !may_use(plan, port, packet.source) {
        return Outcome::Drop(Why::SourceRange(port.key.clone()));
    }
    if !port.has_any {
        return Outcome::Refuse(Why::NoEndpoints(port.key.clone()));
    }
    let Course { rule, masked } = course(plan, role, port, packet);
    let backends = if rule.stays_here() { &port.local } else { &port.cluster };
    if backends.is_empty() {
        return Outcome::Drop(Why::NoLocalEndpoints(port.key.clone()));
    }
    let hairpin = port.hairpin.iter().filter(|one| one.ip == packet.source && backends.contains(one)).copied();
    Outcome::Forward(Forward {
        port: port.key.clone(),
        role,
        backends: backends.clone(),
        masquerade: masked.is_some(),
        hairpin: hairpin.collect(),
        affinity: port.affinity,
    })
}

/// The rule that a packet meets behind a frontend, and whether the backend sees the node.
#[must_use]
pub fn course(plan: &Plan, role: Role, port: &ServicePort, packet: &Packet) -> Course {
    let is_pod = plan.options.local.is_local(packet.source, packet.interface.as_deref());
    if role == Role::Cluster {
        let stranger = plan.options.local.knows(packet.source.is_ipv4()) && !is_pod;
        let masked = match plan.options.masquerade_all {
            true => Some(Masked::Always),
            false => stranger.then_some(Masked::Stranger),
        };
        let rule = if port.internal_local { Rule::InternalLocal } else { Rule::InternalCluster };
        Course { rule, masked }
    } else if !port.external_local {
        Course { rule: Rule::ExternalCluster, masked: Some(Masked::ByPolicy) }
    } else if is_pod {
        // As if it left the cluster and came back: neither policy applies. A Pod of another node must be answered by way of
        // this one.
        let masked = plan.is_pod_elsewhere(packet.source).then_some(Masked::PodElsewhere);
        Course { rule: Rule::PodWithin, masked }
    } else if packet.from_node {
        Course { rule: Rule::NodeWithin, masked: Some(Masked::Node) }
    } else {
        Course { rule: Rule::ExternalLocal, masked: None }
    }
}

/// The Service port that a packet is for.
#[must_use]
pub fn find<'a>(plan: &'a Plan, packet: &Packet) -> Option<(Role, &'a ServicePort)> {
    let address = Frontend::Address(packet.destination, packet.protocol, packet.port);
    plan.owner(&address).or_else(|| {
        let family = Family::of(packet.destination);
        let here = plan.node_port_ips.contains(&packet.destination);
        plan.owner(&Frontend::NodePort(family, packet.protocol, packet.port)).filter(|_| here)
    })
}

/// Whether a sender may use the load-balancer addresses of a Service. A node that has such an address uses it as its
/// own source, so where the node may, that address may too.
#[must_use]
pub fn may_use(plan: &Plan, port: &ServicePort, source: IpAddr) -> bool {
    let Some(ranges) = &port.source_ranges else { return true };
    let allowed = |ip: &IpAddr| ranges.iter().any(|range| range.contains(ip));
    allowed(&source) || (port.lb_ips.contains(&source) && plan.node_ips.iter().any(allowed))
}

/// What happens to a packet that no frontend claims.
fn unclaimed(plan: &Plan, packet: &Packet) -> Outcome {
    if plan.cluster_ips.contains_key(&packet.destination) {
        return Outcome::Refuse(Why::NoSuchPort);
    }
    if plan.ranges.iter().any(|range| range.contains(&packet.destination)) {
        return Outcome::Refuse(Why::NoSuchService);
    }
    Outcome::Pass
}
