//! The health endpoints for load balancers and supervisors.

use serde_json::{Value, json};
use testbed::net::{Family, Host, Page, Pod, Protocol, eventually, objects};

use super::stage::{Frontend, Stage, TARGET};

/// The health-check port of the Service.
const HEALTH: u16 = 30_070;

/// Puts endpoints into a slice.
type Fill<'a> = &'a dyn Fn(objects::Slice) -> objects::Slice;

fn page(client: &Host, stage: &Stage, family: Family) -> Page {
    let mut found = None;
    eventually(&format!("a page, {family:?}"), || {
        found = client.page(stage.near.address(family), HEALTH, "/any/path");
        found.is_some()
    });
    found.expect("a page")
}

/// A balanced Service with policy Local, and its pods on the first node.
fn balanced() -> (Stage, [Pod; 2]) {
    let stage = Stage::new();
    let pods = [stage.near.pod("web-1"), stage.near.pod("web-2")];
    pods.iter().for_each(|pod| pod.echo(TARGET));
    stage.served.put(&stage.published("web", 1).policy_local().health_port(HEALTH).json());
    (stage, pods)
}

#[test]
fn s26_a_health_check_port_tells_how_many_endpoints_are_here() {
    let (stage, pods) = balanced();
    let far = stage.far.pod("web-far");
    let fills: [(&str, u16, usize, Fill<'_>); 5] = [
        ("two here", 200, 2, &|slice| slice.endpoint(&pods[0]).endpoint(&pods[1])),
        ("one here", 200, 1, &|slice| slice.endpoint(&pods[0]).endpoint(&far)),
        ("only elsewhere", 503, 0, &|slice| slice.endpoint(&far)),
        ("not ready", 503, 0, &|slice| slice.endpoint(&pods[0]).not_ready().endpoint(&far)),
        ("about to end", 503, 0, &|slice| slice.endpoint(&pods[0]).terminating()),
    ];
    for (what, code, count, fill) in fills {
        stage.endpoints("web", fill);
        stage.served.settle();
        for family in Family::BOTH {
            let service = json!({ "namespace": "default", "name": "web" });
            let told = json!({ "service": service, "localEndpoints": count, "serviceProxyHealthy": true });
            // The health endpoints change after the rules are in place.
            let mut page = page(&stage.outside, &stage, family);
            eventually(&format!("{what}: {told}"), || {
                page = self::page(&stage.outside, &stage, family);
                serde_json::from_str::<Value>(&page.body).expect("JSON") == told
            });
            assert_eq!(page.code, code, "{what}");
            assert_eq!(page.header("content-type"), Some("application/json"), "{what}");
            assert_eq!(page.header("x-content-type-options"), Some("nosniff"), "{what}");
            let weight = count.to_string();
            assert_eq!(page.header("x-load-balancing-endpoint-weight"), Some(weight.as_str()), "{what}");
        }
    }
    // The last one still serves the requests that the balancer sends nevertheless.
    for family in Family::BOTH {
        let (address, port) = Frontend::LoadBalancer.at(1, family, &stage.near);
        let answer = stage.outside.ask(Protocol::Tcp, address, port).expect("an answer");
        assert_eq!(answer.name, "web-1");
        let sees_client = answer.client.ip() == stage.outside.address(family);
        assert_eq!(sees_client, stage.served.mode().keeps_source);
    }
}

#[test]
fn s26_a_health_check_port_comes_and_goes_with_its_policy() {
    let (stage, pods) = balanced();
    stage.endpoints("web", |slice| slice.endpoint(&pods[0]));
    let is_open = || stage.outside.page(stage.near.v4(), HEALTH, "/").is_some();
    eventually("the port is open", is_open);
    stage.served.put(&stage.published("web", 1).json());
    eventually("the port is closed", || !is_open());
    stage.served.put(&stage.published("web", 1).policy_local().health_port(HEALTH + 1).json());
    eventually("the new port is open", || stage.outside.page(stage.near.v6(), HEALTH + 1, "/").is_some());
    assert!(!is_open(), "the old one is closed");
}

#[test]
fn s26_a_health_check_port_that_somebody_else_has_is_told_and_served_when_it_is_free() {
    let (stage, pods) = balanced();
    stage.served.put(&stage.published("taken", 2).policy_local().health_port(HEALTH + 1).json());
    // Health ports are opened after the rules are written: a port that is not open yet would pass for one that is free again.
    eventually("the port is open", || stage.outside.page(stage.near.v4(), HEALTH + 1, "/").is_some());
    stage.served.remove(&stage.published("taken", 2).json());
    eventually("the port is free", || stage.outside.page(stage.near.v4(), HEALTH + 1, "/").is_none());
    stage.near.echo_on(&[Protocol::Tcp], HEALTH + 1);
    stage.served.put(&stage.published("taken", 2).policy_local().health_port(HEALTH + 1).json());
    stage.endpoints("taken", |slice| slice.endpoint(&pods[0]));
    eventually("an Event tells", || {
        let events = stage.served.session(|session| session.items("/api/v1/namespaces/default/events"));
        let tells = |event: &Value| {
            event["reason"] == "FailedToStartServiceHealthcheck" && event["involvedObject"]["name"] == "taken"
        };
        events.iter().any(tells)
    });
    // The other Service does not suffer.
    assert!(stage.outside.page(stage.near.v4(), HEALTH, "/").is_some());
    stage.near.silence(HEALTH + 1);
    eventually("it is served", || {
        stage.outside.page(stage.near.v4(), HEALTH + 1, "/").is_some_and(|page| page.code == 200)
    });
}

#[test]
fn s26_the_pages_of_a_proxy() {
    let stage = Stage::new();
    let ask = |port: u16, path: &str| {
        let page = stage.near.page("127.0.0.1", port, path);
        page.unwrap_or_else(|| panic!("{path}: no page"))
    };
    for (path, tells_node) in [("/healthz", true), ("/livez", false)] {
        let page = ask(10_256, path);
        assert_eq!(page.code, 200, "{path}: {}", page.body);
        assert_eq!(page.header("content-type"), Some("application/json"), "{path}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"), "{path}");
        let body: Value = serde_json::from_str(&page.body).expect("JSON");
        assert_eq!(body["healthy"], true, "{path}: {body}");
        assert_eq!(body.get("nodeEligible").is_some(), tells_node, "{path}: {body}");
        for family in ["IPv4", "IPv6"] {
            assert_eq!(body["status"][family]["healthy"], true, "{path}: {body}");
            assert!(body["status"][family]["lastUpdated"].is_string(), "{path}: {body}");
        }
        assert!(body["lastUpdated"].is_string() && body["currentTime"].is_string(), "{path}: {body}");
    }
    assert_eq!(ask(10_249, "/proxyMode").body.trim(), stage.served.mode().name);
}

#[test]
fn s26_load_balancers_elsewhere_can_probe_a_node() {
    let stage = Stage::new();
    for family in Family::BOTH {
        let page = stage.outside.page(stage.near.address(family), 10_256, "/healthz");
        assert_eq!(page.expect("a page, by default").code, 200, "{family:?}");
        assert!(stage.outside.page(stage.near.address(family), 10_249, "/metrics").is_none(), "{family:?}");
    }
}

#[test]
fn a_node_that_is_about_to_go_is_alive_but_not_eligible() {
    let stage = Stage::new();
    let code = |path: &str| stage.near.page("127.0.0.1", 10_256, path).map(|page| page.code);
    let mut node = objects::node(&stage.near).json();
    node["spec"]["taints"] = json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }]);
    stage.served.put(&node);
    eventually("it is not eligible", || code("/healthz") == Some(503));
    assert_eq!(code("/livez"), Some(200));
    stage.served.put(&objects::node(&stage.near).json());
    eventually("it is eligible again", || code("/healthz") == Some(200));
}

#[test]
fn metrics_have_the_names_that_dashboards_know() {
    let stage = Stage::new();
    let far = stage.far.pod("web");
    stage.served.put(&stage.published("lonely", 1).policy_local().internal_local().json());
    stage.endpoints("lonely", |slice| slice.endpoint(&far));
    stage.served.settle();
    let _ = stage.near.page("127.0.0.1", 10_256, "/healthz");
    let _ = stage.near.page("127.0.0.1", 10_256, "/livez");
    let page = stage.near.page("127.0.0.1", 10_249, "/metrics").expect("a page");
    assert_eq!(page.code, 200);
    let names = [
        "sync_proxy_rules_duration_seconds_bucket",
        "sync_full_proxy_rules_duration_seconds_count",
        "sync_partial_proxy_rules_duration_seconds_sum",
        "sync_proxy_rules_last_timestamp_seconds",
        "sync_proxy_rules_last_queued_timestamp_seconds",
        "network_programming_duration_seconds_bucket",
        "sync_proxy_rules_endpoint_changes_pending",
        "sync_proxy_rules_endpoint_changes_total",
        "sync_proxy_rules_service_changes_pending",
        "sync_proxy_rules_service_changes_total",
        "sync_proxy_rules_no_local_endpoints_total",
        "sync_proxy_rules_nftables_sync_failures_total",
        "sync_proxy_rules_nftables_cleanup_failures_total",
        "conntrack_reconciler_sync_duration_seconds_count",
        "conntrack_reconciler_deleted_entries_total",
        "proxy_healthz_total",
        "proxy_livez_total",
    ];
    let has = |name: &str| page.body.lines().any(|line| line.starts_with(&format!("kubeproxy_{name}")));
    let missing: Vec<_> = names.iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing from\n{}", page.body);
    // Counted after the rules are in place.
    for policy in ["internal", "external"] {
        eventually(policy, || {
            let page = stage.near.page("127.0.0.1", 10_249, "/metrics").expect("a page");
            let is_it = |line: &&str| line.contains("no_local_endpoints_total{") && line.contains(policy);
            let value = page.body.lines().find(is_it).and_then(|line| line.split(' ').next_back()?.parse::<f64>().ok());
            value.is_some_and(|count| count > 0.0)
        });
    }
}
