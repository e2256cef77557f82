//! Strategic merge patch: a partial object with directives flows in; the schema tables say how it merges.
//!
//! Objects and maps merge member by member and null removes. Lists are replaced unless their field has a merge key
//! (`Field::patch`), which [`list`] deals with. Directives are members of the patch: `$patch`, `$retainKeys`,
//! `$setElementOrder/x` and `$deleteFromPrimitiveList/x`.
//!
//! The patch is changed on the way: directives that were followed are taken out of it, and so are nulls in values that
//! are new. kube-apiserver shows what is left of it when the result does not decode, so that is part of the outcome.

mod list;
mod place;

use serde_json::{Map, Value};

use self::place::Place;
use super::{PatchError, mismatch, text};
use crate::schema::{Shape, TypeId};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_SCALARS: &str = "$deleteFromPrimitiveList";

/// The object with `patch` merged into it.
pub(super) fn apply(ty: TypeId, object: &Value, patch: &mut Value) -> Result<Value, PatchError> {
    let mut out = object.as_object().cloned().unwrap_or_default();
    match patch {
        Value::Null => {}
        Value::Object(patch) => {
            let shape = Shape::Object(ty);
            merge_map(&mut out, patch, Place::of(&shape))?;
        }
        other => return Err(PatchError::Malformed(mismatch(other, "value of type map[string]interface {}"))),
    }
    Ok(Value::Object(out))
}

/// A failure for which kube-apiserver has only a message.
fn raw(words: impl Into<String>) -> PatchError {
    PatchError::Raw(words.into())
}

fn wrong_type(expected: &str, actual: &Value) -> PatchError {
    raw(format!("expected a {expected}, but received a {}", text::type_name(actual)))
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let shown = text::plain(&Value::Object(patch.clone()));
    raw(format!("unknown patch type: {} in map: {shown}", text::marked(directive)))
}

fn merge_map(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    place: Place<'_>,
) -> Result<(), PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                original.clone_from(patch);
            }
            Some("delete") => original.clear(),
            _ => return Err(unknown_directive(directive, patch)),
        }
        return Ok(());
    }
    retain_keys(original, patch)?;
    list::follow_orders(original, patch, place)?;
    for (name, change) in patch.iter_mut() {
        merge_member(original, name, change, place)?;
    }
    Ok(())
}

fn merge_member(
    original: &mut Map<String, Value>,
    name: &str,
    change: &mut Value,
    place: Place<'_>,
) -> Result<(), PatchError> {
    let (key, deleting) = match name.strip_prefix(DELETE_SCALARS) {
        None => (name, false),
        Some(rest) => {
            let malformed = || PatchError::Malformed("invalid patch format of primitive list".to_owned());
            (rest.strip_prefix('/').ok_or_else(malformed)?, true)
        }
    };
    if change.is_null() {
        original.remove(key);
        return Ok(());
    }
    match original.get_mut(key) {
        Some(current) if text::type_name(current) == text::type_name(change) => match (current, change) {
            (Value::Object(current), Value::Object(change)) if place.is_replaced(key) => current.clone_from(change),
            (Value::Object(current), Value::Object(change)) => {
                merge_map(current, change, place.member(key).map_err(raw)?)?;
            }
            (Value::Array(current), Value::Array(change)) => {
                let (item, rule) = place.element(key).map_err(raw)?;
                if rule.merge_key.is_some() || deleting {
                    let merge_key = rule.merge_key.unwrap_or_default();
                    *current = list::merge(std::mem::take(current), change, item, merge_key, deleting)?;
                } else {
                    current.clone_from(change);
                }
            }
            (current, change) => current.clone_from(change),
        },
        _ if deleting => {}
        _ => {
            discard_nulls(change);
            match without_directives(change) {
                Some(value) => original.insert(key.to_owned(), value),
                None => original.remove(key),
            };
        }
    }
    Ok(())
}

/// `$retainKeys`: members that are not listed go; what the patch sets must be listed.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(listed) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let listed = listed.as_array().ok_or_else(malformed)?;
    let listed: std::collections::HashSet<&str> = listed.iter().filter_map(Value::as_str).collect();
    let of_directive = |name: &str| name.starts_with(DELETE_SCALARS) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !of_directive(name) && !listed.contains(name.as_str())) {
        return Err(malformed());
    }
    original.retain(|name, _| listed.contains(name.as_str()));
    Ok(())
}

/// Takes null members out, however deep.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// A new value without the parts that are directives; `None` when it is one itself.
fn without_directives(value: &mut Value) -> Option<Value> {
    if value.is_array() {
        let mut copy = value.clone();
        strip_directives(&mut copy);
        return Some(copy);
    }
    strip_directives(value).then(|| value.clone())
}

fn strip_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => return false,
        Value::Object(map) => map.retain(|_, member| strip_directives(member)),
        Value::Array(items) => items.retain_mut(strip_directives),
        _ => {}
    }
    true
}
