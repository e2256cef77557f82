//! The address of the load balancer.

use api::value::ValueExt as _;

use super::super::evidence::Evidence;
use super::super::format::listed;
use super::super::verdict::CheckResult;

/// Whether a Service of type LoadBalancer has an address.
pub(super) fn assigned(evidence: &Evidence<'_>) -> CheckResult {
    let Some(service) = evidence.service().filter(|_| evidence.kind() == "LoadBalancer") else {
        return CheckResult::passed("its type is not LoadBalancer");
    };
    let ips: Vec<String> = evidence.balancer_ips().iter().map(ToString::to_string).collect();
    if !service.items("status.loadBalancer.ingress").is_empty() {
        return CheckResult::passed(if ips.is_empty() { "it has a host name".to_owned() } else { listed(&ips) });
    }
    evidence.found("balancer").map_or_else(|| CheckResult::passed("it has an address"), CheckResult::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, passed};
    use super::*;

    fn fixture(spec: serde_json::Value, status: serde_json::Value) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", spec);
        fixture.cluster.services[0].put("status", status);
        fixture
    }

    #[test]
    fn a_pending_load_balancer_says_why_and_what_to_type() {
        let balancer = || json!({"type": "LoadBalancer", "clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
        let told = |message: &str| json!({"conditions": [{"type": "LoadBalancerReady", "status": "False", "message": message}]});
        let (saw, fix) = failed(
            fixture(balancer(), told("no address is free in pool a; add addresses: kubectl edit ippool a"))
                .check("default", "web", assigned),
        );
        assert!(saw.contains("pool a"), "{saw}");
        assert_eq!(fix, "kubectl edit ippool a");
        let (_, fix) =
            failed(fixture(balancer(), told("annotation x: y is no address")).check("default", "web", assigned));
        assert!(fix.starts_with("kubectl edit service web"), "{fix}");
        let (saw, _) = failed(fixture(balancer(), json!({})).check("default", "web", assigned));
        assert!(saw.starts_with("no load balancer has answered yet; cluster IP 10.96.0.5 works"), "{saw}");
        let mut foreign = balancer();
        foreign.put("loadBalancerClass", "example.com/lb");
        let (saw, _) = failed(fixture(foreign, json!({})).check("default", "web", assigned));
        assert!(saw.starts_with("no controller has answered for loadBalancerClass example.com/lb"), "{saw}");
        passed(fixture(json!({"ports": [{"port": 80}]}), json!({})).check("default", "web", assigned));
        let given = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        passed(fixture(balancer(), given).check("default", "web", assigned));
    }
}
