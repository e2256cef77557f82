//! Structural schemas: the shape of custom resources, compiled from `openAPIV3Schema` of a CustomResourceDefinition.
//!
//! In: the JSON of a schema that passed the checks of CustomResourceDefinitions. Out: a tree of [`Structural`] nodes that
//! pruning, defaulting, validation, server-side apply and the rules in CEL walk. No I/O, no clock.

pub mod check;
mod defaulting;
pub(crate) mod format;
mod go;
mod lists;
mod metadata;
mod parse;
mod pattern;
mod prune;
mod ratchet;
pub mod rules;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

pub use self::metadata::{coerce, validate_embedded};
pub use self::pattern::Pattern;

/// One node of a structural schema: what a value at this place may be.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Structural {
    /// `type`; `None` where any type is allowed (`x-kubernetes-int-or-string`, `x-kubernetes-preserve-unknown-fields`).
    pub ty: Option<Type>,
    /// `nullable`: null is a value, and is not pruned or defaulted.
    pub nullable: bool,
    /// `default`.
    pub default: Option<Value>,
    /// `properties`, by name.
    pub properties: BTreeMap<Box<str>, Self>,
    /// `additionalProperties`.
    pub additional: Additional,
    /// `items`.
    pub items: Option<Box<Self>>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: apiVersion, kind and metadata are implied and validated.
    pub embedded: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-list-type` with its keys.
    pub list: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic_map: bool,
    /// `x-kubernetes-validations`, in order.
    pub rules: Vec<Rule>,
    /// Everything else that restricts values.
    pub checks: Checks,
    /// This node or one below it (outside of junctors) has a default; without one defaulting does not descend.
    pub has_defaults: bool,
    /// This node or one below it (outside of junctors) is an embedded resource.
    pub has_embedded: bool,
    /// This node or one below it (outside of junctors) is a list with unique elements.
    pub has_unique_lists: bool,
}

impl Structural {
    /// The schema of the member `name`: the property, or else the one of further properties.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::None | Additional::Any => None,
        })
    }
}

impl Type {
    /// The name in a schema.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Array, Self::Boolean, Self::Integer, Self::Number, Self::Object, Self::String]
            .into_iter()
            .find(|ty| ty.as_str() == name)
    }
}

/// The `type` of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// `array`.
    Array,
    /// `boolean`.
    Boolean,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `object`.
    Object,
    /// `string`.
    String,
}

/// The `additionalProperties` of a node.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Additional {
    /// None: only the named properties are known.
    #[default]
    None,
    /// `true`: any further property, with any value.
    Any,
    /// Any further property, with a value of this schema.
    Schema(Box<Structural>),
}

/// How a list merges, and what must be unique in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ListType {
    /// One value.
    #[default]
    Atomic,
    /// Unique scalars.
    Set,
    /// Objects, unique by these keys.
    Map(Vec<Box<str>>),
}

/// One rule of `x-kubernetes-validations`, as it was written.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rule {
    /// The expression.
    pub rule: String,
    /// `message`.
    pub message: String,
    /// `messageExpression`.
    pub message_expression: String,
    /// `reason`.
    pub reason: String,
    /// `fieldPath`.
    pub field_path: String,
    /// `optionalOldSelf`: transition rules also run without an old value.
    pub optional_old_self: Option<bool>,
}

/// The value validations of a node (`minLength`, `pattern`, `enum`, `allOf` …).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Checks {
    /// `format`.
    pub format: String,
    /// `required`.
    pub required: Vec<Box<str>>,
    /// `enum`.
    pub enumeration: Vec<Value>,
    /// `minimum` with `exclusiveMinimum`.
    pub minimum: Option<Bound>,
    /// `maximum` with `exclusiveMaximum`.
    pub maximum: Option<Bound>,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength`.
    pub min_length: Option<i64>,
    /// `maxLength`.
    pub max_length: Option<i64>,
    /// `pattern`.
    pub pattern: Pattern,
    /// `minItems`.
    pub min_items: Option<i64>,
    /// `maxItems`.
    pub max_items: Option<i64>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `minProperties`.
    pub min_properties: Option<i64>,
    /// `maxProperties`.
    pub max_properties: Option<i64>,
    /// `allOf`.
    pub all_of: Vec<Structural>,
    /// `anyOf`.
    pub any_of: Vec<Structural>,
    /// `oneOf`.
    pub one_of: Vec<Structural>,
    /// `not`.
    pub not: Option<Box<Structural>>,
    /// `additionalProperties: false`: a further property is kept ([`Additional::Any`]) and refused by validation.
    pub closed: bool,
}

/// A limit of a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The limit.
    pub value: f64,
    /// The limit itself is not allowed.
    pub exclusive: bool,
}
