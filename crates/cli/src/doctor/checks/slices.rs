//! EndpointSlices: whether they list the ready Pods, and only routable addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use diagnose::Finding;
use serde_json::Value;

use super::super::evidence::{Evidence, is_ready};
use super::super::format::{count, listed};
use super::super::verdict::CheckResult;

/// The addresses of a Pod.
fn addresses(pod: &Value) -> Vec<IpAddr> {
    let all = pod.items("status.podIPs").iter().map(|one| one.text("ip"));
    all.chain([pod.text("status.podIP")]).filter_map(parse_lenient).collect()
}

/// Whether the slices match the Pods.
pub(super) fn follow(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.selector().is_none() {
        let manual = || CheckResult::not_applicable("it has no selector, so no controller manages its EndpointSlices");
        return evidence.found("slices").map_or_else(manual, CheckResult::from);
    }
    let slices = evidence.slices();
    // A missing condition means ready.
    let shown = |ready_only: bool| -> BTreeSet<IpAddr> {
        let endpoints = slices.iter().flat_map(|slice| slice.items("endpoints"));
        let counted = endpoints.filter(|one| !ready_only || one.at("conditions.ready").as_bool().unwrap_or(true));
        counted.flat_map(|one| one.texts("addresses")).filter_map(parse_lenient).collect()
    };
    let (all, ready) = (shown(false), shown(true));
    let pods = evidence.pods();
    let late: Vec<&str> = pods
        .iter()
        .filter(|pod| is_ready(pod) && !pod.has("metadata.deletionTimestamp"))
        .filter(|pod| !addresses(pod).iter().any(|ip| ready.contains(ip)))
        .map(|pod| pod.text("metadata.name"))
        .collect();
    let real: BTreeSet<IpAddr> = pods.iter().flat_map(|pod| addresses(pod)).collect();
    let stale: Vec<String> = ready.difference(&real).map(ToString::to_string).collect();
    let restart = "systemctl restart waypost";
    let late = match late.is_empty() {
        true => None,
        false => {
            Some(format!("{} ready and not ready in any EndpointSlice: {}", count(late.len(), "Pod"), listed(&late)))
        }
    };
    if let Some(finding) = evidence.found("slices") {
        let evidence = finding.evidence.iter().cloned().chain(late).collect();
        return Finding { evidence, ..finding }.into();
    }
    // Other checks report why endpoints are not ready.
    if !evidence.diagnosis.as_ref().is_none_or(|found| matches!(found.endpoints, Some(Ok(_)))) {
        return CheckResult::not_applicable("there is no ready endpoint for every port");
    }
    if let Some(saw) = late {
        return CheckResult::failed(format!("{saw}; the EndpointSlice controller is behind or does not run"), restart);
    }
    if !stale.is_empty() {
        let saw =
            format!("{} in its EndpointSlices of no selected Pod: {}", count(stale.len(), "address"), listed(&stale));
        return CheckResult::failed(format!("{saw}; the EndpointSlice controller is behind or does not run"), restart);
    }
    CheckResult::passed(format!("{} of {} ready", ready.len(), count(all.len(), "endpoint")))
}

/// Whether the endpoints are routable.
pub(super) fn fit(evidence: &Evidence<'_>) -> CheckResult {
    if let Some(finding) = evidence.found("endpoints") {
        return finding.into();
    }
    let endpoints = evidence.endpoints();
    if endpoints.is_empty() {
        return CheckResult::not_applicable("there is no endpoint");
    }
    let addresses: BTreeSet<String> = endpoints.iter().map(|endpoint| endpoint.address.ip().to_string()).collect();
    CheckResult::passed(listed(&addresses.into_iter().collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, passed};
    use super::*;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service(
            "default",
            "web",
            json!({"selector": {"app": "web"}, "clusterIP": "10.96.0.5", "ports": [{"port": 80}]}),
        );
        fixture.pod("default", "web-1", json!({"app": "web"}));
        fixture
    }

    #[test]
    fn slices_that_show_the_pods_pass() {
        let mut fixture = fixture();
        fixture.slice("default", "web", 8080, &[("10.244.0.1", true, "n1")]);
        passed(fixture.check("default", "web", follow));
        passed(fixture.check("default", "web", fit));
    }

    #[test]
    fn a_ready_pod_that_is_in_no_slice_and_an_address_without_a_pod_are_reported() {
        let mut fixture = fixture();
        assert!(failed(fixture.check("default", "web", follow)).0.contains("web-1"));
        fixture.slice("default", "web", 8080, &[("10.244.0.1", true, "n1"), ("10.244.0.77", true, "n1")]);
        assert!(failed(fixture.check("default", "web", follow)).0.contains("10.244.0.77"));
    }

    #[test]
    fn addresses_that_lead_nowhere_are_reported() {
        for (ip, why) in [
            ("10.96.0.9", "cluster IP of Service shop/db"),
            ("10.96.7.7", "range of Service addresses"),
            ("127.0.0.1", "loopback"),
            ("169.254.1.1", "link-local"),
        ] {
            let mut fixture = fixture();
            fixture.service("shop", "db", json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}));
            fixture.slice("default", "web", 8080, &[(ip, true, "")]);
            let (saw, fix) = failed(fixture.check("default", "web", fit));
            assert!(saw.contains(why), "{saw}");
            assert_eq!(fix.contains("--external-name=db.shop.svc.cluster.local"), ip == "10.96.0.9", "{fix}");
        }
        not_applicable(fixture().check("default", "web", fit));
    }

    #[test]
    fn where_services_live_on_loopback_so_may_endpoints() {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"clusterIP": "127.96.0.5", "ports": [{"port": 80}]}));
        fixture.slice("default", "web", 8080, &[("127.0.0.1", true, "")]);
        passed(fixture.check("default", "web", fit));
    }
}
