//! The status of a Job while it is planned: counters, indexes, conditions.

use std::collections::HashSet;

use api::indexes::Indexes;
use api::lifecycle;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::plan::Ending;

/// A status.
pub(super) struct Status {
    /// The object.
    pub(super) value: Value,
    /// Pods that succeeded, and that this status counts.
    pub(super) succeeded: i64,
    /// Pods that failed, and that this status counts.
    pub(super) failed: i64,
    /// Pods that another controller began to count.
    pub(super) uncounted: Uncounted,
    /// Whether Pods are left to be counted.
    pub(super) incomplete: bool,
    now: String,
}

/// UIDs of Pods that are to be counted when their finalizer is gone.
#[derive(Default)]
pub(super) struct Uncounted {
    pub(super) succeeded: HashSet<Box<str>>,
    pub(super) failed: HashSet<Box<str>>,
}

impl Status {
    pub(super) fn read(owner: &Value, now: Timestamp) -> Self {
        let status = owner.at("status");
        let uids = |list: &str| status.at("uncountedTerminatedPods").texts(list).into_iter().map(Box::from).collect();
        Self {
            value: if status.is_object() { status.clone() } else { json!({}) },
            succeeded: status.int("succeeded"),
            failed: status.int("failed"),
            uncounted: Uncounted { succeeded: uids("succeeded"), failed: uids("failed") },
            incomplete: false,
            now: lifecycle::seconds(now),
        }
    }

    /// Sets the start time of a Job that starts now.
    pub(super) fn start(&mut self, suspended: bool) {
        if !suspended && !self.value.has("startTime") {
            self.value.put("startTime", self.now.as_str());
        }
    }

    /// Sets whether the Job is suspended; some when it was not, or was, before.
    pub(super) fn set_suspended(&mut self, suspended: bool) -> Option<bool> {
        let changed = if suspended {
            self.set_condition("Suspended", true, "JobSuspended", "Job suspended")
        } else {
            self.set_condition("Suspended", false, "JobResumed", "Job resumed")
        };
        if !changed {
            return None;
        }
        // The deadline counts from when the Job was resumed.
        if suspended {
            self.value.drop_path("startTime");
        } else {
            self.value.put("startTime", self.now.as_str());
        }
        Some(suspended)
    }

    /// Counts Pods that another controller began to count, unless they still have the finalizer.
    pub(super) fn count_untracked(&mut self, is_tracked: impl Fn(&str) -> bool) {
        let mut left = json!({});
        for (list, uids, count) in [
            ("succeeded", &self.uncounted.succeeded, &mut self.succeeded),
            ("failed", &self.uncounted.failed, &mut self.failed),
        ] {
            let mut kept: Vec<&str> = uids.iter().map(|uid| &**uid).filter(|uid| is_tracked(uid)).collect();
            *count += i64::try_from(uids.len() - kept.len()).unwrap_or_default();
            if !kept.is_empty() {
                kept.sort_unstable();
                left.put(list, kept);
                self.incomplete = true;
            }
        }
        self.value.put("uncountedTerminatedPods", left);
    }

    /// Whether every Pod that has ended is counted.
    pub(super) const fn is_settled(&self) -> bool {
        !self.incomplete
    }

    pub(super) fn set_counts(&mut self, active: usize, ready: usize, terminating: usize) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        // Zero is omitted, as in Go.
        for (field, count) in [("active", count(active)), ("succeeded", self.succeeded), ("failed", self.failed)] {
            if count == 0 {
                self.value.drop_path(field);
            } else {
                self.value.put(field, count);
            }
        }
        self.value.put("ready", count(ready));
        self.value.put("terminating", count(terminating));
    }

    pub(super) fn set_indexes(&mut self, completed: &Indexes, failed: Option<&Indexes>) {
        if completed.is_empty() {
            self.value.drop_path("completedIndexes");
        } else {
            self.value.put("completedIndexes", completed.to_string());
        }
        if let Some(failed) = failed {
            self.value.put("failedIndexes", failed.to_string());
        }
    }

    /// Sets the condition of a Job that ends as soon as its Pods have.
    pub(super) fn set_target(&mut self, ending: &Ending) {
        let kind = if ending.failed { "FailureTarget" } else { "SuccessCriteriaMet" };
        self.set_condition(kind, true, &ending.reason, &ending.message);
    }

    /// Sets the condition of a Job that has ended.
    pub(super) fn set_finished(&mut self, ending: &Ending) {
        if !ending.failed {
            self.value.put("completionTime", self.now.as_str());
        }
        let kind = if ending.failed { "Failed" } else { "Complete" };
        self.set_condition(kind, true, &ending.reason, &ending.message);
    }

    /// Sets a condition; true when it changed. A condition that does not exist is not added as false.
    fn set_condition(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) -> bool {
        let status = if is_true { "True" } else { "False" };
        let new = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastProbeTime": self.now, "lastTransitionTime": self.now,
        });
        let mut conditions = self.value.items("conditions").to_vec();
        match conditions.iter_mut().find(|condition| condition.text("type") == kind) {
            Some(old) if ["status", "reason", "message"].iter().all(|field| old.at(field) == new.at(field)) => {
                return false;
            }
            Some(old) => *old = new,
            None if !is_true => return false,
            None => conditions.push(new),
        }
        self.value.put("conditions", conditions);
        true
    }
}
