//! The conditions of a Pod.

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::spec::{Role, Spec};
use super::containers::Lists;
use super::time;
use crate::facts::{Facts, Sandbox, State};

struct Word {
    kind: &'static str,
    holds: bool,
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
    let words = [
        Word { kind: "PodReadyToStartContainers", holds: sandbox, reason: "", message: String::new() },
        initialized,
        ready,
        containers,
        Word { kind: "PodScheduled", holds: true, reason: "", message: String::new() },
    ];
    for word in words {
        put(&mut out, pod, &word, now);
    }
    Value::Array(out)
}

fn put(out: &mut Vec<Value>, pod: &Value, word: &Word, now: Timestamp) {
    let status = if word.holds { "True" } else { "False" };
    let place = out.iter().position(|condition| condition.text("type") == word.kind);
    let old = place.and_then(|place| out.get(place));
    let since = match old.filter(|old| old.text("status") == status) {
        Some(old) => old.at("lastTransitionTime").clone(),
        None => time(now),
    };
    let mut new = json!({
        "type": word.kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
        "observedGeneration": pod.at("metadata.generation").clone(),
    });
    for (key, text) in [("reason", word.reason), ("message", word.message.as_str())] {
        if !text.is_empty() {
            new[key] = text.into();
        }
    }
    // Who scheduled it may have said more.
    if word.kind == "PodScheduled" && old.is_some_and(|old| old.text("status") == status) {
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

fn initialized(spec: &Spec<'_>, facts: &Facts, lists: &Lists) -> Word {
    let begun = spec.has_begun(facts);
    let open = |status: &Value| {
        let (name, sidecar) = (status.text("name"), spec.part(status.text("name")));
        match sidecar.map(|part| part.role) {
            Some(Role::Sidecar) => !facts.containers.get(name).is_some_and(|found| {
                found.health.started || found.last.is_some() || matches!(found.state, State::Ended(_))
            }),
            _ => !status.flag("ready"),
        }
    };
    let open = if begun { Vec::new() } else { names(&lists.init, open) };
    let holds = open.is_empty();
    Word {
        kind: "Initialized",
        holds,
        reason: if holds { "" } else { "ContainersNotInitialized" },
        message: if holds { String::new() } else { format!("containers with incomplete status: [{}]", open.join(" ")) },
    }
}

fn containers_ready(lists: &Lists, phase: &str) -> Word {
    let kind = "ContainersReady";
    match phase {
        "Succeeded" => return Word { kind, holds: false, reason: "PodCompleted", message: String::new() },
        "Failed" => return Word { kind, holds: false, reason: "PodFailed", message: String::new() },
        _ => {}
    }
    let open = names(&lists.main, |status| !status.flag("ready"));
    let holds = open.is_empty();
    let message = if holds { String::new() } else { format!("containers with unready status: [{}]", open.join(" ")) };
    Word { kind, holds, reason: if holds { "" } else { "ContainersNotReady" }, message }
}

/// A Pod is ready when its containers are, and whatever else it was made to wait for.
fn ready(pod: &Value, containers: &Word) -> Word {
    if !containers.holds {
        let message = containers.message.clone();
        return Word { kind: "Ready", holds: false, reason: containers.reason, message };
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
    let holds = closed.is_empty();
    let reason = if holds { "" } else { "ReadinessGatesNotReady" };
    Word { kind: "Ready", holds, reason, message: closed.join(", ") }
}
