//! Stale UDP flows: a client that keeps sending from one port keeps its conntrack entry, and with it a removed
//! endpoint.
//!
//! Level-triggered: entries are compared with the plan, and those that no new packet would create are deleted. Entries
//! to an endpoint that still serves stay. TCP connections end by themselves.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::ip::Family;
use kernel::conntrack::{Conntrack, ConntrackError, Flow};
use plan::{Backend, Frontend, Plan, Protocol};

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

/// Whether no new packet would create this flow.
fn is_stale(plan: &Plan, gone: &RemovedFrontends, family: Family, flow: &Flow, by_ipvs: bool) -> bool {
    let (destination, port) = (flow.original.destination.ip(), flow.original.destination.port());
    let answering = if flow.translated || by_ipvs { flow.reply.source } else { flow.original.destination };
    let backend = Backend { ip: answering.ip(), port: answering.port() };
    let translated = answering != flow.original.destination;
    match frontend(plan, family, destination, port) {
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
fn frontend(plan: &Plan, family: Family, ip: IpAddr, port: u16) -> Option<Frontend> {
    let address = Frontend::Address(ip, Protocol::Udp, port);
    if plan.frontends.contains_key(&address) {
        return Some(address);
    }
    let node_port = Frontend::NodePort(family, Protocol::Udp, port);
    (plan.node_port_ips.contains(&ip) && plan.frontends.contains_key(&node_port)).then_some(node_port)
}

/// Serving endpoints of a frontend.
fn serving(plan: &Plan, frontend: Frontend) -> Option<&[Backend]> {
    plan.owner(&frontend).map(|(_, port)| &*port.serving)
}
