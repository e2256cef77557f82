//! Nodes that are not ready, and what becomes of their Pods: a taint that says so, and in time their eviction.
//!
//! ```text
//! conditions of a Node ──TAINTS──▶ taints of the Node ──EVICTION──▶ Pods that do not put up with them are deleted
//! ```
//! A Pod says for how long it puts up with a node that is not ready; admission gives it five minutes when it says nothing.
//! Nodes that never said anything of themselves are left alone, as in [`crate::node_health`].

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use api::view::node::Taint;
use api::view::taints::{NOT_READY, UNREACHABLE, UNSCHEDULABLE};
use serde_json::{Value, json};

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::node::Node;
use crate::objects::placement::Toleration;
use crate::objects::pod::{Pod, seconds};
use crate::report::{self, Finding, Reference};
use crate::workloads::delete_pod;
use crate::world::{Both, Change, What};
use crate::write::Write;

/// The taints that are ours to set and to take away.
const OURS: [&str; 3] = [NOT_READY, UNREACHABLE, UNSCHEDULABLE];
/// How many Pods are deleted in one transaction.
const TOGETHER: usize = 100;

/// Sets taints.
pub(crate) const TAINTS: Controller =
    Controller { name: "node-taints", enabled: always, concerns: taints_concern, reconcile: taint, every: None };

/// Evicts Pods.
pub(crate) const EVICTION: Controller =
    Controller { name: "taint-eviction", enabled: always, concerns: eviction_concerns, reconcile: evict, every: None };

fn taints_concern(_: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if let What::Node(Both { old, new: Some(new) }) = &change.what {
        let same = |old: &Arc<Node>| {
            old.ready == new.ready && old.unschedulable == new.unschedulable && old.taints == new.taints
        };
        // Not ready and unknown are told apart by what is stored, so a Node that is neither is always looked at.
        if !new.ready || !old.as_ref().is_some_and(same) {
            wakes.add(new.name());
        }
    }
}

fn taint(view: &View<'_>, key: &str) -> Verdict {
    let Some(node) = view.world.nodes.get(key) else { return Verdict::settled() };
    let Some(entry) = view.store.get(&node.entry.key) else { return Verdict::settled() };
    let mut object = object::decode_bare(&entry.value);
    let now = view.now_text();
    let before = object.items("spec.taints").to_vec();
    let silent = readiness(&object).is_none();
    let wanted = wanted(&object);
    // What admission gave to a new Node stays until the Node says how it is.
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
        return Verdict::settled();
    }
    if taints.is_empty() {
        object.drop_path("spec.taints");
    } else {
        object.put("spec.taints", taints);
    }
    Verdict::write(vec![Write::Object { table: "minions", object: Box::new(object), modified: entry.modified }])
}

fn is_ours(taint: &Value) -> bool {
    OURS.contains(&taint.text("key"))
}

fn has(wanted: &[(&str, &str)], taint: &Value) -> bool {
    wanted.iter().any(|(key, effect)| taint.text("key") == *key && taint.text("effect") == *effect)
}

/// Whether a Node says that it is ready; nothing when it never said anything.
fn readiness(node: &Value) -> Option<&str> {
    let ready = node.items("status.conditions").iter().find(|condition| condition.text("type") == "Ready")?;
    Some(ready.text("status")).filter(|_| ready.text("reason") != "NodeStatusNeverUpdated")
}

/// The taints of ours that a Node should have.
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

fn eviction_concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Node(Both { new: Some(new), .. }) if evicting(new).next().is_some() => wakes.add(new.name()),
        What::Pod(Both { new: Some(new), .. }) if new.is_active() && evicts(view, &new.node) => wakes.add(&new.node),
        _ => {}
    }
}

fn evicts(view: &View<'_>, node: &str) -> bool {
    view.world.nodes.get(node).is_some_and(|node| evicting(node).next().is_some())
}

fn evicting(node: &Node) -> impl Iterator<Item = &Taint> {
    node.taints.iter().filter(|taint| &*taint.effect == "NoExecute")
}

fn evict(view: &View<'_>, key: &str) -> Verdict {
    let Some(node) = view.world.nodes.get(key) else { return Verdict::settled() };
    let taints: Vec<&Taint> = evicting(node).collect();
    if taints.is_empty() {
        return Verdict::settled();
    }
    let (mut writes, mut verdict, mut next) = (Vec::new(), Verdict::default(), None::<i64>);
    for pod in view.world.pods.on_node(node.name()).filter(|pod| pod.is_active()) {
        let Some(left) = time_left(view, pod, &taints) else { continue };
        if left > 0 {
            next = Some(next.map_or(left, |before| before.min(left)));
        } else if let Some(write) = delete_pod(view, pod) {
            writes.push(write);
            verdict.events.push(event(view, pod));
        }
    }
    verdict.transactions = writes.chunks(TOGETHER).map(<[Write]>::to_vec).collect();
    verdict.again = next.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    verdict
}

/// For how many seconds a Pod still puts up with all of these taints; none for ever.
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
    let finding = Finding { controller, normal: true, reason, message: &message, now: &now };
    report::about("Pod", "v1", &Reference::new(&pod.entry.key.name, &pod.uid), &finding)
}
