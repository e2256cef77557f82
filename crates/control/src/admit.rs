//! Admission policies and webhooks for objects that controllers create: mutation before the transaction is built, validation of its objects.

use api::kind::Kind;
use api::kinds;
use api::object;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;
use store::admission::{AdmitNew, Dynamic, Request};
use store::{Op, Txn};

use crate::write::{Refusal, USER, Write};

/// The policies and webhooks, if there are any.
pub(crate) fn needed(dynamic: Option<&Dynamic>) -> Option<&dyn AdmitNew> {
    dynamic.map(|dynamic| &*dynamic.0).filter(|dynamic| dynamic.is_needed())
}

/// Applies mutating policies and webhooks to new objects.
pub(crate) async fn mutate(dynamic: &dyn AdmitNew, writes: &mut [Write]) -> Result<(), Box<Refusal>> {
    for write in writes {
        let Write::Object { table, object, modified: 0 } = write else { continue };
        let Some(kind) = kinds::by_table(table) else { continue };
        let (namespace, name) = names(object);
        let owner = Refusal::owner(object);
        typed(kind, object);
        let before = object.clone();
        let changed = dynamic.mutate(request(kind, &namespace, &name), object).await;
        let kept = changed.and_then(|()| keep_identity(kind, &before, object));
        kept.map_err(|status| refusal(namespace, owner, status))?;
    }
    Ok(())
}

/// Fields of `metadata` that webhooks do not change.
const SYSTEM_FIELDS: [&str; 4] = ["uid", "creationTimestamp", "deletionTimestamp", "resourceVersion"];

/// Refuses an object that a webhook renamed or moved to another namespace, and restores system fields.
fn keep_identity(kind: &Kind, before: &Value, object: &mut Value) -> Result<(), Status> {
    let (old, new) = (names(before), names(object));
    if old.0 != new.0 || (!old.1.is_empty() && old.1 != new.1) {
        return Err(Status::forbidden(
            kind.resource(),
            &old.1,
            "a webhook changed the name or namespace of the object",
        ));
    }
    for field in SYSTEM_FIELDS {
        let value = before.at("metadata").get(field).cloned();
        match (object["metadata"].as_object_mut(), value) {
            (Some(metadata), Some(value)) => drop(metadata.insert(field.to_owned(), value)),
            (Some(metadata), None) => drop(metadata.remove(field)),
            (None, _) => {}
        }
    }
    Ok(())
}

/// Validates the new objects of a transaction.
pub(crate) async fn validate(dynamic: &dyn AdmitNew, txn: &Txn) -> Result<(), Box<Refusal>> {
    for (kind, mut object) in created(txn) {
        typed(kind, &mut object);
        let (namespace, name) = names(&object);
        let valid = dynamic.validate(request(kind, &namespace, &name), &object).await;
        valid.map_err(|status| refusal(namespace, Refusal::owner(&object), status))?;
    }
    Ok(())
}

/// The objects that a transaction creates.
fn created(txn: &Txn) -> impl Iterator<Item = (&'static Kind, Value)> {
    let is_new = |op: &&Op| match op {
        Op::Put { key, .. } => txn.compares.iter().any(|compare| compare.modified == 0 && compare.key == *key),
        Op::Delete { .. } => false,
    };
    txn.ops.iter().filter(is_new).filter_map(|op| match op {
        Op::Put { key, value, .. } => Some((kinds::by_table(key.table.as_str())?, object::decode_bare(value))),
        Op::Delete { .. } => None,
    })
}

fn request<'a>(kind: &'static Kind, namespace: &'a str, name: &'a str) -> Request<'a> {
    Request { kind, namespace, name, subresource: "", user: USER }
}

fn names(object: &Value) -> (String, String) {
    (object.text("metadata.namespace").to_owned(), object.text("metadata.name").to_owned())
}

fn typed(kind: &Kind, object: &mut Value) {
    object.put("kind", kind.kind);
    object.put("apiVersion", kind.api_version());
}

fn refusal(namespace: String, owner: Value, status: Status) -> Box<Refusal> {
    Box::new(Refusal { namespace, owner, why: status.message })
}

#[cfg(test)]
mod tests;
