//! Combinators for structural schemas: a schema is built from the inside out, and every field of an object is described.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::Channel;

/// A structural schema.
#[derive(Clone)]
pub(super) struct Schema(Map<String, Value>);

/// A field of an object.
pub(super) struct Field {
    name: &'static str,
    is_required: bool,
    schema: Schema,
}

/// A field that every object has.
pub(super) fn required(name: &'static str, description: &str, schema: Schema) -> Field {
    Field { name, is_required: true, schema: schema.describe(description) }
}

/// A field that may be absent.
pub(super) fn optional(name: &'static str, description: &str, schema: Schema) -> Field {
    Field { name, is_required: false, schema: schema.describe(description) }
}

/// A field whose schema may have nothing but its type: metadata.
pub(super) fn undescribed(name: &'static str, schema: Schema) -> Field {
    Field { name, is_required: false, schema }
}

/// An object with these fields.
pub(super) fn object(fields: impl IntoIterator<Item = Field>) -> Schema {
    Schema::of("object").fields(fields)
}

/// An object with any keys.
pub(super) fn map_of(values: Schema) -> Schema {
    Schema::of("object").with("additionalProperties", values.into_value())
}

/// A string.
pub(super) fn string() -> Schema {
    Schema::of("string")
}

/// One of these strings.
pub(super) fn choice(values: &[&str]) -> Schema {
    string().with("enum", json!(values))
}

/// A boolean.
pub(super) fn boolean() -> Schema {
    Schema::of("boolean")
}

/// An integer of any size.
pub(super) fn integer() -> Schema {
    Schema::of("integer")
}

/// An integer of 32 bits.
pub(super) fn int32() -> Schema {
    integer().format("int32")
}

/// A list that is replaced as a whole by server-side apply.
pub(super) fn list(items: Schema) -> Schema {
    Schema::of("array").with("items", items.into_value()).with("x-kubernetes-list-type", "atomic")
}

/// A list without duplicates, merged by server-side apply.
pub(super) fn set_of(items: Schema) -> Schema {
    list(items).with("x-kubernetes-list-type", "set")
}

/// A list of objects with a unique key, merged by server-side apply.
pub(super) fn map_list(keys: &[&str], items: Schema) -> Schema {
    list(items).with("x-kubernetes-list-type", "map").with("x-kubernetes-list-map-keys", json!(keys))
}

impl Schema {
    fn of(kind: &str) -> Self {
        Self(Map::from_iter([("type".to_owned(), kind.into())]))
    }

    /// Sets a keyword.
    pub(super) fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }

    pub(super) fn describe(self, description: &str) -> Self {
        self.with("description", description)
    }

    pub(super) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    pub(super) fn format(self, format: &str) -> Self {
        self.with("format", format)
    }

    pub(super) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    /// The length of a string.
    pub(super) fn length(self, length: RangeInclusive<u32>) -> Self {
        self.with("minLength", *length.start()).with("maxLength", *length.end())
    }

    pub(super) fn max_length(self, length: u32) -> Self {
        self.with("maxLength", length)
    }

    /// The range of a number.
    pub(super) fn range(self, range: RangeInclusive<i32>) -> Self {
        self.at_least(*range.start()).with("maximum", *range.end())
    }

    pub(super) fn at_least(self, minimum: i32) -> Self {
        self.with("minimum", minimum)
    }

    /// The number of items of a list.
    pub(super) fn items(self, count: RangeInclusive<u32>) -> Self {
        self.with("minItems", *count.start()).max_items(*count.end())
    }

    pub(super) fn max_items(self, count: u32) -> Self {
        self.with("maxItems", count)
    }

    /// The number of keys of a map.
    pub(super) fn max_keys(self, count: u32) -> Self {
        self.with("maxProperties", count)
    }

    /// Adds a rule in CEL, with the message for objects that do not satisfy it. Rules are evaluated in their order.
    ///
    /// A condition whose fields may be missing is the condition of a ternary, not an operand of `||`, which would hide the error: updates keep
    /// objects that violate the schema where they do not change.
    pub(super) fn rule(mut self, message: &str, expression: &str) -> Self {
        let rules = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(json!({"message": message, "rule": expression}));
        }
        self
    }

    /// [`Self::rule`] for each pair of message and expression.
    pub(super) fn rules(self, rules: impl IntoIterator<Item = (String, String)>) -> Self {
        rules.into_iter().fold(self, |schema, (message, expression)| schema.rule(&message, &expression))
    }

    /// Adds fields to an object.
    pub(super) fn fields(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        for field in fields {
            if field.is_required
                && let Value::Array(names) = self.0.entry("required").or_insert_with(|| json!([]))
            {
                names.push(field.name.into());
                names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
            let properties = self.0.entry("properties").or_insert_with(|| json!({}));
            properties[field.name] = field.schema.into_value();
        }
        self
    }

    /// Changes the schema in the experimental channel.
    pub(super) fn experimental(self, channel: Channel, change: impl FnOnce(Self) -> Self) -> Self {
        if channel.is_experimental() { change(self) } else { self }
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}
