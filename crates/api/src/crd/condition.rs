//! Conditions in the status of a definition.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::lifecycle::seconds;
use crate::value::ValueExt as _;

/// Whether the names of the definition collide with others.
pub const NAMES_ACCEPTED: &str = "NamesAccepted";
/// Whether objects of the kind are served.
pub const ESTABLISHED: &str = "Established";
/// Whether the definition is being deleted.
pub const TERMINATING: &str = "Terminating";
/// Whether a definition in a protected group was approved.
pub const API_APPROVED: &str = "KubernetesAPIApprovalPolicyConformant";
/// Whether a schema is not structural.
pub const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// A condition to be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// [`ESTABLISHED`] and its like.
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: &'static str,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The condition of a type.
#[must_use]
pub fn find<'d>(definition: &'d Value, kind: &str) -> Option<&'d Value> {
    definition.items("status.conditions").iter().find(|condition| condition.text("type") == kind)
}

/// Whether the definition has the condition, and it is true.
#[must_use]
pub fn is_true(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| condition.text("status") == "True")
}

/// Whether the definition has this condition already, whenever it changed.
#[must_use]
pub fn is_set(definition: &Value, wanted: &Condition) -> bool {
    find(definition, wanted.kind).is_some_and(|have| {
        (have.text("status"), have.text("reason"), have.text("message"))
            == (wanted.status, wanted.reason, wanted.message.as_str())
    })
}

/// Sets a condition. Its time changes with its status only.
pub fn set(definition: &mut Value, wanted: &Condition, now: Timestamp) {
    set_at(definition, wanted, &seconds(now));
}

/// [`set`], with the time as it is written.
pub(super) fn set_at(definition: &mut Value, wanted: &Condition, now: &str) {
    let mut conditions = definition.items("status.conditions").to_vec();
    match conditions.iter_mut().find(|condition| condition.text("type") == wanted.kind) {
        None => conditions.push(json!({
            "type": wanted.kind, "status": wanted.status, "lastTransitionTime": now,
            "reason": wanted.reason, "message": wanted.message,
        })),
        Some(have) => {
            if have.text("status") != wanted.status || !have.has("lastTransitionTime") {
                have.put("lastTransitionTime", now);
            }
            have.put("status", wanted.status);
            have.put("reason", wanted.reason);
            have.put("message", wanted.message.as_str());
        }
    }
    definition.put("status.conditions", conditions);
}

/// Removes a condition.
pub(super) fn remove(definition: &mut Value, kind: &str) {
    if find(definition, kind).is_some() {
        let mut conditions = definition.items("status.conditions").to_vec();
        conditions.retain(|condition| condition.text("type") != kind);
        definition.put("status.conditions", conditions);
    }
}
