//! Conditions, and the status that objects have before a controller writes one.

use serde_json::{Value, json};

use super::schema::{Schema, choice, integer, map_list, object, optional, required, string};

fn condition() -> Schema {
    let kind = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
                (([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    let generation = integer().format("int64").at_least(0);
    object([
        required("lastTransitionTime", "When the status of the condition changed.", string().format("date-time")),
        required("message", "Details for people.", string().max_length(32768)),
        optional("observedGeneration", "The generation of the object that was judged.", generation),
        required(
            "reason",
            "Why the condition has its status, in one word.",
            string().length(1..=1024).pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        ),
        required("status", "True, False or Unknown.", choice(&["True", "False", "Unknown"])),
        required("type", "What the condition states.", string().max_length(316).pattern(kind)),
    ])
}

/// Conditions by type, without a bound.
pub(super) fn unbounded_conditions() -> Schema {
    map_list(&["type"], condition())
}

/// Conditions by type.
pub(super) fn conditions() -> Schema {
    unbounded_conditions().max_items(8)
}

/// Conditions that a new object has before a controller judged it.
pub(super) fn pending(kinds: &[&str]) -> Value {
    let condition = |kind: &&str| {
        json!({
            "type": kind, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        })
    };
    kinds.iter().map(condition).collect()
}
