//! Scheduler: Pods without a node get one that is ready, has room, and that they want.
//!
//! ```text
//! Pods that wait ─▶ which nodes fit (fit) ─▶ the one that is liked best (score) ─▶ binding
//!                          └── none: why not, in a condition and an Event
//! ```
//! All Pods are looked at in one run, one after the other, and each sees what was given to those before it: so two Pods
//! never get the same last place. The load of a node is kept up to date by the world, so a run costs what waits, not what
//! is there.

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

use self::fit::{Room, Unfit};
use crate::controller::{Controller, Verdict, View, WHOLE, Wakes, always};
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::objects::placement::{Placement, SCHEDULER, unscheduled};
use crate::objects::pod::Pod;
use crate::report::{self, Finding, Reference};
use crate::world::{Both, Change, What};
use crate::write::Write;

/// How many Pods get a node in one run, and how many of them in one transaction.
const AT_ONCE: usize = 512;
const TOGETHER: usize = 64;
/// How many Pods are told in one run that there is no node for them.
const TOLD: usize = 128;
/// For how many seconds a Pod is new.
const NEW: i64 = 30;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "scheduler", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    let wakes_us = match &change.what {
        What::Pod(Both { new: Some(new), .. }) if new.placement.is_some() => true,
        // Room is made by Pods that go or end, if anybody waits for it.
        What::Pod(Both { old: Some(old), new }) => {
            let left = new.as_ref().is_none_or(|new| new.finished && !old.finished);
            left && !old.node.is_empty() && view.world.pods.waiting().next().is_some()
        }
        What::Node(Both { old, new: Some(new) }) => {
            old.as_ref().is_none_or(|old| differs(old, new)) && view.world.pods.waiting().next().is_some()
        }
        _ => false,
    };
    if wakes_us {
        wakes.add(WHOLE);
    }
}

/// Whether a Pod could fit now that did not before.
fn differs(old: &Node, new: &Node) -> bool {
    old.ready != new.ready
        || old.unschedulable != new.unschedulable
        || old.taints != new.taints
        || old.entry.facts.labels != new.entry.facts.labels
        || (old.millicores, old.memory, old.pods) != (new.millicores, new.memory, new.pods)
}

fn reconcile(view: &View<'_>, _key: &str) -> Verdict {
    let mut waiting: Vec<(&Arc<Pod>, &Placement)> =
        view.world.pods.waiting().filter_map(|pod| Some((pod, pod.placement.as_deref()?))).collect();
    waiting.sort_by_key(|(pod, placement)| (Reverse(placement.priority), pod.created, &pod.entry.key.name));
    let mut run = Run::new(view);
    for (pod, placement) in waiting {
        if run.bindings.len() == AT_ONCE {
            run.more = true;
            break;
        }
        run.place(pod, placement);
    }
    run.finish()
}

/// One run.
struct Run<'a> {
    view: &'a View<'a>,
    rooms: Vec<Room<'a>>,
    /// How many Pods of an owner each node has; counted when the first Pod of the owner comes.
    relatives: HashMap<Box<str>, Vec<usize>>,
    bindings: Vec<Write>,
    refusals: Vec<Write>,
    events: Vec<Write>,
    more: bool,
}

impl<'a> Run<'a> {
    fn new(view: &'a View<'a>) -> Self {
        let rooms = view.world.nodes.iter().map(|node| Room::of(view, node)).collect();
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
        let mut reasons: Vec<Unfit> = Vec::new();
        let mut fitting = Vec::new();
        for (index, room) in self.rooms.iter().enumerate() {
            match room.takes(pod, placement) {
                Ok(()) => fitting.push(index),
                Err(why) => reasons.push(why),
            }
        }
        let owner = controller_of(self.view.world.owners.of(&pod.entry.key)).map(|owner| owner.uid.clone());
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
        self.bindings.push(Write::Part { table: "pods", part, object, modified: entry.modified });
        let message = format!("Successfully assigned {} to {node}", pod.entry.key.name);
        self.say(pod, true, "Scheduled", &message);
        self.rooms[best].take(pod);
        if let Some(count) = owner.and_then(|owner| self.relatives.get_mut(&owner)) {
            count[best] += 1;
        }
    }

    /// The node that is liked best among those that fit.
    fn best(&mut self, placement: &Placement, owner: Option<&str>, fitting: &[usize]) -> Option<usize> {
        let relatives = owner.map(|owner| {
            let (view, rooms) = (self.view, &self.rooms);
            &*self.relatives.entry(owner.into()).or_insert_with(|| score::relatives(view, owner, rooms))
        });
        let score = |index: &usize| score::of(&self.rooms[*index], placement, relatives.map_or(0, |all| all[*index]));
        // Of equal ones the first by name, so that equal worlds give equal answers.
        fitting.iter().copied().max_by_key(|index| (score(index), Reverse(*index)))
    }

    /// Says why a Pod has no node, once for each reason.
    fn refuse(&mut self, pod: &'a Arc<Pod>, placement: &Placement, entry: &Entry, message: &str) {
        if placement.told.as_deref() == Some(message) {
            return;
        }
        if self.rooms.is_empty() {
            // Where there are no nodes at all Pods are written by hand, and nobody waits for a node: it is said when they
            // are new, and the Pod stays as its author knows it.
            if self.view.now.as_second() - pod.created < NEW && self.events.len() < TOLD {
                self.say(pod, false, "FailedScheduling", message);
            }
            return;
        }
        if self.refusals.len() == TOLD {
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
        self.refusals.push(Write::Part { table: "pods", part, object, modified: entry.modified });
        self.say(pod, false, "FailedScheduling", message);
    }

    fn say(&mut self, pod: &Pod, normal: bool, reason: &str, message: &str) {
        let about = Reference::new(&pod.entry.key.name, &pod.uid);
        let now = self.view.now_text();
        let finding = Finding { controller: SCHEDULER, normal, reason, message, now: &now };
        self.events.push(report::about("Pod", "v1", &about, &finding));
    }

    fn finish(self) -> Verdict {
        let chunks = self.bindings.chunks(TOGETHER).chain(self.refusals.chunks(TOGETHER));
        let transactions = chunks.map(<[Write]>::to_vec).collect();
        Verdict { transactions, events: self.events, again: self.more.then_some(Duration::ZERO) }
    }
}

/// A waiting Pod as it is stored now; nothing if it is another one by now, or waits no more.
fn current(view: &View<'_>, pod: &Pod) -> Option<Arc<Entry>> {
    let entry = view.store.get(&pod.entry.key)?;
    if entry.modified == pod.entry.modified {
        return Some(entry);
    }
    let now = ownership(&entry.value);
    (now.uid == pod.uid && !now.is_deleting()).then_some(entry)
}
