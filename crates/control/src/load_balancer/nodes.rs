//! The nodes' own addresses as those of a load balancer: what a laptop needs, and what the class `waypost.dev/proxy` asks for.
//!
//! In: Nodes, the ports of the Service, and who has which port. Out: addresses, or the port that somebody else has. An address of a machine
//! is shared by everything on it, so a Service gets it for its own ports and nothing more: not those of another such Service, not a node
//! port, and not the port of a program.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ip::Family;
use api::view::labels::EXCLUDE_FROM_LOAD_BALANCERS;
use store::allocation::{port_key, port_owner};

use super::asked::Asked;
use super::choose::{Around, Given, Refusal};
use super::claim::Owner;
use crate::controller::View;
use crate::objects::node::Node;
use crate::objects::slice::Slice;

/// How often a port that a program has is looked at again.
const PORT_AGAIN: Duration = Duration::from_secs(5);

/// Whether a Service gets nodes' own addresses without asking: there is no pool and one node. What it got that way it keeps when more nodes
/// come.
pub(super) fn is_enough(around: &Around<'_>, internal: Option<&str>) -> bool {
    let request = around.request;
    let asks_for_more = request.class.is_some()
        || internal.is_some()
        || super::annotations::pool(&request.annotations).is_some()
        || !around.pools.is_empty();
    let own = own_addresses(around.view);
    let has_one = around.held.iter().any(|address| own.contains(address));
    !asks_for_more && (has_one || around.view.world.nodes.iter().count() == 1)
}

/// Every address that a Node has as its own.
pub(super) fn own_addresses(view: &View<'_>) -> BTreeSet<IpAddr> {
    let nodes = view.world.nodes.iter();
    nodes.flat_map(|node| node.ips("InternalIP").chain(node.ips("ExternalIP"))).collect()
}

/// The addresses of the nodes.
pub(super) fn choose(around: &Around<'_>, asked: &Asked) -> Result<Given, Refusal> {
    let nodes = serving(around);
    let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
    if nodes.is_empty() {
        let message = "no Node is ready to take traffic from outside for this Service; look: kubectl get nodes";
        return Err(Refusal::new("NoNode", message));
    }
    let mut found: BTreeMap<Family, Vec<IpAddr>> = BTreeMap::new();
    for family in &asked.families {
        let here: Vec<IpAddr> = nodes.iter().filter_map(|node| address(node, *family)).collect();
        if !here.is_empty() {
            found.insert(*family, here);
        } else if asked.needs_all {
            let message = format!(
                "Node {} has no {} address that others reach; look: kubectl get nodes -o wide",
                names.join(", "),
                family.as_str()
            );
            return Err(Refusal::new("NoFamily", message));
        }
    }
    let mut addresses: Vec<IpAddr> =
        asked.families.iter().filter_map(|family| found.get(family)).flatten().copied().collect();
    if addresses.is_empty() {
        return Err(Refusal::new(
            "NoFamily",
            "no Node has an address of the Service's families; look: kubectl get nodes -o wide",
        ));
    }
    let mut remarks = asked.remarks.clone();
    remarks.extend(restrict(&mut addresses, asked, &names)?);
    let owner = Owner { of_node: true, sharing: Box::default(), backend: Box::default(), ..around.me.clone() };
    let taken = addresses.iter().find_map(|address| taken(around, *address, &owner));
    match taken {
        Some(refusal) => Err(refusal),
        None => Ok(Given { addresses, owner, from: format!("the own address of Node {}", names.join(", ")), remarks }),
    }
}

/// Leaves what was asked for; a wish that cannot be had is only remarked on.
fn restrict(
    addresses: &mut Vec<IpAddr>,
    asked: &Asked,
    names: &[&str],
) -> Result<Vec<(&'static str, String)>, Refusal> {
    let missing = asked.addresses.iter().find(|address| !addresses.contains(address));
    match missing {
        Some(address) => {
            let why = format!("{address} is no address of Node {}", names.join(", "));
            if asked.is_binding {
                return Err(Refusal::new(
                    "AddressRefused",
                    format!("{why}; a pool could have it: kubectl explain ippool.spec"),
                ));
            }
            Ok(vec![("LoadBalancerIPIgnored", format!("{why}; it gets another address"))])
        }
        None => {
            if asked.is_binding {
                addresses.retain(|address| asked.addresses.contains(address));
            }
            Ok(Vec::new())
        }
    }
}

/// The nodes that take traffic for a Service.
fn serving<'a>(around: &'a Around<'_>) -> Vec<&'a Arc<Node>> {
    let (world, request) = (around.view.world, around.request);
    if !request.is_proxied() {
        let held = |node: &&Arc<Node>| {
            [Family::V4, Family::V6]
                .into_iter()
                .any(|family| address(node, family).is_some_and(|one| around.held.contains(&one)))
        };
        let keeps: Vec<_> = world.nodes.iter().filter(held).collect();
        return if keeps.is_empty() { world.nodes.iter().collect() } else { keeps };
    }
    let near = request.local.then(|| with_endpoints(around));
    let takes = |node: &&Arc<Node>| {
        node.ready
            && node.entry.facts.label(EXCLUDE_FROM_LOAD_BALANCERS).is_none()
            && near.as_ref().is_none_or(|near| near.contains(node.name()))
    };
    world.nodes.iter().filter(takes).collect()
}

/// The nodes that have endpoints which take new connections.
fn with_endpoints(around: &Around<'_>) -> BTreeSet<Box<str>> {
    let slices = around.view.world.slices.of(around.request.key()).map(Slice::read);
    slices
        .flat_map(|slice| slice.endpoints)
        .filter(|endpoint| endpoint.conditions.is_ready())
        .filter_map(|endpoint| endpoint.node_name)
        .collect()
}

/// The address of a node by which the world outside reaches it. A machine without a network has none.
fn address(node: &Node, family: Family) -> Option<IpAddr> {
    let reached = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    let all = node.ips("ExternalIP").chain(node.ips("InternalIP"));
    all.filter(reached).find(|address| Family::of(*address) == family)
}

/// Who has a port that the Service needs.
fn taken(around: &Around<'_>, address: IpAddr, me: &Owner) -> Option<Refusal> {
    let (view, request) = (around.view, around.request);
    let claim = view.world.load_balancers.claim(address);
    if let Some(why) = claim.and_then(|claim| claim.refusal(me)) {
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
        if !has_it && view.settings.load_balancer.taken.has(protocol, *port) {
            let flag = if &**protocol == "UDP" { "u" } else { "t" };
            let message = format!(
                "a program of this machine has port {port} ({protocol}), so {address} cannot serve it; see which: ss -l{flag}np 'sport = :{port}'"
            );
            return Some(Refusal { again: Some(PORT_AGAIN), ..Refusal::new("PortInUse", message) });
        }
    }
    None
}
