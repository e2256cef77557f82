//! Elements of sets, and keys of lists that are maps: each may occur once.

use std::collections::HashMap;
use std::hash::Hash;

use serde_json::{Map, Value};

use super::metadata::child;
use super::{Additional, ListType, Structural, go};
use crate::field::{Errors, FieldError, Path};

/// Checks the lists of an object. Updates do not report errors that the old object already had.
pub(super) fn validate(schema: &Structural, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if !schema.has_unique_lists {
        return;
    }
    let mut found = Errors::default();
    // The root is an object, whose own list type means nothing.
    members(schema, object, None, &mut found);
    if found.is_empty() {
        return;
    }
    let mut before = Errors::default();
    if let Some(old) = old {
        members(schema, old, None, &mut before);
    }
    if before.is_empty() {
        errors.0.append(&mut found.0);
    }
}

fn members(schema: &Structural, object: &Value, path: Option<&Path<'_>>, errors: &mut Errors) {
    let Value::Object(members) = object else { return };
    if let Additional::Schema(further) = &schema.additional
        && further.has_unique_lists
    {
        for (name, member) in members {
            let place = path.map_or(Path::Root(name), |path| path.key(name));
            value(further, member, &place, errors);
        }
    }
    for (name, member) in members {
        if let Some(known) = schema.properties.get(name.as_str()).filter(|known| known.has_unique_lists) {
            value(known, member, &child(path, name), errors);
        }
    }
}

fn value(schema: &Structural, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Value::Array(elements) = value else { return members(schema, value, Some(path), errors) };
    match &schema.list {
        ListType::Atomic => {}
        ListType::Set => {
            for index in repeated(elements.iter()) {
                duplicate(&path.index(index), elements.get(index).unwrap_or(&Value::Null), errors);
            }
        }
        ListType::Map(keys) => map(keys, elements, path, errors),
    }
    let Some(items) = schema.items.as_deref().filter(|items| items.has_unique_lists) else { return };
    for (index, element) in elements.iter().enumerate() {
        self::value(items, element, &path.index(index), errors);
    }
}

/// Checks that no two objects have the same keys.
fn map(keys: &[Box<str>], elements: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if let Some(index) = elements.iter().position(|element| !element.is_object() && !element.is_null()) {
        let shown = elements.get(index).map(go::shown).unwrap_or_default();
        let body = format!("Invalid value: {shown}: must be an object for an array of list-type map");
        errors.0.push(FieldError { reason: "FieldValueInvalid", field: path.index(index).to_string(), body });
        return;
    }
    let key = |element| keys.iter().map(|key| Value::get(element, &**key)).collect::<Vec<Option<&Value>>>();
    for index in repeated(elements.iter().map(key)) {
        let Some(element) = elements.get(index) else { continue };
        let shown: Map<String, Value> =
            keys.iter().filter_map(|key| Some((key.to_string(), element.get(&**key)?.clone()))).collect();
        duplicate(&path.index(index), &Value::Object(shown), errors);
    }
}

fn duplicate(path: &Path<'_>, value: &Value, errors: &mut Errors) {
    let body = format!("Duplicate value: {}", go::shown(value));
    errors.0.push(FieldError { reason: "FieldValueDuplicate", field: path.to_string(), body });
}

/// Where values occur for the second time.
fn repeated<T: Hash + Eq>(values: impl ExactSizeIterator<Item = T>) -> Vec<usize> {
    let mut out = Vec::new();
    if values.len() < 2 {
        return out;
    }
    let mut times: HashMap<T, u32> = HashMap::with_capacity(values.len());
    for (index, value) in values.enumerate() {
        let seen = times.entry(value).or_default();
        *seen = seen.saturating_add(1);
        if *seen == 2 {
            out.push(index);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn complaints(object: &Value, old: Option<&Value>) -> Vec<String> {
        let map = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "properties": {"port": {"type": "integer"}, "protocol": {"type": "string"}}},
        });
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": map},
        }}));
        let mut errors = Errors::default();
        validate(&schema, object, old, &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_second_occurrence_is_reported() {
        assert_eq!(
            complaints(&json!({"s": ["a", "b", "a", "a", "b"]}), None),
            ["s[2]: Duplicate value: \"a\"", "s[4]: Duplicate value: \"b\""]
        );
        assert!(complaints(&json!({"s": [1, "1", null, {}]}), None).is_empty());
    }

    #[test]
    fn keys_of_maps_are_compared_together() {
        let item = |port: u16, protocol: &str| json!({"port": port, "protocol": protocol});
        assert_eq!(
            complaints(&json!({"m": {"k": [item(1, "TCP"), item(1, "UDP"), item(1, "TCP")]}}), None),
            ["m[k][2]: Duplicate value: {\"port\":1,\"protocol\":\"TCP\"}"]
        );
        assert_eq!(complaints(&json!({"m": {"k": [{}, null]}}), None), ["m[k][1]: Duplicate value: {}"]);
        assert_eq!(
            complaints(&json!({"m": {"k": [{}, 5]}}), None),
            ["m[k][1]: Invalid value: 5: must be an object for an array of list-type map"]
        );
    }

    #[test]
    fn old_errors_excuse_new_ones() {
        let old = json!({"s": ["a", "a"]});
        assert!(complaints(&json!({"s": ["b", "b"]}), Some(&old)).is_empty());
        assert_eq!(complaints(&json!({"s": ["b", "b"]}), Some(&json!({}))).len(), 1);
    }
}
