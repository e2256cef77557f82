//! Counts finished Pods, releases them, and finishes the Job when nothing is left to count.

use std::collections::HashSet;

use super::failure_policy::Action;
use super::plan::{MAX_CHANGED, Work};
use super::spec::{is_terminating, is_tracked};
use crate::objects::pod::{Phase, Pod};

impl Work<'_, '_> {
    /// Counts the Pods whose finalizer this plan removes; the rest is left to the next plan.
    pub(super) fn account(&mut self) {
        let mut room = MAX_CHANGED.saturating_sub(self.plan.deleted.len());
        let deleted: HashSet<&str> = self.plan.deleted.iter().map(|pod| &*pod.uid).collect();
        let mut left = HashSet::new();
        for pod in self.pods.clone() {
            if !is_tracked(pod) || !self.is_releasable(pod) {
                left.extend((is_tracked(pod) && !deleted.contains(&*pod.uid)).then_some(&*pod.uid));
                continue;
            }
            if !deleted.contains(&*pod.uid) {
                let stays_active = pod.is_active() && self.ending.is_some();
                if room == 0 || stays_active {
                    self.status.incomplete = true;
                    left.insert(&*pod.uid);
                    continue;
                }
                room -= 1;
                self.plan.released.push(pod);
            }
            self.count(pod);
        }
        self.status.count_untracked(|uid| left.contains(uid));
    }

    /// Whether the finalizer of a Pod can be removed now.
    fn is_releasable(&self, pod: &Pod) -> bool {
        if self.is_deleting() || self.ending.is_some() || pod.phase == Phase::Succeeded {
            return true;
        }
        let is_last = |index: i64| self.last_failed.get(&index).is_some_and(|last| last.uid == pod.uid);
        self.spec.is_failed(pod) && !self.spec.index(pod).is_some_and(is_last)
    }

    fn count(&mut self, pod: &Pod) {
        let counted = &self.status.uncounted;
        if pod.phase == Phase::Succeeded && !counted.failed.contains(&pod.uid) {
            // Those of an Indexed Job are counted by their index.
            if !self.spec.indexed && !counted.succeeded.contains(&pod.uid) {
                self.status.succeeded += 1;
            }
            return;
        }
        // Every Pod that a failed Job leaves behind has failed.
        let failed = self.spec.is_failed(pod) || self.ending.as_ref().is_some_and(|ending| ending.failed);
        let ignored = self.spec.failure_rules.is_some() && self.spec.failure_action(pod) == Action::Ignore;
        if failed && !ignored && self.spec.is_countable(pod) && !counted.failed.contains(&pod.uid) {
            self.status.failed += 1;
        }
    }

    /// Writes the counts and conditions.
    pub(super) fn finish(&mut self) {
        let deleted: HashSet<&str> = self.plan.deleted.iter().map(|pod| &*pod.uid).collect();
        let goes = |pod: &Pod| deleted.contains(&*pod.uid);
        let active: Vec<&Pod> = self.active.iter().map(|pod| &***pod).filter(|pod| !goes(pod)).collect();
        let ready = active.iter().filter(|pod| pod.ready).count();
        // A Pod without a node is gone as soon as it is deleted.
        let terminating =
            self.pods.iter().filter(|pod| is_terminating(pod) || (goes(pod) && !pod.node.is_empty())).count();
        let active = active.len();
        if self.spec.indexed {
            self.status.succeeded = self.completed_indexes.count();
        }
        self.status.set_counts(active, ready, terminating);
        if self.spec.indexed {
            let failed = self.spec.backoff_limit_per_index.map(|_| &self.failed_indexes);
            self.status.set_indexes(&self.completed_indexes, failed);
        }
        let Some(ending) = self.ending.clone() else { return };
        self.status.set_target(&ending);
        if active == 0 && terminating == 0 && self.status.is_settled() {
            self.status.set_finished(&ending);
            if ending.failed {
                return self.note(false, &ending.reason, &ending.message);
            }
            if self.spec.completions.is_some_and(|completions| self.status.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                self.note(false, "TooManySucceededPods", message);
            }
            self.note(true, "Completed", "Job completed");
        }
    }
}
