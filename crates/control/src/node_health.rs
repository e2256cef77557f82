//! Nodes that fall silent: they become Unknown, and their Pods leave the endpoints (S19).
//!
//! In: when each Node was last heard of, by the clock that never jumps. Out: the conditions of the Node, and the Ready
//! condition of the Pods on it. A Node that speaks again says itself how it and its Pods are.
//!
//! Heartbeats wake nobody: the key of a Node waits for the end of its grace, and when it is looked at then and the Node was
//! heard of meanwhile, it waits for the rest. So a beat costs one look into the queue, or nothing.
//!
//! A Node that says of itself that it is not ready takes its Pods out once, at that moment. They may be set right by the
//! Node afterwards, so this has a key of its own, which no clock wakes.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::report::{self, Finding, Reference};
use crate::world::{Both, Change, What};
use crate::write::Write;

/// Where Nodes keep their Leases.
const LEASES: &str = "kube-node-lease/";
/// What the key of a Node that says it is not ready ends in; no name has a slash.
const BY_ITS_OWN_WORD: &str = "/not-ready";
/// What nobody knows any more of a silent Node. Whether its network works is for others to say.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// The reason of a condition that was never set by the Node.
const NEVER: &str = "NodeStatusNeverUpdated";
/// How many Pods are written in one transaction.
const AT_ONCE: usize = 100;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "node-health", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Node(Both { old, new: Some(new) }) => node_concerns(view, change, old.as_deref(), new, wakes),
        What::Pod(Both { old, new: Some(new) }) if new.ready && !change.initial => {
            pod_concerns(view, old.as_deref(), new, wakes);
        }
        What::Other if change.is_of("leases") => {
            // Nobody waits for a Node that is lost already; it may be lost again before it says anything but this.
            if let Some(name) = change.key().strip_prefix(LEASES)
                && view.world.nodes.get(name).is_some_and(|node| !node.ready)
            {
                wakes.add_after(name, view.settings.node_grace);
            }
        }
        _ => {}
    }
}

fn node_concerns(view: &View<'_>, change: &Change, old: Option<&Node>, new: &Node, wakes: &mut Wakes<'_>) {
    if old.is_none_or(|old| old.heartbeat != new.heartbeat || old.ready != new.ready) {
        wakes.add_after(new.name(), view.settings.node_grace);
    }
    if !new.ready && (change.initial || old.is_some_and(|old| old.ready)) {
        wakes.add(&format!("{}{BY_ITS_OWN_WORD}", new.name()));
    }
}

/// A ready Pod that comes to a Node that is not, or of which we hear only after we have heard that of the Node.
fn pod_concerns(view: &View<'_>, old: Option<&Pod>, new: &Pod, wakes: &mut Wakes<'_>) {
    let Some(node) = view.world.nodes.get(&new.node).filter(|node| !node.ready) else { return };
    let came = old.is_none_or(|old| old.node != new.node);
    if came || new.entry.modified < node.entry.modified {
        wakes.add(node.name());
        wakes.add(&format!("{}{BY_ITS_OWN_WORD}", node.name()));
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let by_its_own_word = key.strip_suffix(BY_ITS_OWN_WORD);
    let Some(node) = view.world.nodes.get(by_its_own_word.unwrap_or(key)) else { return Verdict::settled() };
    if by_its_own_word.is_some() { say_not_ready(view, node) } else { listen(view, node) }
}

/// Waits for the end of the grace, and gives up a Node that is silent until then.
fn listen(view: &View<'_>, node: &Arc<Node>) -> Verdict {
    let heard = view.world.nodes.last_heard(node.name()).unwrap_or(view.instant);
    let rest = view.settings.node_grace.saturating_sub(view.instant.saturating_duration_since(heard));
    if rest > Duration::ZERO {
        return Verdict { again: Some(rest), ..Verdict::default() };
    }
    let seen = object::decode_bare(&node.entry.value);
    let mut unknown = seen.clone();
    give_up(&mut unknown, &view.now_text());
    let mut verdict = Verdict::default();
    // Pods of a Node that never said anything were made ready by somebody else, who may well be there.
    if condition(&unknown, "Ready").is_some_and(|ready| ready.text("reason") != NEVER) {
        if condition(&seen, "Ready") != condition(&unknown, "Ready") {
            verdict.events.push(node_event(view, node));
        }
        take_pods_out(view, node, &mut verdict);
    }
    // First the Node: if it has spoken meanwhile this fails, and its Pods stay as they are.
    if unknown != seen {
        let write = Write::Object { table: "minions", object: Box::new(unknown), modified: node.entry.modified };
        verdict.transactions.insert(0, vec![write]);
    }
    verdict
}

/// Takes the Pods out of a Node that says it is not ready.
fn say_not_ready(view: &View<'_>, node: &Arc<Node>) -> Verdict {
    let mut verdict = Verdict::default();
    let now = view.store.get(&node.entry.key).map(|entry| object::decode_light(&entry.value));
    if now.is_some_and(|now| condition(&now, "Ready").is_some_and(|ready| ready.text("status") == "False")) {
        verdict.events.push(node_event(view, node));
        take_pods_out(view, node, &mut verdict);
    }
    verdict
}

/// Sets what is known of a Node to Unknown.
fn give_up(node: &mut Value, now: &str) {
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

fn take_pods_out(view: &View<'_>, node: &Node, verdict: &mut Verdict) {
    let now = view.now_text();
    let ready = view.world.pods.on_node(node.name()).filter(|pod| pod.ready);
    let (mut writes, mut told) = (Vec::new(), Vec::new());
    for pod in ready {
        if let Some(write) = not_ready(view, pod, &now) {
            writes.push(write);
            let about = Reference::new(&pod.entry.key.name, &pod.uid);
            told.push(report::about("Pod", "v1", &about, &finding(false, "Node is not ready", &now)));
        }
    }
    verdict.transactions.extend(writes.chunks(AT_ONCE).map(<[Write]>::to_vec));
    verdict.events.extend(told);
}

/// A Pod as it is stored now, but not ready; nothing if it is that already, or another one by now.
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
    let about = Reference::new(node.name(), &ownership(&node.entry.value).uid);
    report::about("Node", "v1", &about, &finding(true, &message, &now))
}

fn finding<'a>(normal: bool, message: &'a str, now: &'a str) -> Finding<'a> {
    Finding { controller: "node-controller", normal, reason: "NodeNotReady", message, now }
}
