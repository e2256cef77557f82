//! The status of a StatefulSet.

use api::value::ValueExt as _;
use serde_json::Value;

use super::{Work, revision, set};

impl Work<'_> {
    /// The set with the desired status.
    pub(super) fn status(&self) -> Value {
        let mut new = self.workload.object.clone();
        let pods: Vec<_> = self.replicas.iter().flatten().copied().chain(self.condemned.iter().copied()).collect();
        let (mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0);
        for pod in &pods {
            ready += i64::from(self.is_ready(pod));
            available += i64::from(self.is_available(pod));
            current += i64::from(!pod.deleting && revision::of(pod) == self.revisions.current);
            updated += i64::from(!pod.deleting && revision::of(pod) == self.revisions.update);
        }
        let all = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let wanted = self.workload.object.int("spec.replicas");
        let rolling = self.workload.object.text("spec.updateStrategy.type") == "RollingUpdate";
        // An update is complete when every Pod has the new revision and is ready.
        let done = rolling && updated == wanted && ready == wanted && all == wanted;
        let current_revision = if done { &self.revisions.update } else { &self.revisions.current };
        set(&mut new, "observedGeneration", self.workload.object.int("metadata.generation"), false);
        set(&mut new, "replicas", all, true);
        set(&mut new, "readyReplicas", ready, false);
        set(&mut new, "availableReplicas", available, true);
        set(&mut new, "currentReplicas", if done { updated } else { current }, false);
        set(&mut new, "updatedReplicas", updated, false);
        set(&mut new, "collisionCount", self.revisions.collisions, true);
        new.put("status.currentRevision", current_revision.as_str());
        new.put("status.updateRevision", self.revisions.update.as_str());
        new
    }
}
