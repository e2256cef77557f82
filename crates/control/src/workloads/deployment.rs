//! Deployments: one ReplicaSet per Pod template; rollouts move Pods from old ReplicaSets to the newest.
//!
//! ```text
//! claim ─▶ revision (find or create the newest set) ─▶ scale | rolling | recreate ─▶ clean up ─▶ status
//! ```
//! In: the Deployment, its ReplicaSets and their statuses. Out: one transaction with sizes of ReplicaSets, a new one, deletions of old ones, and the
//! status. Each reconcile does one step; status changes of ReplicaSets trigger the next.

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
use super::{StoredObject, WorkloadKind};
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::pod::seconds;
use crate::write::Write;

/// The annotation with `spec.replicas` of the Deployment at the last scaling.
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// The annotation with the maximum including surge at the last scaling.
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
/// The value of a disabled deadline or limit.
const UNLIMITED: i64 = i32::MAX as i64;

/// Deployments.
pub(crate) const KIND: WorkloadKind = WorkloadKind {
    table: "deployments",
    kind: "Deployment",
    api_version: "apps/v1",
    controller: "deployment-controller",
};

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "deployment", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(super::replicas::SETS.table) {
        KIND.affected_keys(view, change, affected);
    } else if change.is_of(KIND.table) && !change.deleted {
        affected.add(change.key());
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(workload) = StoredObject::read(view, KIND.table, key) else { return Outcome::done() };
    let Some(selector) = workload.selector() else { return Outcome::done() };
    let claim = claim::objects(view, &KIND, &workload, super::replicas::SETS.table, &selector);
    if !claim.writes.is_empty() {
        return Outcome::write(claim.writes);
    }
    let mut work = Work::new(view, &workload, claim.own);
    work.step();
    work.finish()
}

/// A Deployment and its changes.
struct Work<'a> {
    view: &'a View<'a>,
    workload: &'a StoredObject,
    /// The desired Deployment.
    new: Value,
    /// Its sets, the oldest first.
    sets: Vec<Set>,
    /// The index of the set with the current template.
    newest: Option<usize>,
    events: Vec<Write>,
    requeue_after: Option<std::time::Duration>,
}

/// A ReplicaSet and its changes.
struct Set {
    /// The stored object; `None` when it is to be created.
    workload: Option<StoredObject>,
    /// The desired object.
    object: Value,
    delete: bool,
}

impl<'a> Work<'a> {
    fn new(view: &'a View<'a>, workload: &'a StoredObject, sets: Vec<StoredObject>) -> Self {
        let mut sets: Vec<Set> = sets
            .into_iter()
            .map(|workload| Set { object: workload.object.clone(), workload: Some(workload), delete: false })
            .collect();
        sets.sort_by_cached_key(|set| (set.created(), set.name().to_owned()));
        let mut work = Self {
            view,
            workload,
            new: workload.object.clone(),
            sets,
            newest: None,
            events: Vec::new(),
            requeue_after: None,
        };
        work.newest = work.find_newest();
        work
    }

    fn step(&mut self) {
        if self.workload.is_deleting() {
            self.set_status(false);
            return;
        }
        self.note_pause();
        if self.workload.object.flag("spec.paused") || self.is_scaling() {
            self.update_newest();
            self.scale();
            if self.workload.object.flag("spec.paused") {
                self.clean_up();
            }
            self.set_status(false);
            return;
        }
        match self.workload.object.text("spec.strategy.type") {
            "Recreate" => self.recreate(),
            _ => self.roll(),
        }
        self.set_status(true);
    }

    /// `spec.replicas`
    fn wanted(&self) -> i64 {
        self.workload.object.int("spec.replicas")
    }

    /// `maxSurge` and `maxUnavailable` as numbers.
    fn bounds(&self) -> (i64, i64) {
        let strategy = self.workload.object.at("spec.strategy");
        if strategy.text("type") != "RollingUpdate" {
            return (0, 0);
        }
        let of = |field: &str, rounding| {
            Portion::read(strategy.at("rollingUpdate").at(field)).map_or(0, |part| part.of(self.wanted(), rounding))
        };
        match (of("maxSurge", Rounding::Up), of("maxUnavailable", Rounding::Down)) {
            // Both may round to 0, which would block the rollout.
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

    /// Indexes of the old sets.
    fn old(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|index| Some(*index) != self.newest).collect()
    }

    /// Indexes of old sets with replicas.
    fn active_old(&self) -> Vec<usize> {
        self.old().into_iter().filter(|index| self.sets[*index].size() > 0).collect()
    }

    /// The sum of the replicas of all sets.
    fn total(&self) -> i64 {
        self.sets.iter().map(Set::size).sum()
    }

    /// Whether `spec.replicas` changed since the last scaling.
    fn is_scaling(&self) -> bool {
        let wanted = self.wanted();
        let active = self.sets.iter().filter(|set| set.size() > 0);
        active.into_iter().any(|set| set.number(DESIRED).is_some_and(|desired| desired != wanted))
    }

    /// Scales a set, with an Event.
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
            self.record_event("ScalingReplicaSet", &message);
        }
    }

    fn record_event(&mut self, reason: &str, message: &str) {
        self.events.push(KIND.event(self.view, &self.workload.object, true, reason, message));
    }

    /// Deletes old sets beyond `revisionHistoryLimit`.
    fn clean_up(&mut self) {
        let limit = self.workload.object.int("spec.revisionHistoryLimit");
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

    /// All writes in one transaction.
    fn finish(self) -> Outcome {
        let mut writes: Vec<Write> = self.sets.into_iter().filter_map(Set::written).collect();
        writes.extend(self.workload.with_status(self.new));
        let events = if writes.is_empty() { Vec::new() } else { self.events };
        Outcome { events, requeue_after: self.requeue_after, ..Outcome::write(writes) }
    }
}

impl Set {
    fn name(&self) -> &str {
        self.object.text("metadata.name")
    }

    fn created(&self) -> i64 {
        self.object.at("metadata.creationTimestamp").as_str().map_or(i64::MAX, seconds)
    }

    /// `spec.replicas`
    fn size(&self) -> i64 {
        self.object.int("spec.replicas")
    }

    /// Available replicas, limited by the desired size: a status from before a scale-down is stale.
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

    /// Sets an annotation; true when it changed.
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
        match self.workload {
            None => Some(Write::create(super::replicas::SETS.table, self.object)),
            Some(workload) if self.delete => Some(workload.deleted()),
            Some(workload) => workload.replaced(self.object),
        }
    }
}
