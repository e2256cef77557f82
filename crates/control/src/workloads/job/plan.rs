//! What to do with a Job. Pure: the Job, its Pods and the time give a new status, Pods to release, delete and create, Events, and when to plan again.
//!
//! An ending (`FailureTarget`, `SuccessCriteriaMet`) is decided first. It deletes what is active; when no Pod is left to be counted or to terminate, the Job
//! is `Failed` or `Complete`. Without one, Pods are created and deleted until enough have succeeded.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::indexes::Indexes;
use api::kinds::job::has_condition;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::super::{condition, order};
use super::backoff;
use super::failure_policy::Action;
use super::spec::{Spec, is_terminating, is_tracked, job_pod};
use super::status::Status;
use crate::objects::pod::{Phase, Pod, seconds};

/// The most Pods created by one plan.
const MAX_CREATED: i64 = 500;
/// The most Pods changed by one plan: a concurrent change of any of them is a conflict of all.
pub(super) const MAX_CHANGED: usize = 200;

/// The longest wait: the queue cannot add any number of seconds to its clock.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A wait of so many seconds, or a shorter one after which the rest is waited for.
pub(super) fn wait(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(MAX_WAIT)
}

/// The outcome.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// The new status.
    pub(super) status: Value,
    /// Pods that the status counts, or that need not be counted: their finalizer is removed.
    pub(super) released: Vec<&'a Arc<Pod>>,
    /// Pods to delete, without their finalizer.
    pub(super) deleted: Vec<&'a Arc<Pod>>,
    /// Pods to create.
    pub(super) created: Vec<NewPod>,
    /// Events about the Job.
    pub(super) events: Vec<JobEvent>,
    /// When to plan again without a change.
    pub(super) requeue_after: Option<Duration>,
}

/// A Pod to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NewPod {
    /// Its completion index.
    pub(super) index: Option<i64>,
    /// Failures of its index before it, and those of them that do not count; with a limit per index.
    pub(super) failures: Option<(i64, i64)>,
}

/// An Event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct JobEvent {
    pub(super) normal: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// How a Job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    pub(super) failed: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Ending {
    fn new(failed: bool, reason: &str, message: impl Into<String>) -> Self {
        Self { failed, reason: reason.to_owned(), message: message.into() }
    }

    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self::new(true, reason, message)
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self::new(false, reason, message)
    }
}

/// Plans the next step of a Job that has not finished.
pub(super) fn plan<'a>(owner: &Value, pods: &[&'a Arc<Pod>], now: Timestamp) -> Plan<'a> {
    let mut work = Work::new(owner, pods, now);
    work.status.start(work.spec.suspended);
    work.ending = work.decide_ending();
    if work.ending.is_some() {
        let active = work.active.clone();
        work.delete(active);
    } else {
        work.manage();
    }
    work.account();
    work.finish();
    work.plan.status = work.status.value;
    work.plan
}

/// A Job, its Pods and the plan so far.
pub(super) struct Work<'a, 'o> {
    pub(super) owner: &'o Value,
    pub(super) spec: Spec<'o>,
    pub(super) pods: Vec<&'a Arc<Pod>>,
    pub(super) active: Vec<&'a Arc<Pod>>,
    pub(super) now: i64,
    pub(super) status: Status,
    pub(super) ending: Option<Ending>,
    /// Pods that have succeeded or failed, whether or not the status counts them.
    succeeded: i64,
    failed: i64,
    /// Indexes that have succeeded or failed.
    pub(super) completed_indexes: Indexes,
    pub(super) failed_indexes: Indexes,
    /// With a limit per index: the last failed Pod of each index that has to be tried again. It is kept because it carries the count of failures.
    pub(super) last_failed: BTreeMap<i64, &'a Arc<Pod>>,
    pub(super) plan: Plan<'a>,
}

impl<'a, 'o> Work<'a, 'o> {
    fn new(owner: &'o Value, pods: &[&'a Arc<Pod>], now: Timestamp) -> Self {
        let spec = Spec::read(owner);
        let mut pods = pods.to_vec();
        pods.sort_by_key(|pod| (job_pod(pod).and_then(|pod| pod.index), pod.created, pod.uid.clone()));
        let status = Status::read(owner, now);
        let fresh = |counted: &HashSet<Box<str>>, pod: &Pod| spec.is_countable(pod) && !counted.contains(&pod.uid);
        let succeeded =
            pods.iter().filter(|pod| pod.phase == Phase::Succeeded && fresh(&status.uncounted.succeeded, pod)).count();
        let failed = pods.iter().filter(|pod| {
            spec.is_failed(pod)
                && fresh(&status.uncounted.failed, pod)
                && (spec.failure_rules.is_none() || spec.failure_action(pod) != Action::Ignore)
        });
        let (failed, uncounted) = (failed.count(), &status.uncounted);
        let sum = |field: &str, new: usize| owner.at("status").int(field) + i64::try_from(new).unwrap_or(i64::MAX);
        let mut work = Self {
            owner,
            succeeded: sum("succeeded", succeeded + uncounted.succeeded.len()),
            failed: sum("failed", failed + uncounted.failed.len()),
            spec,
            active: pods.iter().copied().filter(|pod| pod.is_active()).collect(),
            pods,
            now: now.as_second(),
            status,
            ending: None,
            completed_indexes: Indexes::default(),
            failed_indexes: Indexes::default(),
            last_failed: BTreeMap::new(),
            plan: Plan::default(),
        };
        if work.spec.indexed {
            work.read_indexes();
        }
        work
    }

    fn read_indexes(&mut self) {
        let (spec, status) = (&self.spec, self.owner.at("status"));
        let with_new = |field: &str, is: &dyn Fn(&Pod) -> bool| {
            let new = self.pods.iter().filter(|pod| is_tracked(pod) && is(pod)).filter_map(|pod| spec.index(pod));
            Indexes::read(status.text(field), spec.index_count()).union(&new.collect())
        };
        self.completed_indexes = with_new("completedIndexes", &|pod| pod.phase == Phase::Succeeded);
        self.succeeded = self.completed_indexes.count();
        if spec.backoff_limit_per_index.is_none() {
            return;
        }
        self.failed_indexes = with_new("failedIndexes", &|pod| spec.fails_index(pod));
        let running: HashSet<i64> = self.active.iter().filter_map(|pod| spec.index(pod)).collect();
        for pod in self.pods.iter().copied().filter(|pod| is_tracked(pod) && spec.is_failed(pod)) {
            let Some(index) = spec.index(pod) else { continue };
            let settled = self.completed_indexes.contains(index) || self.failed_indexes.contains(index);
            if settled || running.contains(&index) {
                continue;
            }
            let rank = |pod: &Pod| job_pod(pod).map(|pod| (pod.all_failures(), pod.finished_at));
            let last = self.last_failed.entry(index).or_insert(pod);
            if rank(pod) >= rank(last) {
                *last = pod;
            }
        }
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        let wait = wait(seconds);
        self.plan.requeue_after = Some(self.plan.requeue_after.map_or(wait, |before| before.min(wait)));
    }

    pub(super) fn note(&mut self, normal: bool, reason: &str, message: &str) {
        self.plan.events.push(JobEvent { normal, reason: reason.to_owned(), message: message.to_owned() });
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.owner.has("metadata.deletionTimestamp")
    }

    // === ending ===

    fn decide_ending(&mut self) -> Option<Ending> {
        self.decided().or_else(|| self.failure()).or_else(|| self.index_failure()).or_else(|| self.success_by_policy())
    }

    /// An ending that an earlier plan decided.
    fn decided(&self) -> Option<Ending> {
        let status = self.owner.at("status");
        [("SuccessCriteriaMet", false), ("FailureTarget", true)].into_iter().find_map(|(kind, failed)| {
            let found = condition(status, kind).filter(|_| has_condition(self.owner, kind, "True"))?;
            Some(Ending::new(failed, found.text("reason"), found.text("message")))
        })
    }

    fn failure(&mut self) -> Option<Ending> {
        if self.spec.failure_rules.is_some() {
            let mut actions =
                self.pods.iter().filter(|pod| self.spec.is_failed(pod)).map(|pod| self.spec.failure_action(pod));
            if let Some(Action::FailJob(message)) = actions.find(|action| matches!(action, Action::FailJob(_))) {
                return Some(Ending::failure("PodFailurePolicy", message));
            }
        }
        if self.failed > self.spec.backoff_limit || self.too_many_restarts() {
            return Some(Ending::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let started = self.status.value.at("startTime").as_str().map(seconds);
        if let (Some(deadline), Some(started), false) = (self.spec.deadline, started, self.spec.suspended) {
            let left = started.saturating_add(deadline) - self.now;
            if left <= 0 {
                return Some(Ending::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
            }
            self.wait(left);
        }
        None
    }

    /// Whether containers that are restarted in their Pods have failed too often.
    fn too_many_restarts(&self) -> bool {
        let running = self.pods.iter().filter(|pod| matches!(pod.phase, Phase::Pending | Phase::Running));
        let restarts: i64 = running.filter_map(|pod| job_pod(pod)).map(|pod| pod.restarts).sum();
        self.spec.restarts_containers && restarts >= self.spec.backoff_limit.max(1)
    }

    fn index_failure(&self) -> Option<Ending> {
        let (failed, completed) = (self.failed_indexes.count(), self.completed_indexes.count());
        if self.spec.max_failed_indexes.is_some_and(|max| failed > max) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Ending::failure("MaxFailedIndexesExceeded", message));
        }
        let all = failed > 0 && failed + completed >= self.spec.index_count();
        all.then(|| Ending::failure("FailedIndexes", "Job has failed indexes"))
    }

    fn success_by_policy(&self) -> Option<Ending> {
        let completed = &self.completed_indexes;
        let is_met = |rule: &Value| {
            let enough = |count: i64| rule.at("succeededCount").as_i64().is_some_and(|wanted| count >= wanted);
            match rule.at("succeededIndexes").as_str() {
                None => enough(completed.count()),
                Some(text) => {
                    let wanted = Indexes::read(text, self.spec.index_count());
                    let common = wanted.common(completed);
                    !wanted.is_empty() && (common == wanted.count() || enough(common))
                }
            }
        };
        let index = self.spec.success_rules.iter().position(is_met).filter(|_| !completed.is_empty())?;
        Some(Ending::success("SuccessPolicy", format!("Matched rules at index {index}")))
    }

    // === Pods ===

    /// Deletes Pods, the first of them if there are too many for one plan.
    fn delete(&mut self, pods: Vec<&'a Arc<Pod>>) {
        self.plan.deleted = pods;
        self.plan.deleted.truncate(MAX_CHANGED);
    }

    /// Creates and deletes Pods; then the Job is complete, suspended or running.
    fn manage(&mut self) {
        if !self.is_deleting() {
            self.scale();
        }
        let active = self.active.len() + self.plan.created.len() - self.plan.deleted.len();
        if active == 0 && self.succeeded >= self.spec.completions.unwrap_or(1) {
            self.ending = Some(Ending::success("CompletionsReached", "Reached expected number of succeeded pods"));
        } else if !self.is_deleting() {
            match self.status.set_suspended(self.spec.suspended) {
                Some(true) => self.note(true, "Suspended", "Job suspended"),
                Some(false) => self.note(true, "Resumed", "Job resumed"),
                None => {}
            }
        }
    }

    fn scale(&mut self) {
        let active = i64::try_from(self.active.len()).unwrap_or(i64::MAX);
        let wanted = match self.spec.completions {
            _ if self.spec.suspended => 0,
            None if self.succeeded > 0 => active,
            None => self.spec.parallelism,
            Some(completions) => (completions - self.succeeded).clamp(0, self.spec.parallelism.max(0)),
        };
        let excess = self.excess(usize::try_from(active - wanted).unwrap_or_default());
        if !excess.is_empty() {
            return self.delete(excess);
        }
        let terminating = self.pods.iter().filter(|pod| self.spec.replaces_ended_only && is_terminating(pod)).count();
        let missing = wanted - active - i64::try_from(terminating).unwrap_or(i64::MAX);
        if missing > 0 {
            self.create(usize::try_from(missing.min(MAX_CREATED)).unwrap_or_default());
        }
    }

    /// Pods to delete: those without an index of their own, then the least useful.
    fn excess(&self, count: usize) -> Vec<&'a Arc<Pod>> {
        let mut left = self.active.clone();
        order::sort(&mut left, &self.active, self.now);
        let mut excess = Vec::new();
        if self.spec.indexed {
            // Of several Pods of an index the most useful, which is the last, stays.
            let mut taken = HashSet::new();
            left.reverse();
            let (kept, others): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|pod| self.spec.index(pod).is_some_and(|index| taken.insert(index)));
            (excess, left) = (others, kept);
            left.reverse();
        }
        let more = count.saturating_sub(excess.len());
        excess.extend(left.into_iter().take(more));
        excess
    }

    fn create(&mut self, count: usize) {
        if self.spec.backoff_limit_per_index.is_none() {
            let wait = backoff::of_job(&self.spec, &self.pods, self.now);
            if wait > 0 {
                return self.wait(wait);
            }
        }
        if !self.spec.indexed {
            self.plan.created = vec![NewPod { index: None, failures: None }; count];
            return;
        }
        let busy = |pod: &&Arc<Pod>| pod.is_active() || (self.spec.replaces_ended_only && is_terminating(pod));
        let busy: Indexes = self.pods.iter().copied().filter(busy).filter_map(|pod| self.spec.index(pod)).collect();
        let settled = self.completed_indexes.union(&self.failed_indexes).union(&busy);
        for index in settled.missing(count, self.spec.index_count()) {
            let last = self.last_failed.get(&index).copied();
            let wait = backoff::of_index(last, self.now);
            if self.spec.backoff_limit_per_index.is_some() && wait > 0 {
                self.wait(wait);
                continue;
            }
            let failures = self.spec.backoff_limit_per_index.map(|_| self.failures_after(last));
            self.plan.created.push(NewPod { index: Some(index), failures });
        }
    }

    /// The failures of an index, those that count and those that do not, after its last Pod.
    fn failures_after(&self, last: Option<&Arc<Pod>>) -> (i64, i64) {
        let Some((pod, facts)) = last.and_then(|pod| Some((pod, job_pod(pod)?))) else { return (0, 0) };
        match self.spec.failure_action(pod) {
            Action::Ignore => (facts.failures, facts.ignored_failures + 1),
            _ => (facts.failures + 1, facts.ignored_failures),
        }
    }
}
