//! Defaults of a schema, put into objects.
//!
//! In: an object after pruning, which has removed nulls that nothing replaces. Out: the object with defaults for what
//! is missing, or null without being nullable; a default of a parent is filled in as well.

use serde_json::{Map, Value};

use super::{Additional, Structural};

impl Structural {
    /// Puts in the defaults of all members, list elements and map entries. The default of the root itself is not used.
    pub fn apply_defaults(&self, object: &mut Value) {
        if !self.has_defaults {
            return;
        }
        match object {
            Value::Object(members) => self.default_members(members),
            Value::Array(elements) => {
                let Some(schema) = &self.items else { return };
                elements.iter_mut().for_each(|element| schema.replace_null(element));
            }
            _ => {}
        }
    }

    fn default_members(&self, members: &mut Map<String, Value>) {
        for (name, schema) in self.properties.iter().filter(|(_, schema)| schema.has_defaults) {
            match (members.get_mut(&**name), &schema.default) {
                (Some(value), _) => schema.replace_null(value),
                (None, Some(default)) => {
                    let mut value = default.clone();
                    schema.apply_defaults(&mut value);
                    members.insert(name.to_string(), value);
                }
                (None, None) => {}
            }
        }
        let Additional::Schema(schema) = &self.additional else { return };
        if !schema.has_defaults {
            return;
        }
        for (name, value) in members.iter_mut() {
            if !self.properties.contains_key(name.as_str()) {
                schema.replace_null(value);
            }
        }
    }

    /// Puts the default of this node in place of a null that is no value, and then defaults below.
    fn replace_null(&self, value: &mut Value) {
        if value.is_null()
            && !self.nullable
            && let Some(default) = &self.default
        {
            *value = default.clone();
        }
        self.apply_defaults(value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(schema: &Value, mut object: Value) -> Value {
        Structural::parse(schema).apply_defaults(&mut object);
        object
    }

    #[test]
    fn missing_members_get_their_defaults_at_all_levels() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "a": {"type": "string", "default": "x"},
            "o": {"type": "object", "properties": {"b": {"type": "string", "default": "y"}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "integer", "default": 1}}}},
            "m": {"type": "object", "additionalProperties":
                {"type": "object", "properties": {"d": {"type": "integer", "default": 2}}}},
        }}}});
        assert_eq!(defaulted(&schema, json!({})), json!({"spec": {"a": "x"}}));
        assert_eq!(
            defaulted(&schema, json!({"spec": {"a": "z", "o": {}, "l": [{}, {"c": 5}], "m": {"k": {}}}})),
            json!({"spec": {"a": "z", "o": {"b": "y"}, "l": [{"c": 1}, {"c": 5}], "m": {"k": {"d": 2}}}})
        );
    }

    #[test]
    fn a_null_is_replaced_where_it_is_no_value() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "default": "x", "nullable": true},
            "l": {"type": "array", "items": {"type": "string", "default": "x"}},
            "m": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
        }});
        assert_eq!(
            defaulted(&schema, json!({"a": null, "n": null, "l": [null, "y"], "m": {"k": null}})),
            json!({"a": "x", "n": null, "l": ["x", "y"], "m": {"k": "x"}})
        );
    }
}
