//! Node addresses as load balancer addresses: for a single node without pools, and for the class `waypost.dev/proxy`.
//!
//! In: Nodes, the ports of the Service, and ports in use. Out: addresses, or the conflicting port. A node address is shared, so a Service gets only its own
//! ports there, unless another Service, a node port or a local program uses them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ip::Family;
use api::view::labels::EXCLUDE_FROM_LOAD_BALANCERS;
use store::allocation::{port_key, port_owner};

use super::allocate::{Allocation, AllocationContext, Refusal};
use super::requested::RequestedAddresses;
use crate::controller::View;
use crate::objects::load_balancer::{Owner, annotations};
use crate::objects::node::Node;
use crate::objects::slice::Slice;

/// How often a port that a local program uses is checked again.
const PORT_AGAIN: Duration = Duration::from_secs(5);

/// Whether a Service gets node addresses by default: without pools and with one node. An assigned address is kept when nodes are added.
pub(super) fn is_enough(context: &AllocationContext<'_>, internal: Option<&str>) -> bool {
    let request = context.request;
    let asks_for_more = request.class.is_some()
        || internal.is_some()
        || annotations::pool(&request.annotations).is_some()
        || !context.pools.is_empty();
    let own = own_addresses(context.view);
    let has_one = context.held.iter().any(|address| own.contains(address));
    !asks_for_more && (has_one || context.view.cache.nodes.iter().count() == 1)
}

/// All internal and external addresses of Nodes.
pub(super) fn own_addresses(view: &View<'_>) -> BTreeSet<IpAddr> {
    let nodes = view.cache.nodes.iter();
    nodes.flat_map(|node| node.ips("InternalIP").chain(node.ips("ExternalIP"))).collect()
}

/// The addresses of the nodes.
pub(super) fn allocate_addresses(
    context: &AllocationContext<'_>,
    requested: &RequestedAddresses,
) -> Result<Allocation, Refusal> {
    let nodes = serving(context);
    let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
    if nodes.is_empty() {
        let message = "no Node is ready to take traffic from outside for this Service; look: kubectl get nodes";
        return Err(Refusal::new("NoNode", message));
    }
    let mut found: BTreeMap<Family, Vec<IpAddr>> = BTreeMap::new();
    for family in &requested.families {
        let here: Vec<IpAddr> = nodes.iter().filter_map(|node| address(node, *family)).collect();
        if !here.is_empty() {
            found.insert(*family, here);
        } else if requested.needs_all {
            let message = format!(
                "Node {} has no {} address that others reach; look: kubectl get nodes -o wide",
                names.join(", "),
                family.as_str()
            );
            return Err(Refusal::new("NoFamily", message));
        }
    }
    let mut addresses: Vec<IpAddr> =
        requested.families.iter().filter_map(|family| found.get(family)).flatten().copied().collect();
    if addresses.is_empty() {
        return Err(Refusal::new(
            "NoFamily",
            "no Node has an address of the Service's families; look: kubectl get nodes -o wide",
        ));
    }
    let mut remarks = requested.remarks.clone();
    remarks.extend(restrict(&mut addresses, requested, &names)?);
    let owner = Owner { of_node: true, sharing: Box::default(), backend: Box::default(), ..context.owner.clone() };
    let ports_in_use = addresses.iter().find_map(|address| ports_in_use(context, *address, &owner));
    match ports_in_use {
        Some(refusal) => Err(refusal),
        None => {
            Ok(Allocation { addresses, owner, from: format!("the own address of Node {}", names.join(", ")), remarks })
        }
    }
}

/// Restricts the addresses to mandatory ones; an unavailable preference becomes a remark.
fn restrict(
    addresses: &mut Vec<IpAddr>,
    requested: &RequestedAddresses,
    names: &[&str],
) -> Result<Vec<(&'static str, String)>, Refusal> {
    let missing = requested.addresses.iter().find(|address| !addresses.contains(address));
    match missing {
        Some(address) => {
            let why = format!("{address} is no address of Node {}", names.join(", "));
            if requested.is_binding {
                return Err(Refusal::new(
                    "AddressRefused",
                    format!("{why}; a pool could have it: kubectl explain ippool.spec"),
                ));
            }
            Ok(vec![("LoadBalancerIPIgnored", format!("{why}; it gets another address"))])
        }
        None => {
            if requested.is_binding {
                addresses.retain(|address| requested.addresses.contains(address));
            }
            Ok(Vec::new())
        }
    }
}

/// The nodes that serve a Service.
fn serving<'a>(context: &'a AllocationContext<'_>) -> Vec<&'a Arc<Node>> {
    let (cache, request) = (context.view.cache, context.request);
    if !request.is_proxied() {
        let held = |node: &&Arc<Node>| {
            [Family::V4, Family::V6]
                .into_iter()
                .any(|family| address(node, family).is_some_and(|one| context.held.contains(&one)))
        };
        let keeps: Vec<_> = cache.nodes.iter().filter(held).collect();
        return if keeps.is_empty() { cache.nodes.iter().collect() } else { keeps };
    }
    let near = request.local.then(|| with_endpoints(context));
    let takes = |node: &&Arc<Node>| {
        node.ready
            && node.entry.facts.label(EXCLUDE_FROM_LOAD_BALANCERS).is_none()
            && near.as_ref().is_none_or(|near| near.contains(node.name()))
    };
    cache.nodes.iter().filter(takes).collect()
}

/// The nodes with ready endpoints.
fn with_endpoints(context: &AllocationContext<'_>) -> BTreeSet<Box<str>> {
    let slices = context.view.cache.slices.of(context.request.key()).map(Slice::read);
    slices
        .flat_map(|slice| slice.endpoints)
        .filter(|endpoint| endpoint.conditions.is_ready())
        .filter_map(|endpoint| endpoint.node_name)
        .collect()
}

/// The address of a node that is reachable from outside, if it has one.
fn address(node: &Node, family: Family) -> Option<IpAddr> {
    let reached = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    let all = node.ips("ExternalIP").chain(node.ips("InternalIP"));
    all.filter(reached).find(|address| Family::of(*address) == family)
}

/// The conflict for a port of the Service, if any.
fn ports_in_use(context: &AllocationContext<'_>, address: IpAddr, owner: &Owner) -> Option<Refusal> {
    let (view, request) = (context.view, context.request);
    let claim = view.cache.load_balancers.claim(address);
    if let Some(why) = claim.and_then(|claim| claim.refusal(owner)) {
        return Some(Refusal::new(
            "PortInUse",
            format!(
                "{address} {why}; choose another port: kubectl edit service -n {} {}",
                request.names().0,
                request.names().1
            ),
        ));
    }
    let mine = claim.and_then(|claim| claim.owners.iter().find(|owner| owner.uid == request.uid));
    for (protocol, port) in &request.ports {
        if let Some(owner) = view.store.get(&port_key(*port)).and_then(|entry| port_owner(&entry.value))
            && owner != request.key()
        {
            let message = format!("port {port} of {address} is a node port of Service {owner}; choose another port");
            return Some(Refusal::new("PortInUse", message));
        }
        let has_it = mine.is_some_and(|owner| owner.ports.contains(format!("{protocol}/{port}").as_str()));
        if !has_it && view.settings.load_balancer.ports_in_use.has(protocol, *port) {
            let flag = if &**protocol == "UDP" { "u" } else { "t" };
            let message = format!(
                "a program of this machine has port {port} ({protocol}), so {address} cannot serve it; see which: ss -l{flag}np 'sport = :{port}'"
            );
            return Some(Refusal { requeue_after: Some(PORT_AGAIN), ..Refusal::new("PortInUse", message) });
        }
    }
    None
}
