//! The status of a Deployment: counts, and the conditions Available and Progressing.
//!
//! Reasons and messages are those of Kubernetes, which `kubectl rollout status` and `kubectl wait` read.

use std::time::Duration;

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::super::condition;
use super::{UNLIMITED, Work};
use crate::objects::pod::seconds;

/// Added to the deadline, in seconds, so that it has passed at the next reconcile.
const AFTER: i64 = 1;

impl Work<'_> {
    /// Sets the status; with `rollout` also the progress.
    pub(super) fn set_status(&mut self, rollout: bool) {
        let before = self.workload.object.at("status").clone();
        self.set_counts();
        let available = self.new.int("status.availableReplicas") >= self.wanted() - self.unavailable();
        if available {
            let message = "Deployment has minimum availability.";
            self.set_condition("Available", "True", "MinimumReplicasAvailable", message);
        } else {
            let message = "Deployment does not have minimum availability.";
            self.set_condition("Available", "False", "MinimumReplicasUnavailable", message);
        }
        if !rollout {
            return;
        }
        if self.has_deadline() {
            self.note_progress(&before);
        } else {
            self.drop_condition("Progressing");
        }
        self.set_requeue();
    }

    fn set_counts(&mut self) {
        let sum = |field: &str| self.sets.iter().map(|set| set.object.at("status").int(field)).sum::<i64>();
        let available = sum("availableReplicas");
        let newest = self.newest.map_or(0, |index| self.sets[index].object.int("status.replicas"));
        let counts = [
            ("observedGeneration", self.workload.object.int("metadata.generation")),
            ("replicas", sum("replicas")),
            ("updatedReplicas", newest),
            ("readyReplicas", sum("readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (self.total() - available).max(0)),
        ];
        let terminating = sum("terminatingReplicas");
        for (field, count) in counts {
            let path = format!("status.{field}");
            if count == 0 {
                self.new.drop_path(&path);
            } else {
                self.new.put(&path, count);
            }
        }
        self.new.put("status.terminatingReplicas", terminating);
    }

    /// Whether all Pods have the current template and are available.
    pub(super) fn is_complete(&self, status: &Value) -> bool {
        let wanted = self.wanted();
        ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| status.int(field) == wanted)
            && status.int("observedGeneration") >= self.workload.object.int("metadata.generation")
    }

    fn note_progress(&mut self, before: &Value) {
        let status = self.new.at("status");
        let current = self.progressing();
        let done = current.is_some_and(|condition| condition.text("reason") == "NewReplicaSetAvailable");
        if status.int("replicas") == status.int("updatedReplicas") && done {
            return;
        }
        let subject = match self.newest {
            Some(index) => format!("ReplicaSet {:?}", self.sets[index].name()),
            None => format!("Deployment {:?}", self.workload.name()),
        };
        if self.is_complete(status) {
            let message = format!("{subject} has successfully progressed.");
            self.set_condition("Progressing", "True", "NewReplicaSetAvailable", &message);
        } else if got_on(status, before) {
            // Progress restarts the deadline.
            let since = current.filter(|condition| condition.text("status") == "True");
            let since = since.map(|condition| condition.text("lastTransitionTime").to_owned());
            self.drop_condition("Progressing");
            let message = format!("{subject} is progressing.");
            self.set_condition("Progressing", "True", "ReplicaSetUpdated", &message);
            if let Some(since) = since {
                self.put_in_condition("Progressing", "lastTransitionTime", &since);
            }
        } else if self.has_timed_out() {
            let message = format!("{subject} has timed out progressing.");
            self.set_condition("Progressing", "False", "ProgressDeadlineExceeded", &message);
        }
    }

    fn has_timed_out(&self) -> bool {
        let Some(condition) = self.progressing() else { return false };
        match condition.text("reason") {
            "NewReplicaSetAvailable" => false,
            "ProgressDeadlineExceeded" => true,
            _ => self.time_left(condition) < 0,
        }
    }

    /// The seconds left until the progress deadline.
    fn time_left(&self, condition: &Value) -> i64 {
        let deadline = self.workload.object.int("spec.progressDeadlineSeconds");
        seconds(condition.text("lastUpdateTime")) + deadline - self.view.now.as_second()
    }

    /// Requeues for the progress deadline.
    fn set_requeue(&mut self) {
        let Some(condition) = self.progressing() else { return };
        let waits = !matches!(condition.text("reason"), "ProgressDeadlineExceeded" | "NewReplicaSetAvailable");
        if waits && self.has_deadline() && !self.is_complete(self.new.at("status")) {
            let left = u64::try_from(self.time_left(condition) + AFTER).unwrap_or_default();
            self.requeue_after = Some(Duration::from_secs(left.max(1)));
        }
    }

    pub(super) fn has_deadline(&self) -> bool {
        self.workload.object.at("spec.progressDeadlineSeconds").as_i64().is_some_and(|deadline| deadline < UNLIMITED)
    }

    pub(super) fn progressing(&self) -> Option<&Value> {
        condition(self.new.at("status"), "Progressing")
    }

    /// Sets the condition of a paused or resumed Deployment.
    pub(super) fn note_pause(&mut self) {
        let reason = self.progressing().map(|condition| condition.text("reason").to_owned());
        if !self.has_deadline() || reason.as_deref() == Some("ProgressDeadlineExceeded") {
            return;
        }
        match (self.workload.object.flag("spec.paused"), reason.as_deref() == Some("DeploymentPaused")) {
            (true, false) => self.set_condition("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused"),
            (false, true) => {
                self.set_condition("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed");
            }
            _ => {}
        }
    }

    /// Sets a condition, unless status and reason are unchanged.
    pub(super) fn set_condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let now = self.view.now_text();
        let before = condition(self.new.at("status"), kind).cloned();
        let is_same = |before: &Value| before.text("status") == status && before.text("reason") == reason;
        if before.as_ref().is_some_and(is_same) {
            return;
        }
        let since = before.filter(|before| before.text("status") == status);
        let since = since.map_or_else(|| now.clone(), |before| before.text("lastTransitionTime").to_owned());
        let mut all = self.new.items("status.conditions").to_vec();
        all.retain(|condition| condition.text("type") != kind);
        all.push(json!({
            "type": kind, "status": status, "lastUpdateTime": now, "lastTransitionTime": since, "reason": reason,
            "message": message,
        }));
        self.new.put("status.conditions", all);
    }

    fn drop_condition(&mut self, kind: &str) {
        let mut all = self.new.items("status.conditions").to_vec();
        all.retain(|condition| condition.text("type") != kind);
        if all.is_empty() {
            self.new.drop_path("status.conditions");
        } else {
            self.new.put("status.conditions", all);
        }
    }

    fn put_in_condition(&mut self, kind: &str, field: &str, value: &str) {
        for condition in self.new.items_mut("status.conditions") {
            if condition.text("type") == kind {
                condition.put(field, value);
            }
        }
    }
}

/// Whether updated, ready or available replicas increased, or old ones decreased.
fn got_on(now: &Value, before: &Value) -> bool {
    let old = |status: &Value| status.int("replicas") - status.int("updatedReplicas");
    let more = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    old(now) < old(before) || more.iter().any(|field| now.int(field) > before.int(field))
}
