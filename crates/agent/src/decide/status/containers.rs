//! Container statuses of a Pod.

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::super::backoff;
use super::super::spec::{Part, Role, Spec};
use super::time;
use crate::facts::{Container, Facts, State, Termination};

/// The container statuses by role.
pub(in crate::decide) struct Lists {
    pub(in crate::decide) init: Vec<Value>,
    pub(in crate::decide) main: Vec<Value>,
}

pub(in crate::decide) fn lists(pod: &Value, spec: &Spec<'_>, facts: &Facts, phase: &str) -> Lists {
    let one = |part: &Part<'_>| container(pod, spec, part, facts, phase);
    Lists {
        init: spec.parts.iter().filter(|part| part.role != Role::Main).map(one).collect(),
        main: spec.of(Role::Main).map(one).collect(),
    }
}

fn container(pod: &Value, spec: &Spec<'_>, part: &Part<'_>, facts: &Facts, phase: &str) -> Value {
    let nothing = Container::default();
    let known = facts.containers.get(part.name);
    let found = known.unwrap_or(&nothing);
    let over = matches!(phase, "Succeeded" | "Failed") || pod.has("metadata.deletionTimestamp");
    let waits = match found.ending() {
        Some(ending) => !over && spec.restarts(part.name, ending.code),
        None => false,
    };
    let (state, last) = match &found.state {
        State::Terminated(ending) if waits => (crash_loop(pod, part, found, ending), Some(ending)),
        State::Terminated(ending) => (terminated(ending), found.last.as_ref()),
        State::Running { since, .. } => (json!({"running": {"startedAt": time(*since)}}), found.last.as_ref()),
        State::StartFailed { reason, message, .. } => {
            (json!({"waiting": {"reason": reason, "message": message}}), found.last.as_ref())
        }
        State::New | State::Starting => {
            (json!({"waiting": {"reason": waiting_for(spec, part, facts)}}), found.last.as_ref())
        }
    };
    let started = found.is_running() && found.health.started;
    let ready = match part.role {
        Role::Init => found.ending().is_some_and(|ending| ending.code == 0),
        Role::Sidecar | Role::Main => started && found.health.ready,
    };
    json!({
        "name": part.name,
        "state": state,
        "lastState": last.map_or_else(|| json!({}), terminated),
        "ready": ready,
        "restartCount": found.restarts,
        "image": part.value.text("image"),
        "imageID": found.image,
        "containerID": container_id(found),
        "started": started,
    })
}

fn container_id(found: &Container) -> String {
    if found.id.is_empty() { String::new() } else { format!("waypost://{}", found.id) }
}

/// The waiting reason of a container that was never started.
fn waiting_for(spec: &Spec<'_>, part: &Part<'_>, facts: &Facts) -> &'static str {
    let is_open = |other: &&Part<'_>| match other.role {
        Role::Init => facts.containers.get(other.name).and_then(Container::ending).is_none_or(|end| end.code != 0),
        Role::Sidecar => facts.containers.get(other.name).is_none_or(|found| !found.health.started),
        Role::Main => false,
    };
    let before = spec.parts.iter().take_while(|other| other.name != part.name);
    if !spec.has_begun(facts) && before.filter(is_open).count() > 0 { "PodInitializing" } else { "ContainerCreating" }
}

fn crash_loop(pod: &Value, part: &Part<'_>, found: &Container, ending: &Termination) -> Value {
    if found.backoff == 0 {
        return terminated(ending);
    }
    let until = backoff::until(ending.finished, found.backoff).duration_since(ending.finished).as_secs();
    let length = match (until / 60, until % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    };
    let (namespace, name, uid) = (pod.text("metadata.namespace"), pod.text("metadata.name"), pod.text("metadata.uid"));
    let message = format!("back-off {length} restarting failed container={} pod={name}_{namespace}({uid})", part.name);
    json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
}

fn terminated(ending: &Termination) -> Value {
    let mut out = json!({
        "exitCode": ending.code,
        "reason": ending.reason,
        "startedAt": ending.started.map_or(Value::Null, time),
        "finishedAt": time(ending.finished),
        "containerID": if ending.id.is_empty() { String::new() } else { format!("waypost://{}", ending.id) },
    });
    if !ending.message.is_empty() {
        out["message"] = ending.message.clone().into();
    }
    json!({"terminated": out})
}
