//! The selector: whether there is one, and which Pods it matches.

use api::value::ValueExt as _;
use diagnose::{Finding, Selector};
use serde_json::{Map, Value};

use super::super::evidence::{Evidence, has_labels};
use super::super::format::{count, listed};
use super::super::verdict::CheckResult;

/// Whether the Service has a selector or endpoints.
pub(super) fn present(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.service().is_none() || evidence.is_external_name() {
        return CheckResult::not_applicable("such a Service selects nothing");
    }
    if let Some(selector) = evidence.selector() {
        return CheckResult::passed(diagnose::selector_text(&pairs(selector)));
    }
    let Some(finding) = evidence.found("selector") else {
        return CheckResult::passed(format!(
            "none; {} in EndpointSlices without a controller",
            count(evidence.endpoints().len(), "endpoint")
        ));
    };
    // A workload of the same name has the labels that are probably meant.
    let namesake =
        evidence.cluster.workloads.iter().find(|one| {
            one.text("metadata.namespace") == evidence.namespace && one.text("metadata.name") == evidence.name
        });
    let labels = namesake.and_then(|one| one.map("spec.selector.matchLabels"));
    let fix = labels.map_or_else(|| finding.fix.clone(), |labels| evidence.typed().set_selector(&pairs(labels)));
    Finding { fix, ..finding }.into()
}

/// Labels as sorted pairs.
fn pairs(labels: &Map<String, Value>) -> Box<Selector> {
    let pair = |(key, value): (&String, &Value)| Some((key.as_str().into(), value.as_str()?.into()));
    labels.iter().filter_map(pair).collect()
}

/// Whether the selector matches Pods.
pub(super) fn matches(evidence: &Evidence<'_>) -> CheckResult {
    let Some(selector) = evidence.selector() else { return CheckResult::not_applicable("it has no selector") };
    if let Some(finding) = evidence.found("selected") {
        return unscaled(evidence, selector, &finding).unwrap_or(finding).into();
    }
    let found = evidence.pods();
    if found.is_empty() {
        return CheckResult::passed("only Pods that have terminated");
    }
    let names: Vec<&str> = found.iter().map(|pod| pod.text("metadata.name")).collect();
    CheckResult::passed(format!("{}: {}", count(found.len(), "Pod"), listed(&names)))
}

/// A workload that would create such Pods, as evidence.
fn unscaled(evidence: &Evidence<'_>, selector: &Map<String, Value>, finding: &Finding) -> Option<Finding> {
    let workload = evidence.cluster.workloads.iter().find(|one| {
        one.text("metadata.namespace") == evidence.namespace
            && has_labels(one, "spec.template.metadata.labels", selector)
    })?;
    let (kind, name) = (workload.text("kind").to_lowercase(), workload.text("metadata.name"));
    // A DaemonSet has no replicas: its Pods depend on the Nodes.
    let wanted = match workload.text("kind") {
        "DaemonSet" => workload.int("status.desiredNumberScheduled"),
        _ => workload.int("spec.replicas"),
    };
    let (more, fix) = match wanted {
        0 if kind == "daemonset" => (
            format!("{kind} {name} would create them, and no Node is eligible for it"),
            format!("kubectl describe {kind} {name} {}", evidence.flag()),
        ),
        0 => (
            format!("{kind} {name} would create them and is scaled to 0"),
            format!("kubectl scale {kind} {name} {} --replicas=1", evidence.flag()),
        ),
        wanted => (
            format!("{kind} {name} should have created {wanted} and has not"),
            format!("kubectl describe {kind} {name} {}", evidence.flag()),
        ),
    };
    let evidence = finding.evidence.iter().cloned().chain([more]).collect();
    Some(Finding { evidence, fix, ..finding.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, passed};
    use super::*;

    fn fixture(selector: &Value) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("shop", "web", json!({"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]}));
        fixture
    }

    #[test]
    fn a_selector_that_finds_pods_passes() {
        let mut fixture = fixture(&json!({"app": "web"}));
        fixture.pod("shop", "web-1", json!({"app": "web", "more": "x"}));
        assert!(passed(fixture.check("shop", "web", present)).contains("app=web"));
        assert!(passed(fixture.check("shop", "web", matches)).contains("web-1"));
    }

    #[test]
    fn a_value_that_is_nearly_right_is_named_with_the_command() {
        for (asked, says) in
            [("wbe", "1 pod has app=web"), ("Web", "1 pod has app=web (only upper and lower case differ)")]
        {
            let mut fixture = fixture(&json!({"app": asked}));
            fixture.pod("shop", "web-1", json!({"app": "web"}));
            fixture.pod("shop", "api-1", json!({"app": "billing"}));
            let (saw, fix) = failed(fixture.check("shop", "web", matches));
            assert!(saw.contains(&format!("selector app={asked} matches 0 of 2 pods")) && saw.contains(says), "{saw}");
            assert_eq!(fix, "kubectl set selector service web -n shop app=web");
        }
    }

    #[test]
    fn a_key_that_is_nearly_right_is_named_and_the_rest_is_kept() {
        let mut fixture = fixture(&json!({"ap": "web", "tier": "front"}));
        fixture.pod("shop", "web-1", json!({"app": "web", "tier": "front"}));
        let (saw, fix) = failed(fixture.check("shop", "web", matches));
        assert!(saw.contains("does not have ap=web; it has app=web"), "{saw}");
        assert_eq!(fix, "kubectl set selector service web -n shop app=web,tier=front");
    }

    #[test]
    fn pods_of_another_namespace_are_named() {
        let mut fixture = fixture(&json!({"app": "web"}));
        fixture.pod("prod", "web-1", json!({"app": "web"}));
        fixture.pod("shop", "other", json!({"app": "billing"}));
        let (saw, fix) = failed(fixture.check("shop", "web", matches));
        assert!(saw.contains("pods in namespace prod match"), "{saw}");
        assert!(fix.starts_with("kubectl expose pod web-1 -n prod --name=web --selector=app=web --port=80"), "{fix}");
    }

    #[test]
    fn a_workload_without_replicas_is_scaled() {
        let mut fixture = fixture(&json!({"app": "web"}));
        fixture.workload("shop", "web", 0, &json!({"app": "web"}));
        let (saw, fix) = failed(fixture.check("shop", "web", matches));
        assert!(saw.ends_with("deployment web would create them and is scaled to 0"), "{saw}");
        assert_eq!(fix, "kubectl scale deployment web -n shop --replicas=1");
        fixture.cluster.workloads[0].put("spec.replicas", 2);
        assert_eq!(failed(fixture.check("shop", "web", matches)).1, "kubectl describe deployment web -n shop");
    }

    #[test]
    fn a_daemon_set_without_nodes_is_described() {
        let mut fixture = fixture(&json!({"app": "web"}));
        fixture.workload("shop", "web", 0, &json!({"app": "web"}));
        fixture.cluster.workloads[0].put("kind", "DaemonSet");
        let (saw, fix) = failed(fixture.check("shop", "web", matches));
        assert!(saw.ends_with("daemonset web would create them, and no Node is eligible for it"), "{saw}");
        assert_eq!(fix, "kubectl describe daemonset web -n shop");
        fixture.cluster.workloads[0].put("status.desiredNumberScheduled", 2);
        let (saw, _) = failed(fixture.check("shop", "web", matches));
        assert!(saw.ends_with("daemonset web should have created 2 and has not"), "{saw}");
    }

    #[test]
    fn no_pod_matches() {
        let mut fixture = fixture(&json!({"app": "web"}));
        let (saw, fix) = failed(fixture.check("shop", "web", matches));
        assert!(saw.contains("there are no pods in shop that selector app=web could match"), "{saw}");
        assert!(fix.contains("--labels=app=web --port=8080"), "{fix}");
        fixture.pod("shop", "other", json!({"app": "completely-different"}));
        let (saw, _) = failed(fixture.check("shop", "web", matches));
        assert!(saw.contains("matches 0 of 1 pod in shop; 1 pod has app=completely-different"), "{saw}");
    }

    #[test]
    fn without_a_selector_slices_by_hand_are_enough() {
        let mut fixture = Fixture::new();
        fixture.service("shop", "web", json!({"ports": [{"port": 80}]}));
        assert!(failed(fixture.check("shop", "web", present)).1.ends_with("app=web"));
        not_applicable(fixture.check("shop", "web", matches));
        fixture.slice("shop", "web", 8080, &[("192.0.2.1", true, "")]);
        assert!(passed(fixture.check("shop", "web", present)).contains("without a controller"));
    }
}
