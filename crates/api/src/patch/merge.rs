//! Merge patch: a partial object flows in, null removes, objects merge, everything else replaces.
//!
//! RFC 7386 as the library behind Kubernetes reads it. The difference shows with nulls inside a value that is new:
//! they are dropped there too, even from objects in lists.

use serde_json::{Map, Value};

use super::{PatchError, mismatch};

/// The object with `patch` merged into it.
pub(super) fn apply(object: &Value, patch: &Value, checked: bool) -> Result<Value, PatchError> {
    let mut out = object.clone();
    match (&mut out, patch) {
        (Value::Object(current), Value::Object(patch)) => merge(current, patch),
        (_, Value::Null) => return Err(not_a_patch()),
        _ if checked => {
            let words = mismatch(patch, "value of type map[string]interface {}");
            return Err(PatchError::Malformed(format!("error decoding patch: {words}")));
        }
        // Unchecked, a list is the whole result; decoding it fails.
        (out, Value::Array(_)) => *out = without_nulls(patch),
        _ => return Err(not_a_patch()),
    }
    Ok(out)
}

fn not_a_patch() -> PatchError {
    PatchError::Malformed("Invalid JSON Patch".to_owned())
}

fn merge(current: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        match (current.get_mut(name), change) {
            (_, Value::Null) => {
                current.remove(name);
            }
            (Some(Value::Object(inner)), Value::Object(change)) => merge(inner, change),
            (Some(place @ Value::Object(_)), _) => *place = change.clone(),
            (Some(place), _) => *place = without_nulls(change),
            (None, _) => {
                current.insert(name.clone(), without_nulls(change));
            }
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, member)| !member.is_null());
            Value::Object(kept.map(|(name, member)| (name.clone(), without_nulls(member))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}
