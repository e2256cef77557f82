//! Taints of Nodes that are not ready, and eviction of their Pods.
//!
//! ```text
//! conditions of a Node ──TAINTS──▶ taints of the Node ──EVICTION──▶ Pods that do not tolerate them are deleted
//! ```
//! `tolerationSeconds` determines the delay; admission adds a default of five minutes. Nodes that never reported a status are ignored, as in
//! [`crate::node_health`].

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use api::view::node::Taint;
use api::view::taints::{NOT_READY, UNREACHABLE, UNSCHEDULABLE};
use serde_json::{Value, json};

use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::objects::node::Node;
use crate::objects::placement::Toleration;
use crate::objects::pod::{Pod, seconds};
use crate::workloads::delete_pod;
use crate::write::Write;

/// The taints of this controller.
const OURS: [&str; 3] = [NOT_READY, UNREACHABLE, UNSCHEDULABLE];
/// The most deletions in one transaction.
const TRANSACTION_SIZE: usize = 100;

/// Sets taints.
pub(crate) const TAINTS: Controller = Controller {
    name: "node-taints",
    enabled: always,
    affected_keys: taints_concern,
    reconcile: taint,
    resync_period: None,
};

/// Evicts Pods.
pub(crate) const EVICTION: Controller = Controller {
    name: "taint-eviction",
    enabled: always,
    affected_keys: affected_by_eviction,
    reconcile: evict,
    resync_period: None,
};

fn taints_concern(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if let TypedChange::Node(Versions { old, new: Some(new) }) = &change.typed {
        let same = |old: &Arc<Node>| {
            old.ready == new.ready && old.unschedulable == new.unschedulable && old.taints == new.taints
        };
        // The cache does not distinguish False from Unknown, so an unready Node is always reconciled.
        if !new.ready || !old.as_ref().is_some_and(same) {
            affected.add(new.name());
        }
    }
}

fn taint(view: &View<'_>, key: &str) -> Outcome {
    let Some(node) = view.cache.nodes.get(key) else { return Outcome::done() };
    let Some(entry) = view.store.get(&node.entry.key) else { return Outcome::done() };
    let mut object = object::decode_bare(&entry.value);
    let now = view.now_text();
    let before = object.items("spec.taints").to_vec();
    let silent = readiness(&object).is_none();
    let wanted = wanted(&object);
    // Taints from admission stay until the Node reports its status.
    let stays =
        |taint: &&Value| !is_ours(taint) || has(&wanted, taint) || (silent && taint.text("key") != UNSCHEDULABLE);
    let mut taints: Vec<Value> = before.iter().filter(stays).cloned().collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.text("key") == key && taint.text("effect") == effect) {
            let mut taint = json!({"key": key, "effect": effect});
            if effect == "NoExecute" || key != UNSCHEDULABLE {
                taint.put("timeAdded", now.as_str());
            }
            taints.push(taint);
        }
    }
    if taints == before {
        return Outcome::done();
    }
    if taints.is_empty() {
        object.drop_path("spec.taints");
    } else {
        object.put("spec.taints", taints);
    }
    Outcome::write(vec![Write::Object { table: "minions", object: Box::new(object), modified: entry.modified }])
}

fn is_ours(taint: &Value) -> bool {
    OURS.contains(&taint.text("key"))
}

fn has(wanted: &[(&str, &str)], taint: &Value) -> bool {
    wanted.iter().any(|(key, effect)| taint.text("key") == *key && taint.text("effect") == *effect)
}

/// The Ready status of a Node; `None` when it never reported one.
fn readiness(node: &Value) -> Option<&str> {
    let ready = node.items("status.conditions").iter().find(|condition| condition.text("type") == "Ready")?;
    Some(ready.text("status")).filter(|_| ready.text("reason") != "NodeStatusNeverUpdated")
}

/// The desired taints of this controller.
fn wanted(node: &Value) -> Vec<(&'static str, &'static str)> {
    let mut taints = match readiness(node) {
        Some("False") => vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
        Some("Unknown") => vec![(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
        _ => Vec::new(),
    };
    if node.flag("spec.unschedulable") {
        taints.push((UNSCHEDULABLE, "NoSchedule"));
    }
    taints
}

fn affected_by_eviction(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Node(Versions { new: Some(new), .. }) if evicting(new).next().is_some() => {
            affected.add(new.name());
        }
        TypedChange::Pod(Versions { new: Some(new), .. }) if new.is_active() && evicts(view, &new.node) => {
            affected.add(&new.node);
        }
        _ => {}
    }
}

fn evicts(view: &View<'_>, node: &str) -> bool {
    view.cache.nodes.get(node).is_some_and(|node| evicting(node).next().is_some())
}

fn evicting(node: &Node) -> impl Iterator<Item = &Taint> {
    node.taints.iter().filter(|taint| &*taint.effect == "NoExecute")
}

fn evict(view: &View<'_>, key: &str) -> Outcome {
    let Some(node) = view.cache.nodes.get(key) else { return Outcome::done() };
    let taints: Vec<&Taint> = evicting(node).collect();
    if taints.is_empty() {
        return Outcome::done();
    }
    let (mut writes, mut outcome, mut next) = (Vec::new(), Outcome::default(), None::<i64>);
    for pod in view.cache.pods.on_node(node.name()).filter(|pod| pod.is_active()) {
        let Some(left) = time_left(view, pod, &taints) else { continue };
        if left > 0 {
            next = Some(next.map_or(left, |before| before.min(left)));
        } else if let Some(write) = delete_pod(view, pod) {
            writes.push(write);
            outcome.events.push(event(view, pod));
        }
    }
    outcome.transactions = writes.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec).collect();
    outcome.requeue_after = next.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    outcome
}

/// For how many seconds a Pod tolerates these taints; `None` is unlimited.
fn time_left(view: &View<'_>, pod: &Pod, taints: &[&Taint]) -> Option<i64> {
    let entry = view.store.get(&pod.entry.key)?;
    let object = object::decode_light(&entry.value);
    let tolerations: Vec<Toleration> = object.items("spec.tolerations").iter().map(Toleration::read).collect();
    let now = view.now.as_second();
    let mut left: Option<i64> = None;
    for taint in taints {
        let since = taint.time_added.as_deref().map_or(now, seconds);
        let covering: Vec<&Toleration> = tolerations.iter().filter(|toleration| toleration.covers(taint)).collect();
        let allowed = match covering.as_slice() {
            [] => Some(0),
            all => all.iter().filter_map(|toleration| toleration.seconds).min().map(|seconds| seconds.max(0)),
        };
        if let Some(allowed) = allowed {
            let rest = since.saturating_add(allowed) - now;
            left = Some(left.map_or(rest, |before| before.min(rest)));
        }
    }
    left
}

fn event(view: &View<'_>, pod: &Pod) -> Write {
    let now = view.now_text();
    let message = format!("Marking for deletion Pod {}", pod.entry.key.name);
    let (controller, reason) = ("taint-eviction-controller", "TaintManagerEviction");
    let finding = EventDetails { controller, normal: true, reason, message: &message, now: &now };
    event::new_event("Pod", "v1", &Reference::new(&pod.entry.key.name, &pod.uid), &finding)
}
