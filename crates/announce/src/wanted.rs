//! Which addresses are announced, how, and by which candidate nodes.
//!
//! In: [`Objects`]. Out: a [`Wanted`] for each address. Pure: every node computes the same result from the same objects, so
//! that only the election among candidates needs coordination.
//!
//! - Addresses are those in the status of Services of type LoadBalancer with `ipMode` VIP.
//! - Class `waypost.dev/l2` is announced by layer 2, `waypost.dev/bgp` by BGP, others not at all; without a class, the
//!   IPPool of the address decides. An address in no pool may belong to a cloud and is not announced.
//! - An address of a Node is never announced.
//! - Candidates are Nodes that are ready and not excluded; with `externalTrafficPolicy: Local` those with a ready endpoint.
//!   With policy Cluster a Service without endpoints is announced, too: clients are rejected instead of timing out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::view::service::{CLASS_BGP, CLASS_L2};

use super::objects::{Node, Objects, Service, Slice};

/// An address to announce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The address.
    pub address: IpAddr,
    /// By layer 2.
    pub l2: bool,
    /// By BGP.
    pub bgp: bool,
    /// Candidate nodes.
    pub nodes: BTreeSet<Box<str>>,
    /// Services with this address: `namespace/name`, sorted.
    pub services: Vec<Box<str>>,
}

/// The addresses to announce. `own` is the name of this node, the only candidate of a cluster without Nodes (a single
/// machine that runs no Pods).
#[must_use]
pub fn wanted(objects: &Objects, own: &str) -> BTreeMap<IpAddr, Wanted> {
    let eligible = eligible(&objects.nodes, own);
    let taken: BTreeSet<IpAddr> = objects.nodes.values().flat_map(|node| node.addresses.iter().copied()).collect();
    let mut all: BTreeMap<IpAddr, Wanted> = BTreeMap::new();
    for (key, service) in &objects.services {
        if service.deleting {
            continue;
        }
        for address in service.addresses.iter().filter(|address| !taken.contains(address)) {
            let (l2, bgp) = ways(objects, service, *address);
            if !l2 && !bgp {
                continue;
            }
            let entry = all.entry(*address).or_insert_with(|| Wanted {
                address: *address,
                l2: false,
                bgp: false,
                nodes: BTreeSet::new(),
                services: Vec::new(),
            });
            entry.l2 |= l2;
            entry.bgp |= bgp;
            entry.services.push(key.clone());
            entry.nodes.extend(candidates(objects, key, service, *address, &eligible));
        }
    }
    all
}

/// How an address of a Service is announced: by layer 2, by BGP.
pub(super) fn ways(objects: &Objects, service: &Service, address: IpAddr) -> (bool, bool) {
    match service.class.as_deref() {
        Some(CLASS_L2) => (true, false),
        Some(CLASS_BGP) => (false, true),
        Some(_) => (false, false),
        None => {
            let pool = objects.pools.values().find(|pool| pool.ranges.iter().any(|range| range.contains(&address)));
            pool.map_or((false, false), |pool| (pool.l2, pool.bgp))
        }
    }
}

/// Nodes that may announce.
fn eligible(nodes: &BTreeMap<Box<str>, Node>, own: &str) -> BTreeSet<Box<str>> {
    if nodes.is_empty() {
        return BTreeSet::from([own.into()]);
    }
    nodes.iter().filter(|(_, node)| node.ready && !node.excluded).map(|(name, _)| name.clone()).collect()
}

/// Candidate nodes for an address of a Service.
fn candidates(
    objects: &Objects,
    key: &str,
    service: &Service,
    address: IpAddr,
    eligible: &BTreeSet<Box<str>>,
) -> BTreeSet<Box<str>> {
    if !service.local {
        return eligible.clone();
    }
    let slices = || objects.slices.get(key).into_iter().flat_map(BTreeMap::values);
    let fits = |slice: &&Slice| slice.is_ipv6 == address.is_ipv6();
    let ready: BTreeSet<Box<str>> = slices().filter(fits).flat_map(|slice| slice.ready.iter().cloned()).collect();
    // Without ready endpoints, terminating ones still serve.
    let serving = || slices().filter(fits).flat_map(|slice| slice.terminating.iter().cloned()).collect();
    let have = if ready.is_empty() { serving() } else { ready };
    have.intersection(eligible).cloned().collect()
}

#[cfg(test)]
mod tests;
