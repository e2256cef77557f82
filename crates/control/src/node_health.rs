//! Node lifecycle: Nodes without heartbeats become Unknown, and their Pods unready (S19).
//!
//! In: the last heartbeat of each Node, by the monotonic clock. Out: the conditions of the Node, and the Ready condition of its Pods. When the Node is back,
//! it reports its own state and that of its Pods.
//!
//! Heartbeats do not trigger reconciles: the key of a Node is scheduled for the end of the grace period and, if there was a heartbeat meanwhile, for the
//! rest.
//!
//! A Node that reports itself not ready makes its Pods unready once. The Node may correct them afterwards, so this has its own queue key without a timer.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::write::Write;

/// The namespace of Node Leases.
const LEASES: &str = "kube-node-lease/";
/// The suffix of the queue key of a Node that reports itself not ready; names contain no slash.
const SELF_REPORTED: &str = "/not-ready";
/// The conditions that become Unknown. NetworkUnavailable is set by other components.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// The reason of a condition that the Node never set.
const NEVER: &str = "NodeStatusNeverUpdated";
/// The most Pods in one transaction.
const TRANSACTION_SIZE: usize = 100;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "node-health", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Node(Versions { old, new: Some(new) }) => {
            affected_by_node(view, change, old.as_deref(), new, affected);
        }
        TypedChange::Pod(Versions { old, new: Some(new) }) if new.ready && !change.initial => {
            affected_by_pod(view, old.as_deref(), new, affected);
        }
        TypedChange::Other if change.is_of("leases") => {
            // Keys of Nodes that are not ready have no timer: schedule one with each Lease renewal.
            if let Some(name) = change.key().strip_prefix(LEASES)
                && view.cache.nodes.get(name).is_some_and(|node| !node.ready)
            {
                affected.add_after(name, view.settings.node_grace);
            }
        }
        _ => {}
    }
}

fn affected_by_node(view: &View<'_>, change: &Change, old: Option<&Node>, new: &Node, affected: &mut AffectedKeys<'_>) {
    if old.is_none_or(|old| old.heartbeat != new.heartbeat || old.ready != new.ready) {
        affected.add_after(new.name(), view.settings.node_grace);
    }
    if !new.ready && (change.initial || old.is_some_and(|old| old.ready)) {
        affected.add(&format!("{}{SELF_REPORTED}", new.name()));
    }
}

/// A ready Pod on a Node that is not ready: it was bound there, or its update arrived after that of the Node.
fn affected_by_pod(view: &View<'_>, old: Option<&Pod>, new: &Pod, affected: &mut AffectedKeys<'_>) {
    let Some(node) = view.cache.nodes.get(&new.node).filter(|node| !node.ready) else { return };
    let came = old.is_none_or(|old| old.node != new.node);
    if came || new.entry.modified < node.entry.modified {
        affected.add(node.name());
        affected.add(&format!("{}{SELF_REPORTED}", node.name()));
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let self_reported = key.strip_suffix(SELF_REPORTED);
    let Some(node) = view.cache.nodes.get(self_reported.unwrap_or(key)) else { return Outcome::done() };
    if self_reported.is_some() { mark_not_ready(view, node) } else { listen(view, node) }
}

/// Schedules the end of the grace period, or marks the Node as Unknown.
fn listen(view: &View<'_>, node: &Arc<Node>) -> Outcome {
    let heard = view.cache.nodes.last_heartbeat(node.name()).unwrap_or(view.instant);
    let rest = view.settings.node_grace.saturating_sub(view.instant.saturating_duration_since(heard));
    if rest > Duration::ZERO {
        return Outcome { requeue_after: Some(rest), ..Outcome::default() };
    }
    let seen = object::decode_bare(&node.entry.value);
    let mut unknown = seen.clone();
    mark_unknown(&mut unknown, &view.now_text());
    let mut outcome = Outcome::default();
    // Pods of a Node that never reported are managed by another component.
    if condition(&unknown, "Ready").is_some_and(|ready| ready.text("reason") != NEVER) {
        if condition(&seen, "Ready") != condition(&unknown, "Ready") {
            outcome.events.push(node_event(view, node));
        }
        mark_pods_not_ready(view, node, &mut outcome);
    }
    // The Node first: after a heartbeat meanwhile this conflicts, and its Pods are not changed.
    if unknown != seen {
        let write = Write::Object { table: "minions", object: Box::new(unknown), modified: node.entry.modified };
        outcome.transactions.insert(0, vec![write]);
    }
    outcome
}

/// Marks the Pods of a Node that reports itself not ready.
fn mark_not_ready(view: &View<'_>, node: &Arc<Node>) -> Outcome {
    let mut outcome = Outcome::default();
    let now = view.store.get(&node.entry.key).map(|entry| object::decode_light(&entry.value));
    if now.is_some_and(|now| condition(&now, "Ready").is_some_and(|ready| ready.text("status") == "False")) {
        outcome.events.push(node_event(view, node));
        mark_pods_not_ready(view, node, &mut outcome);
    }
    outcome
}

/// Sets the conditions of a Node to Unknown.
fn mark_unknown(node: &mut Value, now: &str) {
    let mut conditions = node.items("status.conditions").to_vec();
    for kind in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.text("type") == kind) {
            Some(condition) if condition.text("status") == "Unknown" => {}
            Some(condition) => {
                condition.put("status", "Unknown");
                condition.put("reason", "NodeStatusUnknown");
                condition.put("message", "Kubelet stopped posting node status.");
                condition.put("lastTransitionTime", now);
            }
            None => conditions.push(json!({
                "type": kind, "status": "Unknown", "reason": NEVER, "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": node.at("metadata.creationTimestamp"), "lastTransitionTime": now,
            })),
        }
    }
    node.put("status.conditions", conditions);
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.items("status.conditions").iter().find(|condition| condition.text("type") == kind)
}

fn mark_pods_not_ready(view: &View<'_>, node: &Node, outcome: &mut Outcome) {
    let now = view.now_text();
    let ready = view.cache.pods.on_node(node.name()).filter(|pod| pod.ready);
    let (mut writes, mut events) = (Vec::new(), Vec::new());
    for pod in ready {
        if let Some(write) = not_ready(view, pod, &now) {
            writes.push(write);
            let reference = Reference::new(&pod.entry.key.name, &pod.uid);
            events.push(event::new_event("Pod", "v1", &reference, &finding(false, "Node is not ready", &now)));
        }
    }
    outcome.transactions.extend(writes.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec));
    outcome.events.extend(events);
}

/// The stored Pod with Ready False; `None` if it is not ready already, or was replaced.
fn not_ready(view: &View<'_>, pod: &Pod, now: &str) -> Option<Write> {
    let entry = view.store.get(&pod.entry.key)?;
    let mut object = object::decode_bare(&entry.value);
    let is_same = object.text("metadata.uid") == &*pod.uid;
    let mut conditions = object.items_mut("status.conditions").iter_mut();
    let ready = conditions.find(|condition| condition.text("type") == "Ready" && condition.text("status") == "True")?;
    ready.put("status", "False");
    ready.put("lastTransitionTime", now);
    is_same.then(|| Write::Object { table: "pods", object: Box::new(object), modified: entry.modified })
}

fn node_event(view: &View<'_>, node: &Node) -> Write {
    let (now, message) = (view.now_text(), format!("Node {} status is now: NodeNotReady", node.name()));
    let reference = Reference::new(node.name(), &ownership(&node.entry.value).uid);
    event::new_event("Node", "v1", &reference, &finding(true, &message, &now))
}

fn finding<'a>(normal: bool, message: &'a str, now: &'a str) -> EventDetails<'a> {
    EventDetails { controller: "node-controller", normal, reason: "NodeNotReady", message, now }
}
