//! Which Pod CIDRs of other nodes are routed to them. Pure: Nodes and limits go in, routes and refusals come out.
//!
//! A Node writes its own addresses, and may have written its Pod CIDRs; a route sends all traffic of a CIDR to that node. A CIDR is therefore
//! accepted only inside the cluster's Pod CIDRs, where it overlaps no Service CIDR, no address of this node and no Pod CIDR of an earlier Node.
//! Nodes are ordered by creation time, which the server sets and a Node cannot choose, then by name. Refusing both of two overlapping Nodes would
//! let a new Node cut off an old one, so the older one wins. The CIDRs of this node come first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::value::ValueExt as _;
use ipnet::IpNet;
use kernel::pod_network::Route;
use serde_json::Value;

/// The fields of a Node that routing needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeInfo {
    pub(super) ranges: Vec<IpNet>,
    pub(super) addresses: Vec<IpAddr>,
    /// The creation timestamp as text, which sorts by time.
    pub(super) created: String,
}

impl NodeInfo {
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

/// Constraints on Pod CIDRs.
pub(super) struct Limits<'a> {
    /// The name of this node.
    pub(super) own: &'a str,
    /// Pod CIDRs of the cluster (`--cluster-cidr`).
    pub(super) cluster: &'a [IpNet],
    /// Service CIDRs.
    pub(super) services: &'a [IpNet],
    /// Addresses of this node.
    pub(super) host: &'a [IpAddr],
}

/// A Pod CIDR that is not routed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refusal {
    pub(super) node: String,
    pub(super) range: IpNet,
    pub(super) why: RefusalReason,
}

/// Why a Pod CIDR is not routed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum RefusalReason {
    #[error("it is not inside --cluster-cidr of this machine")]
    OutsideCluster,
    #[error("it overlaps the Service range {0}")]
    ServiceRange(IpNet),
    #[error("the address {0} of this machine is inside")]
    HostAddress(IpAddr),
    #[error("it overlaps {0} of the older node {1}")]
    OlderNode(IpNet, String),
}

/// Routes to the Pods of other nodes via their addresses of the same family, and the refused CIDRs.
pub(super) fn routes(nodes: &BTreeMap<String, NodeInfo>, limits: &Limits<'_>) -> (BTreeSet<Route>, BTreeSet<Refusal>) {
    let mut order: Vec<(&String, &NodeInfo)> = nodes.iter().collect();
    order.sort_by_key(|(name, info)| (*name != limits.own, &info.created, *name));
    let (mut routes, mut refusals) = (BTreeSet::new(), BTreeSet::new());
    let mut taken: Vec<(IpNet, &str)> = Vec::new();
    for (name, info) in order {
        for range in info.ranges.iter().map(IpNet::trunc) {
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
            routes.extend(info.addresses.iter().find(same).map(|via| Route { to: range, via: *via }));
        }
    }
    (routes, refusals)
}

fn check(range: IpNet, name: &str, taken: &[(IpNet, &str)], limits: &Limits<'_>) -> Result<(), RefusalReason> {
    if !limits.cluster.iter().any(|all| all.contains(&range)) {
        return Err(RefusalReason::OutsideCluster);
    }
    if let Some(services) = limits.services.iter().find(|services| overlap(**services, range)) {
        return Err(RefusalReason::ServiceRange(*services));
    }
    if let Some(ip) = limits.host.iter().find(|ip| range.contains(*ip)) {
        return Err(RefusalReason::HostAddress(*ip));
    }
    match taken.iter().find(|(other, owner)| *owner != name && overlap(*other, range)) {
        Some((other, owner)) => Err(RefusalReason::OlderNode(*other, (*owner).to_owned())),
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

    fn node(created: &str, ranges: &[&str], addresses: &[&str]) -> NodeInfo {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let metadata = json!({"creationTimestamp": format!("2026-01-01T00:00:{created}Z")});
        NodeInfo::read(&json!({"metadata": metadata, "spec": {"podCIDRs": ranges}, "status": {"addresses": addresses}}))
    }

    fn all(nodes: &[(&str, NodeInfo)]) -> (Vec<String>, Vec<String>) {
        let nodes = nodes.iter().map(|(name, info)| ((*name).to_owned(), info.clone())).collect();
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
    fn pods_of_other_nodes_are_routed_via_their_node() {
        let (routes, refusals) = all(&[
            ("a", node("00", &["10.244.0.0/24"], &["192.0.2.1"])),
            ("b", node("01", &["10.244.1.0/24", "fd00:0:0:1::/64"], &["192.0.2.2", "2001:db8::2"])),
            ("c", node("02", &["10.244.2.0/24", "fd00:0:0:2::/64"], &["192.0.2.3"])),
        ]);
        assert_eq!(routes, ["10.244.1.0/24 192.0.2.2", "10.244.2.0/24 192.0.2.3", "fd00:0:0:1::/64 2001:db8::2"]);
        assert_eq!(refusals, Vec::<String>::new());
    }

    #[test]
    fn a_pod_cidr_outside_the_cluster_cidr_is_refused() {
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
        // An older node gets no part of this node's CIDR either.
        for range in ["10.244.0.0/24", "10.244.0.128/25", "10.244.0.0/22"] {
            assert!(evil(range).contains("overlaps 10.244.0.0/24"), "{range}");
        }
    }

    #[test]
    fn of_overlapping_pod_cidrs_the_older_node_wins() {
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
        assert_eq!(routes, ["10.244.1.0/24 192.0.2.2"], "same creation time: the first by name");
    }
}
