//! The load balancer: whether a Service that wants one has an address, and why not.

use api::value::ValueExt as _;

use super::super::evidence::Evidence;
use super::super::verdict::Judged;
use super::super::words::listed;

/// Whether it has the address that it asks for.
pub(super) fn assigned(evidence: &Evidence<'_>) -> Judged {
    let Some(service) = evidence.service().filter(|_| evidence.kind() == "LoadBalancer") else {
        return Judged::proved("it asks for no load balancer");
    };
    let ips: Vec<String> = evidence.balancer_ips().iter().map(ToString::to_string).collect();
    if !service.items("status.loadBalancer.ingress").is_empty() {
        return Judged::proved(if ips.is_empty() { "it has a name".to_owned() } else { listed(&ips) });
    }
    evidence.found("balancer").map_or_else(|| Judged::proved("it has an address"), Judged::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, proved};
    use super::*;

    fn world(spec: serde_json::Value, status: serde_json::Value) -> World {
        let mut world = World::new();
        world.service("default", "web", spec);
        world.cluster.services[0].put("status", status);
        world
    }

    #[test]
    fn a_pending_load_balancer_says_why_and_what_to_type() {
        let balancer = || json!({"type": "LoadBalancer", "clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
        let told = |message: &str| json!({"conditions": [{"type": "LoadBalancerReady", "status": "False", "message": message}]});
        let (saw, fix) = disproved(
            world(balancer(), told("no address is free in pool a; add addresses: kubectl edit ippool a"))
                .judge("default", "web", assigned),
        );
        assert!(saw.contains("pool a"), "{saw}");
        assert_eq!(fix, "kubectl edit ippool a");
        let (_, fix) =
            disproved(world(balancer(), told("annotation x: y is no address")).judge("default", "web", assigned));
        assert!(fix.starts_with("kubectl edit service web"), "{fix}");
        let (saw, _) = disproved(world(balancer(), json!({})).judge("default", "web", assigned));
        assert!(saw.starts_with("no load balancer has answered yet; cluster IP 10.96.0.5 works"), "{saw}");
        let mut foreign = balancer();
        foreign.put("loadBalancerClass", "example.com/lb");
        let (saw, _) = disproved(world(foreign, json!({})).judge("default", "web", assigned));
        assert!(saw.starts_with("no controller has answered for loadBalancerClass example.com/lb"), "{saw}");
        proved(world(json!({"ports": [{"port": 80}]}), json!({})).judge("default", "web", assigned));
        let given = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        proved(world(balancer(), given).judge("default", "web", assigned));
    }
}
