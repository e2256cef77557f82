//! The spec of a Job as the plan needs it, and the state of a Pod according to it.

use api::kinds::job;
use api::value::ValueExt as _;
use serde_json::Value;

use super::failure_policy::{self, Action};
use crate::objects::job_pod::JobPod;
use crate::objects::pod::{Phase, Pod};

/// The spec of a Job.
pub(super) struct Spec<'a> {
    /// How many Pods may be active.
    pub(super) parallelism: i64,
    /// How many Pods must succeed; `None`: one, and all that were started must end.
    pub(super) completions: Option<i64>,
    /// How many Pods may fail.
    pub(super) backoff_limit: i64,
    /// How many Pods of an index may fail.
    pub(super) backoff_limit_per_index: Option<i64>,
    /// How many indexes may fail.
    pub(super) max_failed_indexes: Option<i64>,
    /// How many seconds it may run.
    pub(super) deadline: Option<i64>,
    /// Whether it has no active Pods until it is resumed.
    pub(super) suspended: bool,
    /// Whether each Pod has an index.
    pub(super) indexed: bool,
    /// Whether a Pod is replaced only after it has ended, not while it terminates.
    pub(super) replaces_ended_only: bool,
    /// Whether containers that fail are restarted in their Pod.
    pub(super) restarts_containers: bool,
    /// `podFailurePolicy.rules`; `None` without a policy.
    pub(super) failure_rules: Option<&'a [Value]>,
    /// `successPolicy.rules`
    pub(super) success_rules: &'a [Value],
}

impl<'a> Spec<'a> {
    pub(super) fn read(owner: &'a Value) -> Self {
        let spec = owner.at("spec");
        let failure_rules = spec.has("podFailurePolicy").then(|| spec.items("podFailurePolicy.rules"));
        Self {
            parallelism: spec.int("parallelism"),
            completions: spec.at("completions").as_i64(),
            backoff_limit: spec.int("backoffLimit"),
            backoff_limit_per_index: spec.at("backoffLimitPerIndex").as_i64(),
            max_failed_indexes: spec.at("maxFailedIndexes").as_i64(),
            deadline: spec.at("activeDeadlineSeconds").as_i64(),
            suspended: spec.flag("suspend"),
            indexed: job::is_indexed(owner),
            replaces_ended_only: spec.text("podReplacementPolicy") == "Failed" || failure_rules.is_some(),
            restarts_containers: spec.text("template.spec.restartPolicy") == "OnFailure",
            failure_rules,
            success_rules: spec.items("successPolicy.rules"),
        }
    }

    /// The number of indexes.
    pub(super) fn index_count(&self) -> i64 {
        self.completions.unwrap_or_default()
    }

    /// The index of a Pod, if it is one of this Job.
    pub(super) fn index(&self, pod: &Pod) -> Option<i64> {
        pod.job.as_ref()?.index.filter(|index| *index < self.index_count())
    }

    /// Whether a Pod has the finalizer, and in an Indexed Job an index: it can be counted.
    pub(super) fn is_countable(&self, pod: &Pod) -> bool {
        is_tracked(pod) && (!self.indexed || self.index(pod).is_some())
    }

    /// Whether a Pod counts as failed: a deleted Pod may never reach the phase Failed.
    pub(super) fn is_failed(&self, pod: &Pod) -> bool {
        let deleted = pod.deleting && pod.phase != Phase::Succeeded;
        pod.phase == Phase::Failed || (deleted && !self.replaces_ended_only)
    }

    /// What the failure policy does with a failed Pod.
    pub(super) fn failure_action(&self, pod: &Pod) -> Action {
        failure_policy::action(self.failure_rules.unwrap_or_default(), pod)
    }

    /// Whether a failed Pod is its index' last.
    pub(super) fn fails_index(&self, pod: &Pod) -> bool {
        let (Some(limit), true) = (self.backoff_limit_per_index, self.is_failed(pod)) else { return false };
        match self.failure_action(pod) {
            Action::FailIndex => true,
            Action::Ignore => false,
            Action::Count | Action::FailJob(_) => job_pod(pod).is_some_and(|pod| pod.failures >= limit),
        }
    }
}

/// The fields of a Pod of a Job.
pub(super) fn job_pod(pod: &Pod) -> Option<&JobPod> {
    pod.job.as_deref()
}

/// Whether a Pod has the tracking finalizer.
pub(super) fn is_tracked(pod: &Pod) -> bool {
    job_pod(pod).is_some_and(|pod| pod.tracked)
}

/// Whether a Pod is being deleted and has not ended.
pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.deleting && !pod.finished
}
