//! Who announces the address of a load balancer, and why nobody does.

use std::net::IpAddr;

use announce::who::Said;

use super::super::evidence::Evidence;
use super::super::verdict::Judged;

/// Whether somebody tells the network where packets to its addresses should go.
pub(super) fn announced(evidence: &Evidence<'_>) -> Judged {
    if evidence.kind() != "LoadBalancer" {
        return Judged::proved("it asks for no load balancer");
    }
    let ips = evidence.balancer_ips();
    if ips.is_empty() {
        return Judged::moot("it has no address of a load balancer that could be announced");
    }
    let Some(known) = &evidence.cluster.announced else {
        return Judged::unknown(
            "who answers for an address is in Leases of kube-system, which could not be read",
            "use the kubeconfig of a user who may read Leases",
        );
    };
    let key = format!("{}/{}", evidence.namespace, evidence.name);
    let all: Vec<(IpAddr, Said)> = ips.into_iter().map(|ip| (ip, known.who(&key, ip))).collect();
    let nobody = all.iter().find_map(|(ip, said)| match said {
        Said::Nobody { why, fix } => Some(Judged::disproved(format!("nobody announces {ip}: {why}"), fix)),
        _ => None,
    });
    let unknown = all.iter().find_map(|(ip, said)| match said {
        Said::Unknown { why, how } => Some(Judged::unknown(format!("{ip}: {why}"), how)),
        _ => None,
    });
    let words = |(ip, said): &(IpAddr, Said)| match said {
        Said::Announced { how, node } => format!("{ip}: {how}{}", foreign(evidence, *ip, node.as_deref())),
        Said::NotOurs(why) | Said::Nobody { why, .. } | Said::Unknown { why, .. } => format!("{ip}: {why}"),
    };
    let proved = || Judged::proved(all.iter().map(words).collect::<Vec<_>>().join("; "));
    nobody.or(unknown).unwrap_or_else(proved)
}

/// What follows when this node answers for an address that is in no network of its interfaces: only who has a route asks for it.
fn foreign(evidence: &Evidence<'_>, ip: IpAddr, node: Option<&str>) -> String {
    let (here, networks) = (evidence.here.node.as_deref(), &evidence.here.networks);
    if here.ok() != node || networks.is_empty() || networks.iter().any(|network| network.contains(&ip)) {
        return String::new();
    }
    ", which has no interface in a network with it: clients need a route that leads to this wire".to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use announce::inputs::Lists;
    use announce::lease::{Key, Lease};
    use api::value::ValueExt as _;
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved, unknown};
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
    fn who_answers_is_proved_and_silence_is_the_verdict() {
        let mut world = world();
        let saw = proved(world.judge("default", "web", announced));
        assert_eq!(saw, format!("{IP}: node n1 answers neighbours for it by ARP since 1970-01-01T00:00:00Z"));
        world.here.networks = vec!["192.0.2.0/24".parse().expect("a network")];
        assert!(proved(world.judge("default", "web", announced)).contains("has no interface in a network with it"));
        world.here.networks.push("203.0.113.0/24".parse().expect("a network"));
        assert!(!proved(world.judge("default", "web", announced)).contains("no interface"));
        world.cluster.announced.as_mut().expect("Leases").living.clear();
        let (saw, fix) = disproved(world.judge("default", "web", announced));
        assert!(saw.starts_with(&format!("nobody announces {IP}: node n1 has the Lease")), "{saw}");
        assert_eq!(fix, "kubectl describe node n1");
    }

    #[test]
    fn without_leases_nothing_is_said_and_without_an_address_there_is_nothing_to_say() {
        let mut world = world();
        world.cluster.announced = None;
        unknown(world.judge("default", "web", announced));
        world.cluster.services[0].put("status", json!({}));
        moot(world.judge("default", "web", announced));
        world.cluster.services[0].put("spec.type", "ClusterIP");
        proved(world.judge("default", "web", announced));
    }
}
