//! The oracle: what must happen to a packet.
//!
//! Derived from the specification, in its order, independent of any backend.

use std::net::IpAddr;

use api::ip::Family;
use api::view::Protocol;

use crate::balancing::{Balancing, Scope};
use crate::claims::{Frontend, Role};
use crate::plan::Plan;
use crate::service_port::{Backend, PortKey, ServicePort};

/// The first packet of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Whether its source is an address of this node.
    pub from_node: bool,
    /// Incoming interface; none for packets of the node itself.
    pub interface: Option<String>,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// Destination port.
    pub port: u16,
}

/// What must happen to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Not a Service: unchanged.
    Pass,
    /// Rejected.
    Refuse(RejectReason),
    /// Dropped.
    Drop(RejectReason),
    /// Forwarded to one of several backends.
    Forward(Forward),
}

/// How a packet is forwarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forward {
    /// The Service port.
    pub port: PortKey,
    /// Kind of frontend.
    pub role: Role,
    /// Backends that connections of some client may select.
    pub backends: Vec<Backend>,
    /// How one is selected.
    pub balancing: Balancing,
    /// The only backend that a connection of this source may select, where its address decides.
    pub hashed: Option<Backend>,
    /// Whether to masquerade for all backends.
    pub masquerade: bool,
    /// Backends for which to masquerade because they are the source.
    pub hairpin: Vec<Backend>,
    /// Session affinity timeout in seconds.
    pub affinity: Option<u32>,
}

impl Forward {
    /// The backends that this packet may select, unless session affinity keeps another one.
    #[must_use]
    pub fn possible(&self) -> &[Backend] {
        self.hashed.as_ref().map_or(&self.backends, std::slice::from_ref)
    }

    /// The share of a backend in the connections of all clients, as a fraction.
    #[must_use]
    pub fn share(&self, backend: &Backend) -> (usize, usize) {
        match &self.balancing {
            Balancing::Weighted(weights) => {
                let all = self.backends.iter().map(|one| usize::from(weights.of(one))).sum();
                (weights.of(backend).into(), all)
            }
            _ => (1, self.backends.len()),
        }
    }
}

/// Why a packet is rejected or dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RejectReason {
    /// The Service has no serving endpoint.
    NoEndpoints(PortKey),
    /// The traffic policy of the Service is `leader`, and no endpoint that can serve holds its Lease.
    NoLeader(PortKey),
    /// The traffic policy is Local, and this node has no endpoint.
    NoLocalEndpoints(PortKey),
    /// The source is not in loadBalancerSourceRanges.
    SourceRange(PortKey),
    /// The Service with this address has no such port.
    NoSuchPort,
    /// The address is in a Service CIDR, and no Service has it.
    NoSuchService,
}

/// The rule that selects the endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// Cluster IP, internalTrafficPolicy Cluster.
    InternalCluster,
    /// Cluster IP, internalTrafficPolicy Local.
    InternalLocal,
    /// External frontend, externalTrafficPolicy Cluster.
    ExternalCluster,
    /// External frontend, externalTrafficPolicy Local.
    ExternalLocal,
    /// A Pod to an external frontend with policy Local: as if it had left the cluster and re-entered it.
    FromPod,
    /// The node itself to an external frontend with policy Local.
    FromNode,
}

impl Rule {
    /// Whether only local endpoints are used.
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self, Self::InternalLocal | Self::ExternalLocal)
    }
}

/// Why a packet is masqueraded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MasqueradeReason {
    /// `masqueradeAll` is set.
    MasqueradeAll,
    /// The source of cluster IP traffic is not a Pod.
    NotPod,
    /// externalTrafficPolicy is Cluster: replies must return through this node.
    ExternalPolicy,
    /// The source is a Pod of another node.
    RemotePod,
    /// The source is the node.
    Node,
}

/// How a packet is treated behind its frontend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Treatment {
    /// The rule that selects the endpoints.
    pub rule: Rule,
    /// Why it is masqueraded; none if it is not.
    pub masquerade_reason: Option<MasqueradeReason>,
}

/// Decides what must happen to a packet.
#[must_use]
pub fn judge(plan: &Plan, packet: &Packet) -> Outcome {
    let Some((role, port)) = find(plan, packet) else { return unclaimed(plan, packet) };
    if role == Role::LoadBalancer && !may_use(plan, port, packet.source) {
        return Outcome::Drop(RejectReason::SourceRange(port.key.clone()));
    }
    if !port.has_any {
        let why = if port.balancing.is_exclusive() { RejectReason::NoLeader } else { RejectReason::NoEndpoints };
        return Outcome::Refuse(why(port.key.clone()));
    }
    let Treatment { rule, masquerade_reason } = treatment(plan, role, port, packet);
    let scope = if rule.is_local() { Scope::Local } else { Scope::Cluster };
    let backends = port.endpoints(scope);
    if backends.is_empty() {
        return Outcome::Drop(RejectReason::NoLocalEndpoints(port.key.clone()));
    }
    let hairpin = port.hairpin.iter().filter(|one| one.ip == packet.source && backends.contains(one)).copied();
    Outcome::Forward(Forward {
        port: port.key.clone(),
        role,
        backends: backends.to_vec(),
        balancing: port.balancing.clone(),
        hashed: port.only_choice(scope, packet.source, &plan.options.data_plane),
        masquerade: masquerade_reason.is_some(),
        hairpin: hairpin.collect(),
        affinity: port.affinity,
    })
}

/// The rule of a packet behind a frontend, and whether it is masqueraded.
#[must_use]
pub fn treatment(plan: &Plan, role: Role, port: &ServicePort, packet: &Packet) -> Treatment {
    let is_pod = plan.options.local.is_local(packet.source, packet.interface.as_deref());
    if role == Role::Cluster {
        let stranger = plan.options.local.knows(packet.source.is_ipv4()) && !is_pod;
        let masquerade_reason = match plan.options.masquerade_all {
            true => Some(MasqueradeReason::MasqueradeAll),
            false => stranger.then_some(MasqueradeReason::NotPod),
        };
        let rule = if port.internal_local { Rule::InternalLocal } else { Rule::InternalCluster };
        Treatment { rule, masquerade_reason }
    } else if !port.external_local {
        Treatment { rule: Rule::ExternalCluster, masquerade_reason: Some(MasqueradeReason::ExternalPolicy) }
    } else if is_pod {
        // As if it had left the cluster and re-entered it: no policy applies. Replies to a Pod of another node must
        // return through this one.
        let masquerade_reason = plan.is_pod_elsewhere(packet.source).then_some(MasqueradeReason::RemotePod);
        Treatment { rule: Rule::FromPod, masquerade_reason }
    } else if packet.from_node {
        Treatment { rule: Rule::FromNode, masquerade_reason: Some(MasqueradeReason::Node) }
    } else {
        Treatment { rule: Rule::ExternalLocal, masquerade_reason: None }
    }
}

/// The Service port of a packet.
#[must_use]
pub fn find<'a>(plan: &'a Plan, packet: &Packet) -> Option<(Role, &'a ServicePort)> {
    let address = Frontend::Address(packet.destination, packet.protocol, packet.port);
    plan.owner(&address).or_else(|| {
        let family = Family::of(packet.destination);
        let here = plan.node_port_ips.contains(&packet.destination);
        plan.owner(&Frontend::NodePort(family, packet.protocol, packet.port)).filter(|_| here)
    })
}

/// Whether a source may use the load balancer IPs of a Service. A node that has such an address uses it as its own
/// source, so it is allowed where the node is.
#[must_use]
pub fn may_use(plan: &Plan, port: &ServicePort, source: IpAddr) -> bool {
    let Some(ranges) = &port.source_ranges else { return true };
    let allowed = |ip: &IpAddr| ranges.iter().any(|range| range.contains(ip));
    allowed(&source) || (port.lb_ips.contains(&source) && plan.node_ips.iter().any(allowed))
}

/// What happens to a packet without a frontend.
fn unclaimed(plan: &Plan, packet: &Packet) -> Outcome {
    if plan.cluster_ips.contains_key(&packet.destination) {
        return Outcome::Refuse(RejectReason::NoSuchPort);
    }
    if plan.ranges.iter().any(|range| range.contains(&packet.destination)) {
        return Outcome::Refuse(RejectReason::NoSuchService);
    }
    Outcome::Pass
}
