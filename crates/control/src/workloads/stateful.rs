//! StatefulSets: Pods with stable names, created, updated and deleted in order.
//!
//! ```text
//! claim ─▶ revision ─▶ missing Pods, first to last ─▶ too many, last to first ─▶ update, last to first ─▶ status
//! ```
//! In: the set, its Pods, its revisions. Out: the next Pod to create or delete (all at once with `Parallel`), revisions, and the status. The readiness change
//! of a Pod triggers the next step.

mod identity;
mod revision;
mod status;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use api::portion::{Portion, Rounding};
use api::value::ValueExt as _;
use serde_json::Value;

use self::revision::Revisions;
use super::{StoredObject, WorkloadKind, availability, delete_pod, slow_start};
use super::{claim, history};
use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::pod::{Phase, Pod};
use crate::write::Write;

/// StatefulSets.
pub(crate) const KIND: WorkloadKind = WorkloadKind {
    table: "statefulsets",
    kind: "StatefulSet",
    api_version: "apps/v1",
    controller: "statefulset-controller",
};

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "statefulset", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Pod(_) => KIND.affected_keys(view, change, affected),
        _ if change.is_of(history::TABLE) => KIND.affected_keys(view, change, affected),
        _ if change.is_of(KIND.table) && !change.deleted => affected.add(change.key()),
        _ => {}
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(workload) = StoredObject::read(view, KIND.table, key) else { return Outcome::done() };
    let Some(selector) = workload.selector() else { return Outcome::done() };
    let claimed = claim::objects(view, &KIND, &workload, history::TABLE, &selector);
    if !claimed.writes.is_empty() {
        return Outcome::write(claimed.writes);
    }
    let name = workload.name().to_owned();
    let fits = |pod: &Pod| identity::ordinal(&name, pod.name()).is_some();
    let pods = claim::pods(view, &KIND, &workload, &selector, fits);
    if !pods.writes.is_empty() {
        return Outcome::write(pods.writes);
    }
    let revisions = Revisions::of(view, &workload, claimed.own);
    let mut work = Work::new(view, &workload, &revisions, &pods.own);
    if !workload.is_deleting() {
        work.step();
    }
    work.finish()
}

/// A StatefulSet and its changes.
struct Work<'a> {
    view: &'a View<'a>,
    workload: &'a StoredObject,
    revisions: &'a Revisions,
    /// The desired Pods by index.
    replicas: Vec<Option<&'a Arc<Pod>>>,
    /// Excess Pods, the highest ordinal first.
    condemned: Vec<&'a Arc<Pod>>,
    created: Vec<Write>,
    deleted: Vec<Write>,
    events: Vec<Write>,
    /// In how many seconds the next Pod becomes available.
    wait: Cell<Option<i64>>,
}

impl<'a> Work<'a> {
    fn new(view: &'a View<'a>, workload: &'a StoredObject, revisions: &'a Revisions, pods: &[&'a Arc<Pod>]) -> Self {
        let count = usize::try_from(workload.object.int("spec.replicas")).unwrap_or_default();
        let first = first(workload);
        let (mut replicas, mut condemned) = (vec![None; count], Vec::new());
        for pod in pods {
            let Some(number) = identity::ordinal(workload.name(), pod.name()) else { continue };
            match number.checked_sub(first).and_then(|index| replicas.get_mut(index)) {
                Some(place) => *place = Some(*pod),
                None => condemned.push((number, *pod)),
            }
        }
        condemned.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let condemned = condemned.into_iter().map(|(_, pod)| pod).collect();
        let (created, deleted, events) = (Vec::new(), Vec::new(), Vec::new());
        Self { view, workload, revisions, replicas, condemned, created, deleted, events, wait: Cell::default() }
    }

    /// Whether the policy is OrderedReady.
    fn is_ordered(&self) -> bool {
        self.workload.object.text("spec.podManagementPolicy") != "Parallel"
    }

    fn step(&mut self) {
        if self.fill() || self.shrink() || self.workload.object.text("spec.updateStrategy.type") == "OnDelete" {
            return;
        }
        self.update();
    }

    /// Creates missing Pods; true when this step is complete.
    fn fill(&mut self) -> bool {
        let ordered = self.is_ordered();
        for index in 0..self.replicas.len() {
            match self.replicas[index] {
                None => self.create(index),
                Some(pod) if pod.finished && !pod.deleting => self.delete(pod),
                Some(pod) if !pod.deleting && self.is_available(pod) => continue,
                Some(_) => {}
            }
            if ordered {
                return true;
            }
        }
        !self.created.is_empty() || !self.deleted.is_empty()
    }

    /// Deletes excess Pods; true when this step is complete.
    fn shrink(&mut self) -> bool {
        let ordered = self.is_ordered();
        let all = self.replicas.iter().flatten().copied().chain(self.condemned.iter().rev().copied());
        let first_bad = all.into_iter().find(|pod| pod.deleting || !self.is_ready(pod)).map(|pod| pod.uid.clone());
        for pod in self.condemned.clone() {
            let waits = pod.deleting || (!self.is_available(pod) && first_bad.as_ref() != Some(&pod.uid));
            if ordered && waits {
                return true;
            }
            if !pod.deleting {
                self.delete(pod);
                if ordered {
                    return true;
                }
            }
        }
        !self.condemned.is_empty()
    }

    /// Replaces Pods of an older revision, the highest ordinal first, within `maxUnavailable`.
    fn update(&mut self) {
        let rolling = self.workload.object.at("spec.updateStrategy.rollingUpdate");
        let partition = usize::try_from(rolling.int("partition")).unwrap_or_default();
        let count = i64::try_from(self.replicas.len()).unwrap_or(i64::MAX);
        let budget = Portion::read(rolling.at("maxUnavailable")).map_or(1, |part| part.of(count, Rounding::Up));
        let mut budget = budget.max(1);
        for index in (partition..self.replicas.len()).rev() {
            let Some(pod) = self.replicas[index] else { continue };
            if revision::of(pod) != self.revisions.update && !pod.deleting {
                self.delete(pod);
            } else if !pod.deleting && self.is_available(pod) {
                continue;
            }
            budget -= 1;
            if budget == 0 {
                return;
            }
        }
    }

    fn create(&mut self, index: usize) {
        let number = index + first(self.workload);
        let rolling = self.workload.object.text("spec.updateStrategy.type") == "RollingUpdate";
        let partition = self.workload.object.int("spec.updateStrategy.rollingUpdate.partition");
        let kept = rolling && i64::try_from(index).is_ok_and(|index| index < partition);
        let pod = self.revisions.new_pod(self.workload, number, kept);
        let message =
            format!("create Pod {} in StatefulSet {} successful", pod.text("metadata.name"), self.workload.name());
        self.events.push(KIND.event(self.view, &self.workload.object, true, "SuccessfulCreate", &message));
        self.created.push(Write::create("pods", pod));
    }

    fn delete(&mut self, pod: &Pod) {
        if let Some(write) = delete_pod(self.view, pod) {
            let message = format!("delete Pod {} in StatefulSet {} successful", pod.name(), self.workload.name());
            self.events.push(KIND.event(self.view, &self.workload.object, true, "SuccessfulDelete", &message));
            self.deleted.push(write);
        }
    }

    fn is_ready(&self, pod: &Pod) -> bool {
        pod.phase == Phase::Running && pod.ready
    }

    /// Whether a Pod is available; otherwise records when it will be.
    fn is_available(&self, pod: &Pod) -> bool {
        if !self.is_ready(pod) {
            return false;
        }
        match availability(pod, self.workload.object.int("spec.minReadySeconds"), self.view.now.as_second()) {
            Ok(()) => true,
            Err(left) => {
                self.wait.set(self.wait.get().into_iter().chain(left).min());
                false
            }
        }
    }

    fn finish(self) -> Outcome {
        let status = self.status();
        let Self { created, deleted, events, wait, revisions, workload, .. } = self;
        let mut outcome = Outcome { events, ..Outcome::write(revisions.writes.clone()) };
        if let Some(write) = workload.with_status(status) {
            outcome.transactions.push(vec![write]);
        }
        if !deleted.is_empty() {
            outcome.transactions.push(deleted);
        }
        outcome.transactions.extend(slow_start(created));
        outcome.requeue_after = wait.get().and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        outcome
    }
}

/// `spec.ordinals.start`
fn first(workload: &StoredObject) -> usize {
    usize::try_from(workload.object.int("spec.ordinals.start")).unwrap_or_default()
}

/// Sets a status count; 0 is omitted unless `keep`.
fn set(object: &mut Value, field: &str, value: i64, keep: bool) {
    let path = format!("status.{field}");
    if value == 0 && !keep {
        object.drop_path(&path);
    } else {
        object.put(&path, value);
    }
}
