//! Slices: whether they show the Pods that there are, and only addresses that packets can be sent to.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use diagnose::Finding;
use serde_json::Value;

use super::super::evidence::{Evidence, is_ready};
use super::super::verdict::Judged;
use super::super::words::{count, listed};

/// The addresses of a Pod.
fn addresses(pod: &Value) -> Vec<IpAddr> {
    let all = pod.items("status.podIPs").iter().map(|one| one.text("ip"));
    all.chain([pod.text("status.podIP")]).filter_map(parse_lenient).collect()
}

/// Whether the slices follow the Pods.
pub(super) fn follow(evidence: &Evidence<'_>) -> Judged {
    if evidence.selector().is_none() {
        let moot = || Judged::moot("it has no selector: nobody keeps its slices but their author");
        return evidence.found("slices").map_or_else(moot, Judged::from);
    }
    let slices = evidence.slices();
    // With ready, or nothing said of it, an address counts.
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
        false => Some(format!("{} ready and in no slice as such: {}", count(late.len(), "Pod"), listed(&late))),
    };
    if let Some(finding) = evidence.found("slices") {
        let evidence = finding.evidence.iter().cloned().chain(late).collect();
        return Finding { evidence, ..finding }.into();
    }
    // What else keeps endpoints from being ready is said by other checks.
    if !evidence.diagnosis.as_ref().is_none_or(|found| matches!(found.endpoints, Some(Ok(_)))) {
        return Judged::moot("there is no ready endpoint for every port");
    }
    if let Some(saw) = late {
        return Judged::disproved(
            format!("{saw}; the controller that keeps slices is behind or does not run"),
            restart,
        );
    }
    if !stale.is_empty() {
        let saw = format!(
            "{} in its slices and of no Pod that it selects: {}",
            count(stale.len(), "address"),
            listed(&stale)
        );
        return Judged::disproved(
            format!("{saw}; the controller that keeps slices is behind or does not run"),
            restart,
        );
    }
    Judged::proved(format!("{} of {} ready", ready.len(), count(all.len(), "endpoint")))
}

/// Whether packets can be sent to the endpoints.
pub(super) fn fit(evidence: &Evidence<'_>) -> Judged {
    if let Some(finding) = evidence.found("endpoints") {
        return finding.into();
    }
    let endpoints = evidence.endpoints();
    if endpoints.is_empty() {
        return Judged::moot("there is no endpoint");
    }
    let addresses: BTreeSet<String> = endpoints.iter().map(|endpoint| endpoint.address.ip().to_string()).collect();
    Judged::proved(listed(&addresses.into_iter().collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved};
    use super::*;

    fn world() -> World {
        let mut world = World::new();
        world.service(
            "default",
            "web",
            json!({"selector": {"app": "web"}, "clusterIP": "10.96.0.5", "ports": [{"port": 80}]}),
        );
        world.pod("default", "web-1", json!({"app": "web"}));
        world
    }

    #[test]
    fn slices_that_show_the_pods_are_proved() {
        let mut world = world();
        world.slice("default", "web", 8080, &[("10.244.0.1", true, "n1")]);
        proved(world.judge("default", "web", follow));
        proved(world.judge("default", "web", fit));
    }

    #[test]
    fn a_ready_pod_that_is_in_no_slice_and_an_address_without_a_pod_are_told() {
        let mut world = world();
        assert!(disproved(world.judge("default", "web", follow)).0.contains("web-1"));
        world.slice("default", "web", 8080, &[("10.244.0.1", true, "n1"), ("10.244.0.77", true, "n1")]);
        assert!(disproved(world.judge("default", "web", follow)).0.contains("10.244.0.77"));
    }

    #[test]
    fn addresses_that_lead_nowhere_are_told() {
        for (ip, why) in [
            ("10.96.0.9", "cluster IP of Service shop/db"),
            ("10.96.7.7", "range of Service addresses"),
            ("127.0.0.1", "loopback"),
            ("169.254.1.1", "link-local"),
        ] {
            let mut world = world();
            world.service("shop", "db", json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}));
            world.slice("default", "web", 8080, &[(ip, true, "")]);
            let (saw, fix) = disproved(world.judge("default", "web", fit));
            assert!(saw.contains(why), "{saw}");
            assert_eq!(fix.contains("--external-name=db.shop.svc.cluster.local"), ip == "10.96.0.9", "{fix}");
        }
        moot(world().judge("default", "web", fit));
    }

    #[test]
    fn where_services_live_on_loopback_so_may_endpoints() {
        let mut world = World::new();
        world.service("default", "web", json!({"clusterIP": "127.96.0.5", "ports": [{"port": 80}]}));
        world.slice("default", "web", 8080, &[("127.0.0.1", true, "")]);
        proved(world.judge("default", "web", fit));
    }
}
