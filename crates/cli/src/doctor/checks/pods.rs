//! The Pods that a Service selects: whether they run, whether they are ready, and why not.

use api::value::ValueExt as _;
use diagnose::{Detail, Finding};
use serde_json::Value;

use super::super::evidence::{Evidence, is_ready};
use super::super::format::{count, listed};
use super::super::verdict::CheckResult;

/// Whether a Pod runs.
pub(super) fn running(evidence: &Evidence<'_>) -> CheckResult {
    if let Some(finding) = evidence.found("running") {
        return finding.into();
    }
    let pods = evidence.pods();
    if pods.is_empty() {
        return CheckResult::not_applicable("it selects no Pod that has not terminated");
    }
    let runs = |pod: &&Value| pod.text("status.phase") == "Running";
    CheckResult::passed(share(evidence, &pods, runs))
}

/// Whether a Pod is ready.
pub(super) fn ready(evidence: &Evidence<'_>) -> CheckResult {
    let pods = evidence.pods();
    let run: Vec<&Value> = pods.into_iter().filter(|pod| pod.text("status.phase") == "Running").collect();
    if run.is_empty() {
        return CheckResult::not_applicable("none of its Pods runs");
    }
    if let Some(finding) = evidence.found("ready") {
        let unready = run.iter().filter(|pod| !is_ready(pod));
        let more = unready.flat_map(|pod| more(evidence, pod));
        let evidence = finding.evidence.iter().cloned().chain(more).collect();
        return Finding { evidence, ..finding }.into();
    }
    CheckResult::passed(share(evidence, &run, |pod| is_ready(pod)))
}

/// How many of the Pods are good, and why the others are not.
fn share(evidence: &Evidence<'_>, pods: &[&Value], good: impl Fn(&&Value) -> bool) -> String {
    let (good, bad): (Vec<&Value>, Vec<&Value>) = pods.iter().copied().partition(good);
    let why = |pod: &&Value| {
        let why = more(evidence, pod).into_iter().next().or_else(|| Detail::of(pod).excuse());
        format!("{}{}", pod.text("metadata.name"), why.map(|why| format!(" ({why})")).unwrap_or_default())
    };
    let bad: Vec<String> = bad.iter().map(why).collect();
    let but = if bad.is_empty() { String::new() } else { format!("; not {}", listed(&bad)) };
    format!("{} of {}{but}", good.len(), count(pods.len(), "Pod"))
}

/// What is not in the status of a Pod: the message of its readiness probe, and readiness gates.
fn more(evidence: &Evidence<'_>, pod: &Value) -> Vec<String> {
    let name = pod.text("metadata.name");
    let probe = evidence.cluster.events.iter().rev().find(|event| {
        event.text("reason") == "Unhealthy"
            && event.text("involvedObject.name") == name
            && event.text("involvedObject.namespace") == evidence.namespace
            && event.text("message").starts_with("Readiness")
    });
    let probe = probe.map(|event| event.text("message").trim().lines().next().unwrap_or_default());
    let gates = pod.items("spec.readinessGates").iter().map(|gate| gate.text("conditionType"));
    let shut: Vec<&str> = gates.filter(|gate| !is_true(pod, gate)).collect();
    let gates = (!shut.is_empty()).then(|| format!("its readiness gate {} is not True", listed(&shut)));
    probe.map(str::to_owned).into_iter().chain(gates).map(|why| format!("pod {name}: {why}")).collect()
}

fn is_true(pod: &Value, kind: &str) -> bool {
    pod.items("status.conditions").iter().any(|one| one.text("type") == kind && one.text("status") == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, passed};
    use super::*;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        fixture.pod("default", "web-1", json!({"app": "web"}));
        fixture
    }

    #[test]
    fn pods_that_run_and_are_ready_pass() {
        let fixture = fixture();
        passed(fixture.check("default", "web", running));
        passed(fixture.check("default", "web", ready));
    }

    #[test]
    fn one_that_is_ready_is_enough_and_the_others_are_said() {
        let mut fixture = fixture();
        fixture.pod("default", "web-2", json!({"app": "web"}));
        fixture.unready(1);
        assert!(passed(fixture.check("default", "web", ready)).contains("not web-2"));
    }

    #[test]
    fn a_failing_probe_is_told_in_its_own_words() {
        let mut fixture = fixture();
        fixture.unready(0);
        fixture.cluster.events.push(json!({
            "reason": "Unhealthy", "message": "Readiness probe failed: HTTP 503",
            "involvedObject": {"name": "web-1", "namespace": "default"},
        }));
        let (saw, fix) = failed(fixture.check("default", "web", ready));
        assert!(saw.contains("pod web-1: Readiness probe failed: HTTP 503"), "{saw}");
        assert_eq!(fix, "kubectl describe pod web-1 -n default");
        fixture.cluster.services[0].put("spec.publishNotReadyAddresses", true);
        fixture.slice("default", "web", 8080, &[("10.244.0.1", true, "n1")]);
        passed(fixture.check("default", "web", ready));
    }

    #[test]
    fn what_a_container_waits_for_is_told_with_its_log() {
        let mut fixture = fixture();
        fixture.unready(0);
        fixture.cluster.pods[0].put("status.phase", "Pending");
        fixture.cluster.pods[0].put(
            "status.containerStatuses",
            json!([{"name": "main", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 2}}}]),
        );
        let (saw, fix) = failed(fixture.check("default", "web", running));
        let wanted = "container main is waiting: CrashLoopBackOff; its last exit code was 2";
        assert!(saw.contains(wanted) && saw.contains("3 restarts"), "{saw}");
        assert_eq!(fix, "kubectl logs web-1 -n default -c main --previous");
        not_applicable(fixture.check("default", "web", ready));
    }

    #[test]
    fn a_pod_without_a_node_says_what_the_scheduler_says() {
        let mut fixture = fixture();
        fixture.cluster.pods[0].put("status.phase", "Pending");
        let unscheduled = json!([{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]);
        fixture.cluster.pods[0].put("status.conditions", unscheduled);
        assert!(failed(fixture.check("default", "web", running)).0.contains("0/1 nodes are available"));
    }
}
