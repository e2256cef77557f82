//! Policies: traffic that must stay on its node, and sources that may use a load balancer.

use std::net::IpAddr;

use api::value::ValueExt as _;
use ipnet::IpNet;
use serde_json::json;

use super::super::evidence::Evidence;
use super::super::format::listed;
use super::super::verdict::CheckResult;

/// Whether a Service with policy Local has endpoints on this node.
pub(super) fn local(evidence: &Evidence<'_>) -> CheckResult {
    let spec = evidence.spec();
    let inside = spec.text("internalTrafficPolicy") == "Local";
    let has_outside = ["NodePort", "LoadBalancer"].contains(&evidence.kind()) || !spec.items("externalIPs").is_empty();
    let outside = has_outside && spec.text("externalTrafficPolicy") == "Local";
    if !inside && !outside {
        return CheckResult::passed("traffic may go to endpoints of any node");
    }
    let ready = evidence.ready();
    if ready.is_empty() {
        return CheckResult::not_applicable("there is no ready endpoint on any node");
    }
    let node = match &evidence.machine.node {
        Ok(node) => node,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let here = ready.iter().filter(|endpoint| endpoint.node == **node).count();
    if here > 0 {
        return CheckResult::passed(format!("{here} ready on this node, {node}"));
    }
    let mut nodes: Vec<&str> = ready.iter().map(|endpoint| &*endpoint.node).filter(|node| !node.is_empty()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let elsewhere = if nodes.is_empty() { "on unknown nodes".to_owned() } else { format!("on {}", listed(&nodes)) };
    let (field, whose) = match inside {
        true => ("internalTrafficPolicy", "inside"),
        false => ("externalTrafficPolicy", "outside"),
    };
    // Load balancers probe the health check of each node: external traffic should not arrive here.
    if !inside && evidence.kind() == "LoadBalancer" {
        return CheckResult::passed(format!(
            "none on this node, {node}; the health check tells load balancers to use other nodes"
        ));
    }
    CheckResult::failed(
        format!(
            "{field} is Local, and this node, {node}, has no ready endpoint (they are {elsewhere}): traffic from {whose} is dropped here"
        ),
        evidence.typed().patch(&json!({"spec": {field: "Cluster"}})),
    )
}

/// Whether the client may use the load balancer.
pub(super) fn sources(evidence: &Evidence<'_>) -> CheckResult {
    let written = evidence.spec().texts("loadBalancerSourceRanges");
    if evidence.kind() != "LoadBalancer" || written.is_empty() {
        return CheckResult::passed("open to every source");
    }
    let ranges: Vec<IpNet> = written.iter().filter_map(|text| text.trim().parse().ok()).collect();
    let ips = evidence.balancer_ips();
    if ips.is_empty() {
        return CheckResult::not_applicable("it has no load-balancer address yet, so the ranges have no effect");
    }
    let add = |extra: String| {
        let all: Vec<String> = written.iter().map(|text| (*text).to_owned()).chain([extra]).collect();
        evidence.typed().patch(&json!({"spec": {"loadBalancerSourceRanges": all}}))
    };
    if let Some(finding) = evidence.found("sources") {
        return finding.into();
    }
    let (who, asking): (String, Vec<IpAddr>) = match evidence.machine.from {
        Some(from) => (from.to_string(), vec![from]),
        None => ("this node".to_owned(), evidence.node_ips()),
    };
    let out = asking.iter().find(|ip| {
        ips.iter().any(|at| at.is_ipv4() == ip.is_ipv4()) && !ranges.iter().any(|range| range.contains(*ip))
    });
    match out {
        Some(ip) => CheckResult::failed(
            format!(
                "{ip} ({who}) is in none of {}: what it sends to {} is dropped (to check another client, use --from)",
                listed(&written),
                listed(&ips.iter().map(ToString::to_string).collect::<Vec<_>>())
            ),
            add(IpNet::from(*ip).to_string()),
        ),
        None if asking.is_empty() => CheckResult::not_measured(
            format!("open to {}; the address of the client is not known", listed(&written)),
            "run this on a node, or with --from ADDRESS",
        ),
        None => CheckResult::passed(format!("{who} is within {}", listed(&written))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;

    fn fixture(spec: serde_json::Value, node: &str) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", spec);
        fixture.slice("default", "web", 8080, &[("10.244.0.1", true, node)]);
        fixture
    }

    #[test]
    fn a_local_policy_without_endpoints_here_drops() {
        let inside = json!({"type": "ClusterIP", "internalTrafficPolicy": "Local", "ports": [{"port": 80}]});
        let (saw, fix) = failed(fixture(inside.clone(), "n2").check("default", "web", local));
        assert!(saw.contains("this node, n1, has no ready endpoint (they are on n2)"), "{saw}");
        assert!(fix.ends_with(r#"--type=merge -p '{"spec":{"internalTrafficPolicy":"Cluster"}}'"#), "{fix}");
        passed(fixture(inside.clone(), "n1").check("default", "web", local));
        let outside = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
        assert!(failed(fixture(outside, "n2").check("default", "web", local)).1.contains("externalTrafficPolicy"));
        let balanced = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
        passed(fixture(balanced, "n2").check("default", "web", local));
        let mut elsewhere = fixture(inside, "n2");
        elsewhere.not_a_node();
        not_measured(elsewhere.check("default", "web", local));
    }

    fn balanced(ranges: &serde_json::Value, ips: &[&str]) -> Fixture {
        let mut fixture =
            fixture(json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges, "ports": [{"port": 80}]}), "n1");
        let ingress: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        fixture.cluster.services[0].put("status.loadBalancer.ingress", json!(ingress));
        fixture
    }

    #[test]
    fn ranges_that_shut_out_a_family_or_this_node_are_reported() {
        let (saw, fix) =
            failed(balanced(&json!(["192.0.2.0/24"]), &["198.51.100.1", "fd00::1"]).check("default", "web", sources));
        assert!(saw.contains("no range of IPv6: no client can use fd00::1"), "{saw}");
        assert!(fix.contains(r#"["192.0.2.0/24","::/0"]"#), "{fix}");
        let (saw, fix) =
            failed(balanced(&json!(["203.0.113.0/24"]), &["198.51.100.1"]).check("default", "web", sources));
        assert!(saw.contains("192.0.2.11 (this node)"), "{saw}");
        assert!(fix.contains(r#""192.0.2.11/32""#), "{fix}");
        passed(balanced(&json!(["192.0.2.0/24"]), &["198.51.100.1"]).check("default", "web", sources));
        not_applicable(balanced(&json!(["203.0.113.0/24"]), &[]).check("default", "web", sources));
    }

    #[test]
    fn ranges_are_checked_for_the_client_of_from() {
        let mut fixture = balanced(&json!(["203.0.113.0/24"]), &["198.51.100.1"]);
        fixture.machine.from = Some([203, 0, 113, 5].into());
        passed(fixture.check("default", "web", sources));
        fixture.machine.from = Some([198, 18, 0, 1].into());
        assert!(failed(fixture.check("default", "web", sources)).0.starts_with("198.18.0.1"));
    }
}
