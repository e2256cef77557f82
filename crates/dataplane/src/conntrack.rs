//! Stale UDP flows: a client that keeps sending from one port keeps its flow, and with it an endpoint that has gone.
//!
//! By state, not by event: the flows the kernel has are held against the plan, and those are removed that lead where no new
//! packet would be sent. A flow to an endpoint that still answers is left alone, wanted or not. TCP ends by itself.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::ip::Family;
use kernel::conntrack::{Conntrack, Flow};
use plan::{Backend, Frontend, Plan, Protocol};

use crate::nft::{FAMILIES, kernel_family};

/// Frontends of UDP that were there and are gone; flows through them lead nowhere we know of.
pub(crate) type Gone = BTreeSet<Frontend>;

/// Removes the flows that are stale; answers how many. Those that IPVS carries are as long as it does not.
pub(crate) fn reconcile(
    conntrack: &mut dyn Conntrack,
    plan: &Plan,
    gone: &Gone,
    by_ipvs: bool,
) -> Result<usize, String> {
    let mut removed = 0;
    for family in FAMILIES {
        let flows = conntrack.udp_flows(kernel_family(family)).map_err(|error| error.to_string())?;
        let stale: Vec<Flow> = flows.into_iter().filter(|flow| is_stale(plan, gone, family, flow, by_ipvs)).collect();
        if !stale.is_empty() {
            removed += conntrack.delete(&stale).map_err(|error| error.to_string())?;
        }
    }
    Ok(removed)
}

/// Whether a flow leads where no new packet would be sent.
fn is_stale(plan: &Plan, gone: &Gone, family: Family, flow: &Flow, by_ipvs: bool) -> bool {
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

/// The frontend that packets to an address and port would find.
fn frontend(plan: &Plan, family: Family, ip: IpAddr, port: u16) -> Option<Frontend> {
    let address = Frontend::Address(ip, Protocol::Udp, port);
    if plan.frontends.contains_key(&address) {
        return Some(address);
    }
    let node_port = Frontend::NodePort(family, Protocol::Udp, port);
    (plan.node_port_ips.contains(&ip) && plan.frontends.contains_key(&node_port)).then_some(node_port)
}

/// The endpoints behind a frontend that still answer.
fn serving(plan: &Plan, frontend: Frontend) -> Option<&[Backend]> {
    plan.owner(&frontend).map(|(_, port)| &*port.serving)
}
