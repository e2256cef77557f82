//! The status of a DaemonSet.

use api::value::ValueExt as _;
use serde_json::Value;

use super::super::StoredObject;
use super::eligible::Eligibility;
use super::snapshot::Snapshot;

/// Counts of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) desired: i64,
    pub(super) current: i64,
    pub(super) misscheduled: i64,
    pub(super) ready: i64,
    pub(super) updated: i64,
    pub(super) available: i64,
}

impl Counts {
    /// Of each node, the first Pod counts.
    pub(super) fn of(snapshot: &Snapshot<'_>) -> Self {
        let mut counts = Self::default();
        for node in snapshot.nodes.values().filter(|node| node.exists) {
            let first = node.pods.first();
            if node.eligibility != Eligibility::Runs {
                counts.misscheduled += i64::from(first.is_some());
                continue;
            }
            counts.desired += 1;
            let Some(first) = first else { continue };
            counts.current += 1;
            counts.ready += i64::from(first.pod.ready);
            counts.available += i64::from(first.available);
            counts.updated += i64::from(first.updated);
        }
        counts
    }
}

/// The set with the desired status.
pub(super) fn of(set: &StoredObject, snapshot: &Snapshot<'_>, collisions: i64) -> Value {
    let counts = Counts::of(snapshot);
    let mut new = set.object.clone();
    for (field, count) in [
        ("currentNumberScheduled", counts.current),
        ("numberMisscheduled", counts.misscheduled),
        ("desiredNumberScheduled", counts.desired),
        ("numberReady", counts.ready),
    ] {
        new.put(&format!("status.{field}"), count);
    }
    for (field, count) in [
        ("observedGeneration", set.object.int("metadata.generation")),
        ("updatedNumberScheduled", counts.updated),
        ("numberAvailable", counts.available),
        ("numberUnavailable", counts.desired - counts.available),
        ("collisionCount", collisions),
    ] {
        let path = format!("status.{field}");
        // Zero values are omitted as in Go.
        if count == 0 {
            new.drop_path(&path);
        } else {
            new.put(&path, count);
        }
    }
    new
}
