//! The scheduler: binds Pods to ready nodes with free resources that match their constraints.
//!
//! ```text
//! unscheduled Pods ─▶ filter nodes (fit) ─▶ highest score (score) ─▶ binding
//!                          └── none: reasons in a condition and an Event
//! ```
//! One reconcile places all Pods in order, and each sees the placements before it, so that a node is not overcommitted. The cache maintains the load of
//! nodes, so the cost depends on unscheduled Pods only.

mod fit;
mod score;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds;
use api::object;
use api::value::ValueExt as _;
use api::view::metadata::controller_of;
use store::Entry;

use self::fit::{FilterFailure, NodeCapacity};
use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::objects::placement::{Placement, SCHEDULER, unscheduled};
use crate::objects::pod::Pod;
use crate::write::Write;

/// The most bindings in one reconcile, and in one transaction.
const BATCH_SIZE: usize = 512;
const TRANSACTION_SIZE: usize = 64;
/// The most Pods that are marked unschedulable in one reconcile.
const MAX_EVENTS: usize = 128;
/// The age, in seconds, up to which a Pod counts as new.
const NEW_POD_SECONDS: i64 = 30;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "scheduler", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let wakes_us = match &change.typed {
        TypedChange::Pod(Versions { new: Some(new), .. }) if new.placement.is_some() => true,
        // Deleted and terminated Pods free resources, if others wait.
        TypedChange::Pod(Versions { old: Some(old), new }) => {
            let left = new.as_ref().is_none_or(|new| new.finished && !old.finished);
            left && !old.node.is_empty() && view.cache.pods.unscheduled().next().is_some()
        }
        TypedChange::Node(Versions { old, new: Some(new) }) => {
            old.as_ref().is_none_or(|old| differs(old, new)) && view.cache.pods.unscheduled().next().is_some()
        }
        _ => false,
    };
    if wakes_us {
        affected.add(SINGLETON_KEY);
    }
}

/// Whether a field changed that scheduling depends on.
fn differs(old: &Node, new: &Node) -> bool {
    old.ready != new.ready
        || old.unschedulable != new.unschedulable
        || old.taints != new.taints
        || old.entry.facts.labels != new.entry.facts.labels
        || (old.millicores, old.memory, old.pods) != (new.millicores, new.memory, new.pods)
}

fn reconcile(view: &View<'_>, _key: &str) -> Outcome {
    let mut unscheduled: Vec<(&Arc<Pod>, &Placement)> =
        view.cache.pods.unscheduled().filter_map(|pod| Some((pod, pod.placement.as_deref()?))).collect();
    unscheduled.sort_by_key(|(pod, placement)| (Reverse(placement.priority), pod.created, &pod.entry.key.name));
    let mut run = Run::new(view);
    for (pod, placement) in unscheduled {
        if run.bindings.len() == BATCH_SIZE {
            run.more = true;
            break;
        }
        run.place(pod, placement);
    }
    run.finish()
}

/// One scheduling cycle.
struct Run<'a> {
    view: &'a View<'a>,
    rooms: Vec<NodeCapacity<'a>>,
    /// Pods of an owner per node, counted on demand.
    relatives: HashMap<Box<str>, Vec<usize>>,
    bindings: Vec<Write>,
    refusals: Vec<Write>,
    events: Vec<Write>,
    more: bool,
}

impl<'a> Run<'a> {
    fn new(view: &'a View<'a>) -> Self {
        let rooms = view.cache.nodes.iter().map(|node| NodeCapacity::of(view, node)).collect();
        Self {
            view,
            rooms,
            relatives: HashMap::new(),
            bindings: Vec::new(),
            refusals: Vec::new(),
            events: Vec::new(),
            more: false,
        }
    }

    fn place(&mut self, pod: &'a Arc<Pod>, placement: &Placement) {
        let Some(entry) = current(self.view, pod) else { return };
        let mut reasons: Vec<FilterFailure> = Vec::new();
        let mut fitting = Vec::new();
        for (index, room) in self.rooms.iter().enumerate() {
            match room.accepts(pod, placement) {
                Ok(()) => fitting.push(index),
                Err(why) => reasons.push(why),
            }
        }
        let owner = controller_of(self.view.cache.owners.of(&pod.entry.key)).map(|owner| owner.uid.clone());
        let Some(best) = self.best(placement, owner.as_deref(), &fitting) else {
            let message = fit::explain(self.rooms.len(), reasons);
            self.refuse(pod, placement, &entry, &message);
            return;
        };
        let node = self.rooms[best].node.name();
        let mut bound = object::decode_bare(&entry.value);
        if kinds::pod::bind(&mut bound, node, &self.view.now_text()).is_err() {
            return;
        }
        let (part, object) = (kinds::pod::BINDING, Box::new(bound));
        self.bindings.push(Write::Subresource { table: "pods", part, object, modified: entry.modified });
        let message = format!("Successfully assigned {} to {node}", pod.entry.key.name);
        self.record_event(pod, true, "Scheduled", &message);
        self.rooms[best].take(pod);
        if let Some(count) = owner.and_then(|owner| self.relatives.get_mut(&owner)) {
            count[best] += 1;
        }
    }

    /// The node with the highest score.
    fn best(&mut self, placement: &Placement, owner: Option<&str>, fitting: &[usize]) -> Option<usize> {
        let relatives = owner.map(|owner| {
            let (view, rooms) = (self.view, &self.rooms);
            &*self.relatives.entry(owner.into()).or_insert_with(|| score::relatives(view, owner, rooms))
        });
        let score = |index: &usize| score::of(&self.rooms[*index], placement, relatives.map_or(0, |all| all[*index]));
        // Ties are broken by name, so that results are deterministic.
        fitting.iter().copied().max_by_key(|index| (score(index), Reverse(*index)))
    }

    /// Records why a Pod is unschedulable, once per message.
    fn refuse(&mut self, pod: &'a Arc<Pod>, placement: &Placement, entry: &Entry, message: &str) {
        if placement.last_message.as_deref() == Some(message) {
            return;
        }
        if self.rooms.is_empty() {
            // Without any nodes, Pods describe external workloads: record an Event for new ones, and do not change the Pod.
            if self.view.now.as_second() - pod.created < NEW_POD_SECONDS && self.events.len() < MAX_EVENTS {
                self.record_event(pod, false, "FailedScheduling", message);
            }
            return;
        }
        if self.refusals.len() == MAX_EVENTS {
            self.more = true;
            return;
        }
        let mut object = object::decode_bare(&entry.value);
        if !object.text("spec.nodeName").is_empty() {
            return;
        }
        let mut conditions = object.items("status.conditions").to_vec();
        conditions.retain(|condition| condition.text("type") != "PodScheduled");
        conditions.push(unscheduled(message, &self.view.now_text()));
        object.put("status.conditions", conditions);
        let (part, object) = ("status", Box::new(object));
        self.refusals.push(Write::Subresource { table: "pods", part, object, modified: entry.modified });
        self.record_event(pod, false, "FailedScheduling", message);
    }

    fn record_event(&mut self, pod: &Pod, normal: bool, reason: &str, message: &str) {
        let reference = Reference::new(&pod.entry.key.name, &pod.uid);
        let now = self.view.now_text();
        let finding = EventDetails { controller: SCHEDULER, normal, reason, message, now: &now };
        self.events.push(event::new_event("Pod", "v1", &reference, &finding));
    }

    fn finish(self) -> Outcome {
        let chunks = self.bindings.chunks(TRANSACTION_SIZE).chain(self.refusals.chunks(TRANSACTION_SIZE));
        let transactions = chunks.map(<[Write]>::to_vec).collect();
        let requeue_after = self.more.then_some(Duration::ZERO);
        Outcome { transactions, events: self.events, requeue_after, ..Outcome::done() }
    }
}

/// The stored Pod; `None` if it was replaced or is being deleted.
fn current(view: &View<'_>, pod: &Pod) -> Option<Arc<Entry>> {
    let entry = view.store.get(&pod.entry.key)?;
    if entry.modified == pod.entry.modified {
        return Some(entry);
    }
    let now = ownership(&entry.value);
    (now.uid == pod.uid && !now.is_deleting()).then_some(entry)
}
