//! Validation ratcheting: which old value belongs to a new one, and whether it is the same.
//!
//! On updates, errors of values that did not change are dropped. Members correspond by name, elements of lists that are
//! maps by their keys, and elements of other lists not at all.

use std::collections::HashMap;

use serde_json::Value;

use super::{ListType, Structural, Type};

/// A value and the one it replaces.
#[derive(Clone, Copy)]
pub(super) struct Change<'v> {
    pub(super) schema: &'v Structural,
    pub(super) new: &'v Value,
    pub(super) old: &'v Value,
}

/// The elements of an old list that is a map, by their keys.
pub(super) struct Keyed<'v> {
    schema: &'v Structural,
    keys: &'v [Box<str>],
    old: HashMap<Vec<&'v Value>, &'v Value>,
}

impl<'v> Change<'v> {
    /// The change of a member.
    pub(super) fn member(&self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        Some(Self { schema: self.schema.member(name)?, new, old })
    }

    /// The old elements of a list that is a map.
    pub(super) fn keyed(&self) -> Option<Keyed<'v>> {
        let ListType::Map(keys) = &self.schema.list else { return None };
        if self.schema.ty != Some(Type::Array) || keys.is_empty() {
            return None;
        }
        let (schema, elements) = (self.schema.items.as_deref()?, self.old.as_array()?);
        let mut old = HashMap::with_capacity(elements.len());
        for element in elements {
            if let Some(key) = key(keys, element) {
                old.entry(key).or_insert(element);
            }
        }
        Some(Keyed { schema, keys, old })
    }

    /// Whether nothing changed. Members that the schema does not know count as changed.
    pub(super) fn is_same(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                match self.keyed() {
                    Some(keyed) => new.iter().all(|new| keyed.find(new).is_some_and(|change| change.is_same())),
                    None => new == old,
                }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.member(name).is_some_and(|change| change.is_same()))
            }
            (new, old) => new == old,
        }
    }
}

impl<'v> Keyed<'v> {
    /// The change of an element.
    pub(super) fn find(&self, new: &'v Value) -> Option<Change<'v>> {
        let old = self.old.get(&key(self.keys, new)?)?;
        Some(Change { schema: self.schema, new, old })
    }
}

/// The values of the keys of an element; all must be there, and scalars.
fn key<'v>(keys: &[Box<str>], element: &'v Value) -> Option<Vec<&'v Value>> {
    let element = element.as_object()?;
    let scalar = |value: &&Value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    keys.iter().map(|key| element.get(&**key).filter(scalar)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_same(new: &Value, old: &Value) -> bool {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "m": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}},
            },
            "l": {"type": "array", "items": {"type": "string"}},
            "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}));
        Change { schema: &schema, new, old }.is_same()
    }

    #[test]
    fn lists_that_are_maps_have_no_order() {
        let (a, b) = (json!({"k": "a", "v": "1"}), json!({"k": "b"}));
        assert!(is_same(&json!({"m": [a, b]}), &json!({"m": [b, a]})));
        assert!(!is_same(&json!({"m": [a, {"k": "c"}]}), &json!({"m": [b, a]})));
        assert!(is_same(&json!({"l": ["a", "b"]}), &json!({"l": ["a", "b"]})));
        assert!(!is_same(&json!({"l": ["a", "b"]}), &json!({"l": ["b", "a"]})));
    }

    #[test]
    fn members_outside_of_the_schema_count_as_changed() {
        assert!(is_same(&json!({"p": {}}), &json!({"p": {}})));
        assert!(!is_same(&json!({"p": {"a": 1}}), &json!({"p": {"a": 1}})));
    }
}
