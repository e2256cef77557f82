//! The Pods that a Service selects: whether they run, whether they are ready, and why not.

use api::value::ValueExt as _;
use serde_json::Value;

use super::super::evidence::{Evidence, is_ready};
use super::super::near::{count, listed};
use super::super::verdict::Judged;

/// Whether a Pod runs.
pub(super) fn running(evidence: &Evidence<'_>) -> Judged {
    let pods = evidence.pods();
    if pods.is_empty() {
        return Judged::moot("it selects no Pod");
    }
    let (run, wait): (Vec<&Value>, Vec<&Value>) =
        pods.iter().copied().partition(|pod| pod.text("status.phase") == "Running");
    let why: Vec<String> =
        wait.iter().map(|pod| format!("{}: {}", pod.text("metadata.name"), not_running(pod))).collect();
    if run.is_empty() {
        return Judged::disproved(format!("none runs: {}", listed(&why)), fix(evidence, wait[0]));
    }
    let but = if why.is_empty() { String::new() } else { format!("; not {}", listed(&why)) };
    Judged::proved(format!("{} of {}{but}", run.len(), count(pods.len(), "Pod")))
}

/// Whether a Pod is ready.
pub(super) fn ready(evidence: &Evidence<'_>) -> Judged {
    let pods = evidence.pods();
    let run: Vec<&Value> = pods.into_iter().filter(|pod| pod.text("status.phase") == "Running").collect();
    if run.is_empty() {
        return Judged::moot("no Pod of it runs");
    }
    let (good, bad): (Vec<&Value>, Vec<&Value>) = run.iter().copied().partition(|pod| is_ready(pod));
    let why: Vec<String> =
        bad.iter().map(|pod| format!("{}: {}", pod.text("metadata.name"), not_ready(evidence, pod))).collect();
    if good.is_empty() && evidence.spec().flag("publishNotReadyAddresses") {
        return Judged::proved(format!("none is, and it publishes addresses that are not ready; {}", listed(&why)));
    }
    if good.is_empty() {
        return Judged::disproved(format!("none is ready: {}", listed(&why)), fix(evidence, bad[0]));
    }
    let but = if why.is_empty() { String::new() } else { format!("; not {}", listed(&why)) };
    Judged::proved(format!("{} of {}{but}", good.len(), count(run.len(), "Pod")))
}

/// The statuses of all containers.
fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.items("status.initContainerStatuses").iter().chain(pod.items("status.containerStatuses"))
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    pod.items("status.conditions").iter().find(|one| one.text("type") == kind && one.text("status") != "True")
}

/// What a container waits for, or how it ended.
fn container_trouble(pod: &Value) -> Option<String> {
    statuses(pod).find_map(|status| {
        let name = status.text("name");
        let waiting = status.at("state.waiting");
        let ended = [status.at("state.terminated"), status.at("lastState.terminated")];
        let ended = ended.into_iter().find(|ended| ended.has("exitCode"));
        let exit = ended.map(|ended| format!(", its last exit code was {}", ended.int("exitCode"))).unwrap_or_default();
        let restarts = match status.int("restartCount") {
            0 => String::new(),
            n => format!(" after {}", count(usize::try_from(n).unwrap_or_default(), "restart")),
        };
        if waiting.has("reason") && waiting.text("reason") != "ContainerCreating" {
            let message = match waiting.text("message") {
                "" => String::new(),
                text => format!(" ({text})"),
            };
            return Some(format!("container {name} waits: {}{message}{restarts}{exit}", waiting.text("reason")));
        }
        let over = status.has("state.terminated") && pod.items("status.containerStatuses").contains(status);
        over.then(|| format!("container {name} has ended{restarts}{exit}"))
    })
}

fn not_running(pod: &Value) -> String {
    let scheduled = condition(pod, "PodScheduled").map(|one| match one.text("message") {
        "" => "no node has taken it".to_owned(),
        text => format!("no node has taken it: {text}"),
    });
    scheduled.or_else(|| container_trouble(pod)).unwrap_or_else(|| match pod.text("status.phase") {
        "" | "Pending" => "it is still being started".to_owned(),
        phase => format!("its phase is {phase}"),
    })
}

fn not_ready(evidence: &Evidence<'_>, pod: &Value) -> String {
    if pod.has("metadata.deletionTimestamp") {
        return "it is being deleted".to_owned();
    }
    if let Some(why) = container_trouble(pod) {
        return why;
    }
    let probe = evidence.cluster.events.iter().rev().find(|event| {
        event.text("reason") == "Unhealthy"
            && event.text("involvedObject.name") == pod.text("metadata.name")
            && event.text("involvedObject.namespace") == evidence.namespace
            && event.text("message").starts_with("Readiness")
    });
    if let Some(event) = probe {
        return event.text("message").trim().lines().next().unwrap_or_default().to_owned();
    }
    let gates = pod.items("spec.readinessGates").iter().map(|gate| gate.text("conditionType"));
    let shut: Vec<&str> = gates.filter(|gate| !is_true(pod, gate)).collect();
    if !shut.is_empty() {
        return format!("its readiness gate {} is not open", listed(&shut));
    }
    match condition(pod, "Ready").map(|one| one.text("message")) {
        None | Some("") => "its condition Ready is not True".to_owned(),
        Some(text) => text.to_owned(),
    }
}

fn is_true(pod: &Value, kind: &str) -> bool {
    pod.items("status.conditions").iter().any(|one| one.text("type") == kind && one.text("status") == "True")
}

/// What to look at next: the log of a container that ends again and again, or else all about the Pod.
fn fix(evidence: &Evidence<'_>, pod: &Value) -> String {
    let name = pod.text("metadata.name");
    let crashed = statuses(pod).find(|status| status.text("state.waiting.reason") == "CrashLoopBackOff");
    match crashed {
        Some(status) => format!("kubectl logs {name} {} -c {} --previous", evidence.flag(), status.text("name")),
        None => format!("kubectl describe pod {name} {}", evidence.flag()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, moot, proved};
    use super::*;

    fn world() -> World {
        let mut world = World::new();
        world.service("default", "web", json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
        world.pod("default", "web-1", json!({"app": "web"}));
        world
    }

    #[test]
    fn pods_that_run_and_are_ready_are_proved() {
        let world = world();
        proved(world.judge("default", "web", running));
        proved(world.judge("default", "web", ready));
    }

    #[test]
    fn one_that_is_ready_is_enough_and_the_others_are_said() {
        let mut world = world();
        world.pod("default", "web-2", json!({"app": "web"}));
        world.unready(1);
        assert!(proved(world.judge("default", "web", ready)).contains("not web-2"));
    }

    #[test]
    fn a_failing_probe_is_told_in_its_own_words() {
        let mut world = world();
        world.unready(0);
        world.cluster.events.push(json!({
            "reason": "Unhealthy", "message": "Readiness probe failed: HTTP 503",
            "involvedObject": {"name": "web-1", "namespace": "default"},
        }));
        let (saw, fix) = disproved(world.judge("default", "web", ready));
        assert!(saw.contains("web-1: Readiness probe failed: HTTP 503"), "{saw}");
        assert_eq!(fix, "kubectl describe pod web-1 -n default");
        world.cluster.services[0].put("spec.publishNotReadyAddresses", true);
        proved(world.judge("default", "web", ready));
    }

    #[test]
    fn what_a_container_waits_for_is_told_with_its_log() {
        let mut world = world();
        world.cluster.pods[0].put("status.phase", "Pending");
        world.cluster.pods[0].put(
            "status.containerStatuses",
            json!([{"name": "main", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 2}}}]),
        );
        let (saw, fix) = disproved(world.judge("default", "web", running));
        assert!(saw.contains("CrashLoopBackOff after 3 restarts, its last exit code was 2"), "{saw}");
        assert_eq!(fix, "kubectl logs web-1 -n default -c main --previous");
        moot(world.judge("default", "web", ready));
    }

    #[test]
    fn a_pod_without_a_node_says_what_the_scheduler_says() {
        let mut world = world();
        world.cluster.pods[0].put("status.phase", "Pending");
        let unscheduled = json!([{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]);
        world.cluster.pods[0].put("status.conditions", unscheduled);
        assert!(disproved(world.judge("default", "web", running)).0.contains("0/1 nodes are available"));
    }
}
