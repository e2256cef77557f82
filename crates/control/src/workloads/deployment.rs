//! Deployment: one ReplicaSet for each template it ever had, Pods moved from the old ones to the newest.
//!
//! ```text
//! claim ─▶ revision (find or make the newest set) ─▶ scale | rolling | recreate ─▶ clean up ─▶ status
//! ```
//! In: the Deployment, its ReplicaSets and what they say of their Pods. Out: one transaction: sizes of ReplicaSets, a new
//! one, old ones deleted, and the status. Each run takes one step; the ReplicaSets report, and that wakes the next.

mod proportion;
mod revision;
mod rolling;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(super) use self::revision::hash;

use api::portion::{Portion, Rounding};
use api::value::ValueExt as _;
use api::view::annotations::DEPLOYMENT_REVISION;
use serde_json::Value;

use super::claim;
use super::{Flavor, Held};
use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::pod::seconds;
use crate::world::Change;
use crate::write::Write;

/// How many Pods the Deployment wanted when a set was last scaled.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many Pods there could be then, the surge among them.
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
/// A deadline or a limit that is none.
const UNLIMITED: i64 = i32::MAX as i64;

/// Deployments.
pub(crate) const FLAVOR: Flavor =
    Flavor { table: "deployments", kind: "Deployment", api_version: "apps/v1", controller: "deployment-controller" };

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "deployment", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if change.is_of(super::replicas::SETS.table) {
        FLAVOR.wake(view, change, wakes);
    } else if change.is_of(FLAVOR.table) && !change.deleted {
        wakes.add(change.key());
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let Some(held) = Held::read(view, FLAVOR.table, key) else { return Verdict::settled() };
    let Some(selector) = held.selector() else { return Verdict::settled() };
    let claim = claim::objects(view, &FLAVOR, &held, super::replicas::SETS.table, &selector);
    if !claim.writes.is_empty() {
        return Verdict::write(claim.writes);
    }
    let mut work = Work::new(view, &held, claim.own);
    work.take_a_step();
    work.finish()
}

/// A Deployment, and what is to become of it and its sets.
struct Work<'a> {
    view: &'a View<'a>,
    held: &'a Held,
    /// The Deployment as it should be written.
    new: Value,
    /// Its sets, the oldest first.
    sets: Vec<Set>,
    /// Which of them has the present template.
    newest: Option<usize>,
    events: Vec<Write>,
    again: Option<std::time::Duration>,
}

/// A ReplicaSet, and what is to become of it.
struct Set {
    /// As it is stored; none when it is to be made.
    held: Option<Held>,
    /// As it should be.
    object: Value,
    delete: bool,
}

impl<'a> Work<'a> {
    fn new(view: &'a View<'a>, held: &'a Held, sets: Vec<Held>) -> Self {
        let mut sets: Vec<Set> =
            sets.into_iter().map(|held| Set { object: held.object.clone(), held: Some(held), delete: false }).collect();
        sets.sort_by_cached_key(|set| (set.created(), set.name().to_owned()));
        let mut work =
            Self { view, held, new: held.object.clone(), sets, newest: None, events: Vec::new(), again: None };
        work.newest = work.find_newest();
        work
    }

    fn take_a_step(&mut self) {
        if self.held.is_deleting() {
            self.set_status(false);
            return;
        }
        self.note_pause();
        if self.held.object.flag("spec.paused") || self.is_scaling() {
            self.update_newest();
            self.scale();
            if self.held.object.flag("spec.paused") {
                self.clean_up();
            }
            self.set_status(false);
            return;
        }
        match self.held.object.text("spec.strategy.type") {
            "Recreate" => self.recreate(),
            _ => self.roll(),
        }
        self.set_status(true);
    }

    /// How many Pods are wanted.
    fn wanted(&self) -> i64 {
        self.held.object.int("spec.replicas")
    }

    /// How many Pods there may be beyond those, and how many of those may be missing, during a rolling update.
    fn bounds(&self) -> (i64, i64) {
        let strategy = self.held.object.at("spec.strategy");
        if strategy.text("type") != "RollingUpdate" {
            return (0, 0);
        }
        let of = |field: &str, rounding| {
            Portion::read(strategy.at("rollingUpdate").at(field)).map_or(0, |part| part.of(self.wanted(), rounding))
        };
        match (of("maxSurge", Rounding::Up), of("maxUnavailable", Rounding::Down)) {
            // Percentages of little may both come to nothing, and then nothing would ever move.
            (0, 0) => (0, 1),
            bounds => bounds,
        }
    }

    fn surge(&self) -> i64 {
        self.bounds().0
    }

    fn unavailable(&self) -> i64 {
        if self.wanted() == 0 { 0 } else { self.bounds().1.min(self.wanted()) }
    }

    /// The places of the sets that are not the newest.
    fn old(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|index| Some(*index) != self.newest).collect()
    }

    /// The places of old sets that want Pods.
    fn active_old(&self) -> Vec<usize> {
        self.old().into_iter().filter(|index| self.sets[*index].size() > 0).collect()
    }

    /// How many Pods all sets want together.
    fn total(&self) -> i64 {
        self.sets.iter().map(Set::size).sum()
    }

    /// Whether the Deployment wants another number of Pods than when its sets were last scaled.
    fn is_scaling(&self) -> bool {
        let wanted = self.wanted();
        let active = self.sets.iter().filter(|set| set.size() > 0);
        active.into_iter().any(|set| set.number(DESIRED).is_some_and(|desired| desired != wanted))
    }

    /// Gives a set another size, and says so.
    fn resize(&mut self, index: usize, size: i64) {
        let (wanted, most) = (self.wanted(), self.wanted() + self.surge());
        let set = &mut self.sets[index];
        let before = set.size();
        set.object.put("spec.replicas", size);
        set.annotate(DESIRED, &wanted.to_string());
        set.annotate(MAXIMUM, &most.to_string());
        if before != size {
            let direction = if before < size { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {} from {before} to {size}", set.name());
            self.say("ScalingReplicaSet", &message);
        }
    }

    fn say(&mut self, reason: &str, message: &str) {
        self.events.push(FLAVOR.event(self.view, &self.held.object, true, reason, message));
    }

    /// Deletes old sets beyond those that are kept to go back to.
    fn clean_up(&mut self) {
        let limit = self.held.object.int("spec.revisionHistoryLimit");
        if limit >= UNLIMITED {
            return;
        }
        let mut old: Vec<usize> = self.old().into_iter().filter(|index| !self.sets[*index].is_deleting()).collect();
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        old.sort_by_key(|index| self.sets[*index].revision());
        for index in old.into_iter().take(excess) {
            let set = &mut self.sets[index];
            let observed = set.object.int("status.observedGeneration") >= set.object.int("metadata.generation");
            set.delete = set.size() == 0 && set.object.int("status.replicas") == 0 && observed;
        }
    }

    /// Everything in one transaction: it holds together or not at all.
    fn finish(self) -> Verdict {
        let mut writes: Vec<Write> = self.sets.into_iter().filter_map(Set::written).collect();
        writes.extend(self.held.with_status(self.new));
        let events = if writes.is_empty() { Vec::new() } else { self.events };
        Verdict { events, again: self.again, ..Verdict::write(writes) }
    }
}

impl Set {
    fn name(&self) -> &str {
        self.object.text("metadata.name")
    }

    fn created(&self) -> i64 {
        self.object.at("metadata.creationTimestamp").as_str().map_or(i64::MAX, seconds)
    }

    /// How many Pods it wants.
    fn size(&self) -> i64 {
        self.object.int("spec.replicas")
    }

    /// How many Pods are available and will stay so: what was said before it was made smaller counts no more.
    fn available(&self) -> i64 {
        self.object.int("status.availableReplicas").min(self.size())
    }

    fn is_deleting(&self) -> bool {
        self.object.has("metadata.deletionTimestamp")
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.object.at("metadata.annotations").get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.annotation(name)?.parse().ok().filter(|number| *number >= 0)
    }

    fn revision(&self) -> i64 {
        self.number(DEPLOYMENT_REVISION).unwrap_or_default()
    }

    /// Sets an annotation, and says whether that changed anything.
    fn annotate(&mut self, name: &str, value: &str) -> bool {
        if self.annotation(name) == Some(value) {
            return false;
        }
        let mut all: BTreeMap<String, Value> = self
            .object
            .map("metadata.annotations")
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        all.insert(name.to_owned(), value.into());
        self.object.put("metadata.annotations", Value::Object(all.into_iter().collect()));
        true
    }

    fn written(self) -> Option<Write> {
        match self.held {
            None => Some(Write::create(super::replicas::SETS.table, self.object)),
            Some(held) if self.delete => Some(held.deleted()),
            Some(held) => held.replaced(self.object),
        }
    }
}
