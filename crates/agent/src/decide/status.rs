//! The status of a Pod, as the kubelet writes it.
//!
//! In: the Pod with its current status, and the observed state. Out: the desired status. Fields that other components write (PodScheduled, custom
//! conditions) are kept; transition times change only with their condition.

mod conditions;
mod containers;

use std::net::IpAddr;

use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::eviction;
use super::spec::{Role, Spec};
use crate::facts::{Facts, Sandbox, State};

/// Other inputs of the status.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    /// Whether `activeDeadlineSeconds` has passed.
    pub(super) overdue: bool,
    /// The message of an eviction.
    pub(super) evicted: Option<&'a str>,
}

/// A metav1.Time.
pub(super) fn time(at: Timestamp) -> Value {
    Value::String(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

pub(super) fn status(pod: &Value, spec: &Spec<'_>, facts: &Facts, context: &Context<'_>) -> Value {
    let mut out = pod.at("status").as_object().cloned().unwrap_or_default();
    let phase = phase(pod, spec, facts, context);
    out.insert("phase".to_owned(), phase.into());
    if let Some((reason, message)) = reason(pod, context) {
        out.insert("reason".to_owned(), reason.into());
        out.insert("message".to_owned(), message.into());
    }
    out.insert("observedGeneration".to_owned(), pod.at("metadata.generation").clone());
    if let Some(started) = facts.started {
        out.entry("startTime").or_insert_with(|| time(started));
    }
    addresses(&mut out, pod, facts);
    let lists = containers::lists(pod, spec, facts, phase);
    out.insert("conditions".to_owned(), conditions::all(pod, spec, facts, &lists, phase, context.now));
    for (name, list) in [("initContainerStatuses", lists.init), ("containerStatuses", lists.main)] {
        if !list.is_empty() {
            out.insert(name.to_owned(), Value::Array(list));
        }
    }
    out.retain(|_, value| !value.is_null());
    Value::Object(out)
}

/// Why the agent ends the Pod. An eviction that is reported already is kept.
fn reason<'a>(pod: &Value, context: &Context<'a>) -> Option<(&'static str, &'a str)> {
    match context.evicted {
        Some(_) if is_terminal(pod) => None,
        Some(message) => Some((eviction::REASON, message)),
        None if context.overdue && pod.text("status.reason") != eviction::REASON => {
            Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"))
        }
        None => None,
    }
}

fn is_terminal(pod: &Value) -> bool {
    matches!(pod.text("status.phase"), "Succeeded" | "Failed")
}

fn addresses(out: &mut Map<String, Value>, pod: &Value, facts: &Facts) {
    let list = |ips: &[IpAddr]| Value::Array(ips.iter().map(|ip| json!({"ip": ip.to_string()})).collect());
    if let Some(first) = facts.host.first() {
        out.insert("hostIP".to_owned(), first.to_string().into());
        out.insert("hostIPs".to_owned(), list(&facts.host));
    }
    let own = match &facts.sandbox {
        Sandbox::Ready { .. } if pod.flag("spec.hostNetwork") => &facts.host,
        sandbox => sandbox.addresses(),
    };
    if let Some(first) = own.first() {
        out.insert("podIP".to_owned(), first.to_string().into());
        out.insert("podIPs".to_owned(), list(own));
    }
}

fn phase(pod: &Value, spec: &Spec<'_>, facts: &Facts, context: &Context<'_>) -> &'static str {
    match pod.text("status.phase") {
        // Terminal phases never change.
        "Succeeded" => return "Succeeded",
        "Failed" => return "Failed",
        _ if context.overdue || context.evicted.is_some() || spec.init_failed(facts) => return "Failed",
        _ => {}
    }
    let main: Vec<_> = spec.of(Role::Main).map(|part| (part.name, facts.containers.get(part.name))).collect();
    let begun = |state: &State| !matches!(state, State::New | State::StartFailed { .. } | State::Starting);
    let any_begun =
        main.iter().any(|(_, found)| found.is_some_and(|found| begun(&found.state) || found.last.is_some()));
    let all_begun =
        main.iter().all(|(_, found)| found.is_some_and(|found| begun(&found.state) || found.last.is_some()));
    if spec.is_finished(facts) {
        let well =
            main.iter().all(|(_, found)| found.and_then(|found| found.ending()).is_some_and(|end| end.code == 0));
        return if well { "Succeeded" } else { "Failed" };
    }
    // A deleted Pod without a sandbox is finished, whatever its restart policy and whether or not its containers ever started.
    if pod.has("metadata.deletionTimestamp") && facts.sandbox == Sandbox::Removed {
        let well =
            main.iter().all(|(_, found)| found.and_then(|found| found.ending()).is_some_and(|end| end.code == 0));
        return if well { "Succeeded" } else { "Failed" };
    }
    if any_begun && all_begun { "Running" } else { "Pending" }
}

/// The strategic merge patch to this status; `None` when nothing differs.
#[must_use]
pub fn patch(pod: &Value, status: &Value) -> Option<Value> {
    let empty = Map::new();
    let old = pod.at("status").as_object().unwrap_or(&empty);
    let new = status.as_object().unwrap_or(&empty);
    let mut change = Map::new();
    for (key, value) in new {
        if old.get(key) == Some(value) {
            continue;
        }
        let value = match (key.as_str(), value) {
            // Other components write conditions too: send changed ones only.
            ("conditions", Value::Array(list)) => {
                let before = pod.items("status.conditions");
                let changed = list.iter().filter(|condition| !before.contains(condition));
                Value::Array(changed.map(|condition| with_removals(before, condition)).collect())
            }
            ("podIPs" | "hostIPs", Value::Array(list)) => {
                Value::Array([json!({"$patch": "replace"})].into_iter().chain(list.iter().cloned()).collect())
            }
            _ => value.clone(),
        };
        change.insert(key.clone(), value);
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        change.insert(key.clone(), Value::Null);
    }
    (!change.is_empty()).then(|| json!({"metadata": {"uid": pod.text("metadata.uid")}, "status": change}))
}

/// A changed condition with null for the fields that it no longer has, such as a reason: a merge keeps fields that the patch omits.
fn with_removals(before: &[Value], condition: &Value) -> Value {
    let mut out = condition.clone();
    let old = before.iter().find(|old| old.text("type") == condition.text("type"));
    for key in old.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        if condition.get(key.as_str()).is_none() {
            out[key.as_str()] = Value::Null;
        }
    }
    out
}
