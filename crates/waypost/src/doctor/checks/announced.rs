//! The announcement of a load balancer's address: by which node, or why by none.

use std::net::IpAddr;

use announce::who::Said;

use super::super::evidence::Evidence;
use super::super::verdict::CheckResult;

/// Whether its addresses are announced.
pub(super) fn announced(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.kind() != "LoadBalancer" {
        return CheckResult::passed("its type is not LoadBalancer");
    }
    let ips = evidence.balancer_ips();
    if ips.is_empty() {
        return CheckResult::not_applicable("it has no load-balancer address");
    }
    let Some(known) = &evidence.cluster.announced else {
        return CheckResult::not_measured(
            "Leases of kube-system, which name the announcing node, could not be read",
            "use the kubeconfig of a user who may read Leases",
        );
    };
    let key = format!("{}/{}", evidence.namespace, evidence.name);
    let all: Vec<(IpAddr, Said)> = ips.into_iter().map(|ip| (ip, known.who(&key, ip))).collect();
    let nobody = all.iter().find_map(|(ip, said)| match said {
        Said::Nobody { why, fix } => {
            let prefix = format!("{ip} is not announced: ");
            let why = why.strip_prefix(&prefix).unwrap_or(why);
            Some(CheckResult::failed(format!("{prefix}{why}"), fix))
        }
        _ => None,
    });
    let unknown = all.iter().find_map(|(ip, said)| match said {
        Said::Unknown { why, how } => Some(CheckResult::not_measured(format!("{ip}: {why}"), how)),
        _ => None,
    });
    let words = |(ip, said): &(IpAddr, Said)| match said {
        Said::Announced { how, node } => format!("{ip}: {how}{}", foreign(evidence, *ip, node.as_deref())),
        Said::NotOurs(why) | Said::Nobody { why, .. } | Said::Unknown { why, .. } => format!("{ip}: {why}"),
    };
    let passed = || CheckResult::passed(all.iter().map(words).collect::<Vec<_>>().join("; "));
    nobody.or(unknown).unwrap_or_else(passed)
}

/// A remark when this node answers for an address that is in no network of its interfaces: only hosts with a route to it send ARP requests.
fn foreign(evidence: &Evidence<'_>, ip: IpAddr, node: Option<&str>) -> String {
    let (here, networks) = (evidence.here.node.as_deref(), &evidence.here.networks);
    if here.ok() != node || networks.is_empty() || networks.iter().any(|network| network.contains(&ip)) {
        return String::new();
    }
    ", which has no interface in its network: clients need a route to this link".to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use announce::inputs::Lists;
    use announce::lease::{Key, Lease};
    use api::value::ValueExt as _;
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::super::testing::{World, failed, not_applicable, not_measured, passed};
    use super::*;
    use crate::commands::announced::Announced;

    const IP: &str = "203.0.113.7";

    /// A load balancer that node n1 answers for.
    fn world() -> World {
        let mut world = World::new();
        world.service("default", "web", json!({"type": "LoadBalancer", "loadBalancerClass": "waypost.dev/l2"}));
        world.cluster.services[0].put("status", json!({"loadBalancer": {"ingress": [{"ip": IP}]}}));
        for node in &mut world.cluster.nodes {
            node.put("status.conditions", json!([{"type": "Ready", "status": "True"}]));
        }
        let own = Key::Node("n1".into());
        let lease = |key: &Key| {
            Lease { holder: "n1".into(), life: "a".into(), beat: 1 }.write(key, None, Timestamp::UNIX_EPOCH)
        };
        let lists = Lists {
            services: world.cluster.services.clone(),
            nodes: world.cluster.nodes.clone(),
            leases: vec![lease(&own), lease(&Key::Address(IP.parse().expect("an address")))],
            ..Lists::default()
        };
        let living = BTreeSet::from([own.name().into()]);
        world.cluster.announced = Some(Announced { lists, living, events: Vec::new() });
        world
    }

    #[test]
    fn the_announcing_node_is_shown_and_a_missing_one_fails() {
        let mut world = world();
        let saw = passed(world.check("default", "web", announced));
        assert_eq!(saw, format!("{IP}: node n1 answers neighbours for it by ARP since 1970-01-01T00:00:00Z"));
        world.here.networks = vec!["192.0.2.0/24".parse().expect("a network")];
        assert!(passed(world.check("default", "web", announced)).contains("has no interface in its network"));
        world.here.networks.push("203.0.113.0/24".parse().expect("a network"));
        assert!(!passed(world.check("default", "web", announced)).contains("no interface"));
        world.cluster.announced.as_mut().expect("Leases").living.clear();
        let (saw, fix) = failed(world.check("default", "web", announced));
        assert!(saw.starts_with(&format!("{IP} is not announced: node n1 has the Lease")), "{saw}");
        assert_eq!(fix, "kubectl describe node n1");
    }

    #[test]
    fn without_leases_nothing_is_said_and_without_an_address_there_is_nothing_to_say() {
        let mut world = world();
        world.cluster.announced = None;
        not_measured(world.check("default", "web", announced));
        world.cluster.services[0].put("status", json!({}));
        not_applicable(world.check("default", "web", announced));
        world.cluster.services[0].put("spec.type", "ClusterIP");
        passed(world.check("default", "web", announced));
    }
}
