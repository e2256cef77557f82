//! Deletion of a definition: its objects go first.
//!
//! A finalizer keeps the definition while they are deleted. The server deletes them; this module maintains the
//! definition's conditions meanwhile.

use jiff::Timestamp;
use serde_json::Value;

use super::condition::{self, Condition, ESTABLISHED, TERMINATING};
use crate::value::ValueExt as _;

/// Keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The progress of the deletion of the objects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The definition was marked.
    Pending,
    /// Objects are being deleted.
    InProgress,
    /// They could not be listed, or not all be deleted.
    Failed(String),
    /// They were deleted, and some are still there.
    NotConfirmed(String),
    /// All are gone.
    Completed,
    /// There never were any.
    NeverEstablished,
}

impl Progress {
    /// The condition that shows it.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let (status, reason, message) = match self {
            Self::Pending => (
                "True",
                "InstanceDeletionPending",
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon".to_owned(),
            ),
            Self::InProgress => {
                ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress".to_owned())
            }
            Self::Failed(why) => ("True", "InstanceDeletionFailed", why.clone()),
            Self::NotConfirmed(why) => {
                let message = format!("could not confirm zero CustomResources remaining: {why}");
                ("True", "InstanceDeletionCheck", message)
            }
            Self::Completed => ("False", "InstanceDeletionCompleted", "removed all instances".to_owned()),
            Self::NeverEstablished => ("False", "NeverEstablished", "resource was never established".to_owned()),
        };
        Condition { kind: TERMINATING, status, reason, message }
    }
}

/// Marks a definition that a client deletes: the finalizer and the condition. Neither its generation nor a grace period
/// is shown, as it is for other kinds.
pub(crate) fn mark(definition: &mut Value) {
    let now = definition.text("metadata.deletionTimestamp").to_owned();
    definition.drop_path("metadata.deletionGracePeriodSeconds");
    definition.put("metadata.generation", definition.int("metadata.generation") - 1);
    let mut finalizers = definition.items("metadata.finalizers").to_vec();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.into());
        definition.put("metadata.finalizers", finalizers);
    }
    condition::set_at(definition, &Progress::Pending.condition(), &now);
}

/// Whether the objects of a definition are to be deleted now.
#[must_use]
pub fn is_due(definition: &Value) -> bool {
    definition.has("metadata.deletionTimestamp") && definition.texts("metadata.finalizers").contains(&FINALIZER)
}

/// Whether a definition is being deleted, so that no objects of its kind may be created.
#[must_use]
pub fn is_terminating(definition: &Value) -> bool {
    condition::is_true(definition, TERMINATING)
}

/// Shows the progress of the deletion. When it is complete, the finalizer is removed: the definition may then be
/// deleted. `None` when nothing changes.
#[must_use]
pub fn advance(definition: &Value, progress: &Progress, now: Timestamp) -> Option<Value> {
    let mut new = definition.clone();
    if !condition::is_set(definition, &progress.condition()) {
        condition::set(&mut new, &progress.condition(), now);
    }
    if matches!(progress, Progress::Completed | Progress::NeverEstablished) {
        let mut finalizers = new.items("metadata.finalizers").to_vec();
        finalizers.retain(|name| name != FINALIZER);
        if finalizers.is_empty() {
            new.drop_path("metadata.finalizers");
        } else {
            new.put("metadata.finalizers", finalizers);
        }
    }
    (new != *definition).then_some(new)
}

/// What the deletion ends with: `remaining` objects are left.
#[must_use]
pub fn outcome(definition: &Value, remaining: usize) -> Progress {
    match remaining {
        _ if !condition::is_true(definition, ESTABLISHED) => Progress::NeverEstablished,
        0 => Progress::Completed,
        _ => Progress::InProgress,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::customresourcedefinition::KIND;
    use crate::lifecycle;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    fn established() -> Value {
        json!({"metadata": {"name": "widgets.example.com", "generation": 1}, "status": {"conditions": [
            {"type": "Established", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}})
    }

    #[test]
    fn a_deleted_definition_waits_for_its_objects() {
        let mut definition = established();
        lifecycle::mark_deleted(&KIND, &mut definition, None, None, now());
        assert_eq!(
            definition.at("metadata"),
            &json!({"name": "widgets.example.com", "generation": 1, "deletionTimestamp": "2026-01-02T03:04:05Z",
                "finalizers": [FINALIZER]})
        );
        let condition = condition::find(&definition, TERMINATING).expect("a condition");
        assert_eq!(condition.text("reason"), "InstanceDeletionPending");
        assert_eq!(condition.text("lastTransitionTime"), "2026-01-02T03:04:05Z");
        assert!(is_due(&definition) && is_terminating(&definition));
        assert!(!lifecycle::is_released(&KIND, &definition));
        let before = definition.clone();
        lifecycle::mark_deleted(&KIND, &mut definition, None, None, now());
        assert_eq!(definition, before);
    }

    #[test]
    fn the_finalizer_goes_when_the_objects_are_gone() {
        let mut definition = established();
        lifecycle::mark_deleted(&KIND, &mut definition, None, None, now());
        let running = advance(&definition, &outcome(&definition, 2), now()).expect("changed");
        let condition = condition::find(&running, TERMINATING).expect("a condition");
        assert_eq!(condition.text("message"), "CustomResource deletion is in progress");
        assert!(advance(&running, &outcome(&running, 1), now()).is_none());
        let done = advance(&running, &outcome(&running, 0), now()).expect("changed");
        assert!(!is_due(&done) && !is_terminating(&done) && lifecycle::is_released(&KIND, &done));
        assert_eq!(outcome(&json!({}), 0), Progress::NeverEstablished);
    }
}
