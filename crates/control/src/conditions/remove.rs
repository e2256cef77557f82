//! Removes conditions of an earlier run when the controller is disabled: they would become stale.
//!
//! Only conditions that managed fields attribute to this controller are removed.

use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::Entry;

use crate::write::{MANAGER, Write};

/// The write that removes the conditions of a Service, if it has any.
pub(super) fn remove(entry: &Entry) -> Option<Write> {
    if diagnose::Service::read(&entry.value, "", "").conditions().is_empty() {
        return None;
    }
    let mut object = object::decode_bare(&entry.value);
    let ours = |condition: &Value| {
        let kind = condition.text("type");
        super::TYPES.contains(&kind) && is_ours(object.items("metadata.managedFields"), kind)
    };
    let conditions = object.items("status.conditions");
    let kept: Vec<Value> = conditions.iter().filter(|condition| !ours(condition)).cloned().collect();
    if kept.len() == conditions.len() {
        return None;
    }
    if kept.is_empty() {
        object.drop_path("status.conditions");
    } else {
        object.put("status.conditions", kept);
    }
    Some(Write::Object { table: super::TABLE, object: Box::new(object), modified: entry.modified })
}

fn is_ours(fields: &[Value], kind: &str) -> bool {
    let name = format!("k:{{\"type\":\"{kind}\"}}");
    fields.iter().any(|owner| {
        owner.text("manager") == MANAGER
            && owner.text("subresource") == "status"
            && owner.at("fieldsV1").at("f:status").at("f:conditions").get(&name).is_some()
    })
}
