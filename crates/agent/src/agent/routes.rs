//! Which ranges of other Nodes are routed to them. Pure: Nodes and limits go in, routes and refusals come out.
//!
//! A Node says itself where it is, and may have said which Pods it has; a range that is routed draws every packet for it to that machine. So a
//! claim counts only inside the ranges of the cluster's Pods, where no Service and no address of this machine is, and only when no Node before it has
//! a part of it. "Before" is the older creation time, which the server writes and a Node cannot choose; then the name. To refuse both of two
//! Nodes would let anybody cut another one off; the younger one is who came to what was taken. This machine's own range comes before all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::value::ValueExt as _;
use ipnet::IpNet;
use kernel::pod_network::Route;
use serde_json::Value;

/// What is known of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) ranges: Vec<IpNet>,
    pub(super) addresses: Vec<IpAddr>,
    /// When it was made, in the words of the server, which sort as times do.
    pub(super) created: String,
}

impl Place {
    pub(super) fn read(node: &Value) -> Self {
        let mut ranges: Vec<IpNet> =
            node.texts("spec.podCIDRs").into_iter().filter_map(|range| range.parse().ok()).collect();
        if ranges.is_empty() {
            ranges.extend(node.text("spec.podCIDR").parse::<IpNet>().ok());
        }
        let internal = node.items("status.addresses").iter().filter(|address| address.text("type") == "InternalIP");
        let addresses = internal.filter_map(|address| address.text("address").parse().ok()).collect();
        Self { ranges, addresses, created: node.text("metadata.creationTimestamp").to_owned() }
    }
}

/// What a range must keep to.
pub(super) struct Limits<'a> {
    /// The name of this machine's Node.
    pub(super) own: &'a str,
    /// Ranges of all Pods (`--cluster-cidr`).
    pub(super) cluster: &'a [IpNet],
    /// Ranges of Services.
    pub(super) services: &'a [IpNet],
    /// Addresses of this machine.
    pub(super) host: &'a [IpAddr],
}

/// A range that is not routed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refusal {
    pub(super) node: String,
    pub(super) range: IpNet,
    pub(super) why: String,
}

/// Routes to the Pods of other Nodes, by their addresses of the same family; and what is not routed.
pub(super) fn routes(nodes: &BTreeMap<String, Place>, limits: &Limits<'_>) -> (BTreeSet<Route>, BTreeSet<Refusal>) {
    let mut order: Vec<(&String, &Place)> = nodes.iter().collect();
    order.sort_by_key(|(name, place)| (*name != limits.own, &place.created, *name));
    let (mut routes, mut refusals) = (BTreeSet::new(), BTreeSet::new());
    let mut taken: Vec<(IpNet, &str)> = Vec::new();
    for (name, place) in order {
        for range in place.ranges.iter().map(IpNet::trunc) {
            if name == limits.own {
                taken.push((range, name));
                continue;
            }
            if let Err(why) = check(range, name, &taken, limits) {
                refusals.insert(Refusal { node: name.clone(), range, why });
                continue;
            }
            taken.push((range, name));
            let same = |ip: &&IpAddr| ip.is_ipv4() == range.addr().is_ipv4();
            routes.extend(place.addresses.iter().find(same).map(|via| Route { to: range, via: *via }));
        }
    }
    (routes, refusals)
}

fn check(range: IpNet, name: &str, taken: &[(IpNet, &str)], limits: &Limits<'_>) -> Result<(), String> {
    if !limits.cluster.iter().any(|all| all.contains(&range)) {
        return Err("it is not inside --cluster-cidr of this machine".to_owned());
    }
    if let Some(services) = limits.services.iter().find(|services| overlap(**services, range)) {
        return Err(format!("it overlaps the Service range {services}"));
    }
    if let Some(ip) = limits.host.iter().find(|ip| range.contains(*ip)) {
        return Err(format!("the address {ip} of this machine is inside"));
    }
    match taken.iter().find(|(other, owner)| *owner != name && overlap(*other, range)) {
        Some((other, owner)) => Err(format!("it overlaps {other} of the older node {owner}")),
        None => Ok(()),
    }
}

fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(created: &str, ranges: &[&str], addresses: &[&str]) -> Place {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let metadata = json!({"creationTimestamp": format!("2026-01-01T00:00:{created}Z")});
        Place::read(&json!({"metadata": metadata, "spec": {"podCIDRs": ranges}, "status": {"addresses": addresses}}))
    }

    fn all(nodes: &[(&str, Place)]) -> (Vec<String>, Vec<String>) {
        let nodes = nodes.iter().map(|(name, place)| ((*name).to_owned(), place.clone())).collect();
        let net = |text: &str| text.parse::<IpNet>().expect("a range");
        let limits = Limits {
            own: "a",
            cluster: &["10.244.0.0/16", "fd00::/48"].map(net),
            services: &["10.244.240.0/20"].map(net),
            host: &["192.0.2.1", "10.244.77.7"].map(|ip| ip.parse().expect("an address")),
        };
        let (routes, refusals) = routes(&nodes, &limits);
        let shown = |refusal: &Refusal| format!("{} {}: {}", refusal.node, refusal.range, refusal.why);
        (
            routes.iter().map(|route| format!("{} {}", route.to, route.via)).collect(),
            refusals.iter().map(shown).collect(),
        )
    }

    #[test]
    fn pods_elsewhere_are_behind_their_nodes() {
        let (routes, refusals) = all(&[
            ("a", node("00", &["10.244.0.0/24"], &["192.0.2.1"])),
            ("b", node("01", &["10.244.1.0/24", "fd00:0:0:1::/64"], &["192.0.2.2", "2001:db8::2"])),
            ("c", node("02", &["10.244.2.0/24", "fd00:0:0:2::/64"], &["192.0.2.3"])),
        ]);
        assert_eq!(routes, ["10.244.1.0/24 192.0.2.2", "10.244.2.0/24 192.0.2.3", "fd00:0:0:1::/64 2001:db8::2"]);
        assert_eq!(refusals, Vec::<String>::new());
    }

    #[test]
    fn a_node_that_claims_what_is_not_for_pods_is_not_routed() {
        let evil = |range: &str| {
            let (routes, refusals) = all(&[
                ("a", node("05", &["10.244.0.0/24"], &["192.0.2.1"])),
                ("evil", node("00", &[range], &["192.0.2.9", "2001:db8::9"])),
            ]);
            assert_eq!((routes.len(), refusals.len()), (0, 1), "{range}: {routes:?}");
            refusals.concat()
        };
        for range in ["0.0.0.0/1", "10.0.0.0/8", "192.0.2.0/24", "10.245.0.0/24", "::/0", "fd00::/40", "8.8.8.8/32"] {
            assert!(evil(range).contains("--cluster-cidr"), "{range}");
        }
        assert!(evil("10.244.241.0/24").contains("the Service range 10.244.240.0/20"));
        assert!(evil("10.244.77.0/24").contains("address 10.244.77.7 of this machine"));
        // Also one that is older than this machine gets nothing of its range, be it a part or more than all.
        for range in ["10.244.0.0/24", "10.244.0.128/25", "10.244.0.0/22"] {
            assert!(evil(range).contains("overlaps 10.244.0.0/24"), "{range}");
        }
    }

    #[test]
    fn of_two_that_claim_the_same_the_older_one_is_routed_whatever_their_names() {
        let ours = ("a", node("00", &["10.244.0.0/24"], &["192.0.2.1"]));
        for (victim, evil) in [("b", "z"), ("z", "b")] {
            let (routes, refusals) = all(&[
                ours.clone(),
                (evil, node("09", &["10.244.1.0/25", "fd00:0:0:9::/64"], &["192.0.2.9", "2001:db8::9"])),
                (victim, node("01", &["10.244.1.0/24"], &["192.0.2.2"])),
            ]);
            assert_eq!(routes, ["10.244.1.0/24 192.0.2.2", "fd00:0:0:9::/64 2001:db8::9"]);
            assert_eq!(
                refusals,
                [format!("{evil} 10.244.1.0/25: it overlaps 10.244.1.0/24 of the older node {victim}")]
            );
        }
        let (routes, _) = all(&[
            ours,
            ("c", node("01", &["10.244.1.0/24"], &["192.0.2.3"])),
            ("b", node("01", &["10.244.1.0/24"], &["192.0.2.2"])),
        ]);
        assert_eq!(routes, ["10.244.1.0/24 192.0.2.2"], "the same time: the first by name");
    }
}
