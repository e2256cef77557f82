//! Stale UDP flows: a client that keeps sending from one port keeps its conntrack entry, and with it a removed
//! endpoint.
//!
//! Level-triggered: entries are compared with the plan, and those that no new packet would create are deleted. Entries
//! to an endpoint that still serves stay. TCP connections end by themselves, except those of Service ports with the policy
//! `leader`: clients must not keep talking to a former leader, so connections to it are cut ([`cut`]).

use std::collections::BTreeSet;
use std::net::SocketAddr;

use api::ip::Family;
use kernel::conntrack::{Conntrack, ConntrackError, Flow};
use plan::{Backend, DataPlane, Frontend, Plan, Protocol};

use crate::nft::{FAMILIES, kernel_family};

/// UDP frontends that were removed; their flows are stale.
pub(crate) type RemovedFrontends = BTreeSet<Frontend>;

/// Deletes stale flows and returns their number. With IPVS the entries are not marked as translated.
pub(crate) fn reconcile(
    conntrack: &mut dyn Conntrack,
    plan: &Plan,
    gone: &RemovedFrontends,
    by_ipvs: bool,
) -> Result<usize, ConntrackError> {
    let mut removed = 0;
    for family in FAMILIES {
        let flows = conntrack.udp_flows(kernel_family(family))?;
        let stale: Vec<Flow> = flows.into_iter().filter(|flow| is_stale(plan, gone, family, flow, by_ipvs)).collect();
        if !stale.is_empty() {
            removed += conntrack.delete(&stale)?;
        }
    }
    Ok(removed)
}

/// Deletes the connections of exclusive Service ports to endpoints that are no longer theirs; returns their number. The next
/// packet of such a connection is that of a new one to an endpoint that does not know it, which resets it.
pub(crate) fn cut(conntrack: &mut dyn Conntrack, plan: &Plan) -> Result<usize, ConntrackError> {
    // The relay ends its own connections.
    if plan.options.data_plane == DataPlane::Userspace || !plan.ports.values().any(|port| port.balancing.is_exclusive())
    {
        return Ok(0);
    }
    let is_cut = |family: Family, flow: &Flow| {
        let Some(protocol) = Protocol::ALL.into_iter().find(|one| one.number() == flow.protocol) else { return false };
        let (destination, answering) = (flow.original.destination, flow.reply.source);
        let backend = Backend { ip: answering.ip(), port: answering.port() };
        let owner = frontend(plan, (family, protocol), destination).and_then(|frontend| plan.owner(&frontend));
        owner.is_some_and(|(_, port)| port.balancing.is_exclusive() && !port.serving.contains(&backend))
    };
    let mut removed = 0;
    for family in FAMILIES {
        let flows = conntrack.translated_flows(kernel_family(family))?;
        let former: Vec<Flow> =
            flows.into_iter().map(|counted| counted.flow).filter(|flow| is_cut(family, flow)).collect();
        if !former.is_empty() {
            removed += conntrack.delete(&former)?;
        }
    }
    Ok(removed)
}

/// Whether no new packet would create this flow.
fn is_stale(plan: &Plan, gone: &RemovedFrontends, family: Family, flow: &Flow, by_ipvs: bool) -> bool {
    let (destination, port) = (flow.original.destination.ip(), flow.original.destination.port());
    let answering = if flow.translated || by_ipvs { flow.reply.source } else { flow.original.destination };
    let backend = Backend { ip: answering.ip(), port: answering.port() };
    let translated = answering != flow.original.destination;
    match frontend(plan, (family, Protocol::Udp), flow.original.destination) {
        Some(frontend) => serving(plan, frontend).is_some_and(|serving| !serving.contains(&backend)),
        None => {
            let at_address = Frontend::Address(destination, Protocol::Udp, port);
            let at_node = Frontend::NodePort(family, Protocol::Udp, port);
            let was_ours = gone.contains(&at_address)
                || (gone.contains(&at_node) && plan.node_port_ips.contains(&destination))
                || plan.ranges.iter().any(|range| range.contains(&destination));
            translated && was_ours
        }
    }
}

/// The frontend of an address and port.
fn frontend(plan: &Plan, (family, protocol): (Family, Protocol), at: SocketAddr) -> Option<Frontend> {
    let (ip, port) = (at.ip(), at.port());
    let address = Frontend::Address(ip, protocol, port);
    if plan.frontends.contains_key(&address) {
        return Some(address);
    }
    let node_port = Frontend::NodePort(family, protocol, port);
    (plan.node_port_ips.contains(&ip) && plan.frontends.contains_key(&node_port)).then_some(node_port)
}

/// Serving endpoints of a frontend.
fn serving(plan: &Plan, frontend: Frontend) -> Option<&[Backend]> {
    plan.owner(&frontend).map(|(_, port)| &*port.serving)
}
