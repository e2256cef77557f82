//! The conditions of a Pod.

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::spec::{Role, Spec};
use super::containers::Lists;
use super::time;
use crate::facts::{Facts, Sandbox, State};

struct Condition {
    kind: &'static str,
    is_true: bool,
    reason: &'static str,
    message: String,
}

pub(in crate::decide) fn all(
    pod: &Value,
    spec: &Spec<'_>,
    facts: &Facts,
    lists: &Lists,
    phase: &str,
    now: Timestamp,
) -> Value {
    let mut out: Vec<Value> = pod.items("status.conditions").to_vec();
    let initialized = initialized(spec, facts, lists);
    let containers = containers_ready(lists, phase);
    let ready = ready(pod, &containers);
    let sandbox = matches!(facts.sandbox, Sandbox::Ready { .. });
    let conditions = [
        Condition { kind: "PodReadyToStartContainers", is_true: sandbox, reason: "", message: String::new() },
        initialized,
        ready,
        containers,
        Condition { kind: "PodScheduled", is_true: true, reason: "", message: String::new() },
    ];
    for condition in conditions {
        put(&mut out, pod, &condition, now);
    }
    Value::Array(out)
}

fn put(out: &mut Vec<Value>, pod: &Value, condition: &Condition, now: Timestamp) {
    let status = if condition.is_true { "True" } else { "False" };
    let place = out.iter().position(|have| have.text("type") == condition.kind);
    let old = place.and_then(|place| out.get(place));
    let since = match old.filter(|old| old.text("status") == status) {
        Some(old) => old.at("lastTransitionTime").clone(),
        None => time(now),
    };
    let mut new = json!({
        "type": condition.kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
        "observedGeneration": pod.at("metadata.generation").clone(),
    });
    for (key, text) in [("reason", condition.reason), ("message", condition.message.as_str())] {
        if !text.is_empty() {
            new[key] = text.into();
        }
    }
    // The scheduler owns this condition.
    if condition.kind == "PodScheduled" && old.is_some_and(|old| old.text("status") == status) {
        return;
    }
    match place.and_then(|place| out.get_mut(place)) {
        Some(old) => *old = new,
        None => out.push(new),
    }
}

fn names(statuses: &[Value], bad: impl Fn(&Value) -> bool) -> Vec<&str> {
    statuses.iter().filter(|status| bad(status)).map(|status| status.text("name")).collect()
}

fn initialized(spec: &Spec<'_>, facts: &Facts, lists: &Lists) -> Condition {
    let begun = spec.has_begun(facts);
    let open = |status: &Value| {
        let (name, sidecar) = (status.text("name"), spec.part(status.text("name")));
        match sidecar.map(|part| part.role) {
            Some(Role::Sidecar) => !facts.containers.get(name).is_some_and(|found| {
                found.health.started || found.last.is_some() || matches!(found.state, State::Terminated(_))
            }),
            _ => !status.flag("ready"),
        }
    };
    let open = if begun { Vec::new() } else { names(&lists.init, open) };
    let is_true = open.is_empty();
    Condition {
        kind: "Initialized",
        is_true,
        reason: if is_true { "" } else { "ContainersNotInitialized" },
        message: if is_true {
            String::new()
        } else {
            format!("containers with incomplete status: [{}]", open.join(" "))
        },
    }
}

fn containers_ready(lists: &Lists, phase: &str) -> Condition {
    let kind = "ContainersReady";
    match phase {
        "Succeeded" => return Condition { kind, is_true: false, reason: "PodCompleted", message: String::new() },
        "Failed" => return Condition { kind, is_true: false, reason: "PodFailed", message: String::new() },
        _ => {}
    }
    let open = names(&lists.main, |status| !status.flag("ready"));
    let is_true = open.is_empty();
    let message = if is_true { String::new() } else { format!("containers with unready status: [{}]", open.join(" ")) };
    Condition { kind, is_true, reason: if is_true { "" } else { "ContainersNotReady" }, message }
}

/// A Pod is ready when its containers are ready and its readiness gates are true.
fn ready(pod: &Value, containers: &Condition) -> Condition {
    if !containers.is_true {
        let message = containers.message.clone();
        return Condition { kind: "Ready", is_true: false, reason: containers.reason, message };
    }
    let is_true = |gate: &str| {
        let conditions = pod.items("status.conditions").iter();
        conditions
            .filter(|condition| condition.text("type") == gate)
            .any(|condition| condition.text("status") == "True")
    };
    let closed: Vec<String> = pod
        .items("spec.readinessGates")
        .iter()
        .map(|gate| gate.text("conditionType"))
        .filter(|gate| !is_true(gate))
        .map(|gate| format!("corresponding condition of pod readiness gate \"{gate}\" does not exist or is not True"))
        .collect();
    let is_true = closed.is_empty();
    let reason = if is_true { "" } else { "ReadinessGatesNotReady" };
    Condition { kind: "Ready", is_true, reason, message: closed.join(", ") }
}
