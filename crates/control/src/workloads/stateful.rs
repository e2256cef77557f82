//! StatefulSet: Pods with names of their own, made, replaced and removed in their order.
//!
//! ```text
//! claim ─▶ revision ─▶ missing Pods, first to last ─▶ too many, last to first ─▶ update, last to first ─▶ status
//! ```
//! In: the set, its Pods, its revisions. Out: the next Pod that is made or deleted (all at once when the set says
//! `Parallel`), revisions, and the status. Whoever waits for a Pod waits for the change that says that it is ready.

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
use super::claim;
use super::{Flavor, Held, availability, delete_pod, slow_start};
use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::pod::{Phase, Pod};
use crate::world::{Change, What};
use crate::write::Write;

/// StatefulSets.
pub(crate) const FLAVOR: Flavor =
    Flavor { table: "statefulsets", kind: "StatefulSet", api_version: "apps/v1", controller: "statefulset-controller" };

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "statefulset", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Pod(_) => FLAVOR.wake(view, change, wakes),
        _ if change.is_of(revision::TABLE) => FLAVOR.wake(view, change, wakes),
        _ if change.is_of(FLAVOR.table) && !change.deleted => wakes.add(change.key()),
        _ => {}
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let Some(held) = Held::read(view, FLAVOR.table, key) else { return Verdict::settled() };
    let Some(selector) = held.selector() else { return Verdict::settled() };
    let claimed = claim::objects(view, &FLAVOR, &held, revision::TABLE, &selector);
    if !claimed.writes.is_empty() {
        return Verdict::write(claimed.writes);
    }
    let name = held.name().to_owned();
    let fits = |pod: &Pod| identity::ordinal(&name, pod.name()).is_some();
    let pods = claim::pods(view, &FLAVOR, &held, &selector, fits);
    if !pods.writes.is_empty() {
        return Verdict::write(pods.writes);
    }
    let revisions = Revisions::of(view, &held, claimed.own);
    let mut work = Work::new(view, &held, &revisions, &pods.own);
    if !held.is_deleting() {
        work.take_a_step();
    }
    work.finish()
}

/// A set, and what is to become of it.
struct Work<'a> {
    view: &'a View<'a>,
    held: &'a Held,
    revisions: &'a Revisions,
    /// The Pods that should be there, by number from the first on.
    replicas: Vec<Option<&'a Arc<Pod>>>,
    /// The Pods that should not, the last first.
    condemned: Vec<&'a Arc<Pod>>,
    created: Vec<Write>,
    deleted: Vec<Write>,
    events: Vec<Write>,
    /// In how many seconds the next Pod will have been ready for long enough.
    wait: Cell<Option<i64>>,
}

impl<'a> Work<'a> {
    fn new(view: &'a View<'a>, held: &'a Held, revisions: &'a Revisions, pods: &[&'a Arc<Pod>]) -> Self {
        let count = usize::try_from(held.object.int("spec.replicas")).unwrap_or_default();
        let first = first(held);
        let (mut replicas, mut condemned) = (vec![None; count], Vec::new());
        for pod in pods {
            let Some(number) = identity::ordinal(held.name(), pod.name()) else { continue };
            match number.checked_sub(first).and_then(|index| replicas.get_mut(index)) {
                Some(place) => *place = Some(*pod),
                None => condemned.push((number, *pod)),
            }
        }
        condemned.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let condemned = condemned.into_iter().map(|(_, pod)| pod).collect();
        let (created, deleted, events) = (Vec::new(), Vec::new(), Vec::new());
        Self { view, held, revisions, replicas, condemned, created, deleted, events, wait: Cell::default() }
    }

    /// Whether one Pod waits for another.
    fn is_ordered(&self) -> bool {
        self.held.object.text("spec.podManagementPolicy") != "Parallel"
    }

    fn take_a_step(&mut self) {
        if self.fill() || self.shrink() || self.held.object.text("spec.updateStrategy.type") == "OnDelete" {
            return;
        }
        self.update();
    }

    /// Makes Pods that are missing; says whether that is all for now.
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

    /// Deletes Pods that are too many; says whether that is all for now.
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

    /// Replaces Pods of an older revision, the last first, as many at a time as may be missing.
    fn update(&mut self) {
        let rolling = self.held.object.at("spec.updateStrategy.rollingUpdate");
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
        let number = index + first(self.held);
        let rolling = self.held.object.text("spec.updateStrategy.type") == "RollingUpdate";
        let partition = self.held.object.int("spec.updateStrategy.rollingUpdate.partition");
        let kept = rolling && i64::try_from(index).is_ok_and(|index| index < partition);
        let pod = self.revisions.new_pod(self.held, number, kept);
        let message =
            format!("create Pod {} in StatefulSet {} successful", pod.text("metadata.name"), self.held.name());
        self.events.push(FLAVOR.event(self.view, &self.held.object, true, "SuccessfulCreate", &message));
        self.created.push(Write::create("pods", pod));
    }

    fn delete(&mut self, pod: &Pod) {
        if let Some(write) = delete_pod(self.view, pod) {
            let message = format!("delete Pod {} in StatefulSet {} successful", pod.name(), self.held.name());
            self.events.push(FLAVOR.event(self.view, &self.held.object, true, "SuccessfulDelete", &message));
            self.deleted.push(write);
        }
    }

    fn is_ready(&self, pod: &Pod) -> bool {
        pod.phase == Phase::Running && pod.ready
    }

    /// Whether a Pod has been ready for long enough; when it will have been is noted.
    fn is_available(&self, pod: &Pod) -> bool {
        if !self.is_ready(pod) {
            return false;
        }
        match availability(pod, self.held.object.int("spec.minReadySeconds"), self.view.now.as_second()) {
            Ok(()) => true,
            Err(left) => {
                self.wait.set(self.wait.get().into_iter().chain(left).min());
                false
            }
        }
    }

    fn finish(self) -> Verdict {
        let status = self.status();
        let Self { created, deleted, events, wait, revisions, held, .. } = self;
        let mut verdict = Verdict { events, ..Verdict::write(revisions.writes.clone()) };
        if let Some(write) = held.with_status(status) {
            verdict.transactions.push(vec![write]);
        }
        if !deleted.is_empty() {
            verdict.transactions.push(deleted);
        }
        verdict.transactions.extend(slow_start(created));
        verdict.again = wait.get().and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        verdict
    }
}

/// The number of the first Pod.
fn first(held: &Held) -> usize {
    usize::try_from(held.object.int("spec.ordinals.start")).unwrap_or_default()
}

/// Sets a number of a status.
fn set(object: &mut Value, field: &str, value: i64, keep: bool) {
    let path = format!("status.{field}");
    if value == 0 && !keep {
        object.drop_path(&path);
    } else {
        object.put(&path, value);
    }
}
