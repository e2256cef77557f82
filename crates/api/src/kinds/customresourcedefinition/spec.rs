//! The spec of a definition as validation sees it: what all versions have in common stands beside the versions.
//!
//! In: the spec of a definition that was [normalised](super::normal). Out: the parts with the place that errors name:
//! `spec.validation` when all versions have the same schema, else `spec.versions[0].schema`.

use serde_json::Value;

use crate::value::ValueExt as _;

/// A part of a version that stands beside the versions when it is the same in all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Schema,
    Subresources,
    Columns,
    Selectable,
}

impl Part {
    /// Its name in a version.
    fn name(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Subresources => "subresources",
            Self::Columns => "additionalPrinterColumns",
            Self::Selectable => "selectableFields",
        }
    }
}

/// A spec.
#[derive(Clone, Copy)]
pub(super) struct Spec<'a>(pub(super) &'a Value);

impl<'a> Spec<'a> {
    /// The spec of a definition.
    pub(super) fn of(definition: &'a Value) -> Self {
        Self(definition.at("spec"))
    }

    pub(super) fn versions(self) -> &'a [Value] {
        self.0.items("versions")
    }

    /// Whether all versions have the same, or none.
    pub(super) fn is_shared(self, part: Part) -> bool {
        let mut parts = self.versions().iter().map(|version| version.at(part.name()));
        parts.next().is_some_and(|first| parts.all(|other| other == first))
    }

    /// What all versions have in common; null when they differ, or have none.
    pub(super) fn shared(self, part: Part) -> &'a Value {
        match self.versions().first() {
            Some(first) if self.is_shared(part) => first.at(part.name()),
            _ => &Value::Null,
        }
    }

    /// The version-specific fields.
    pub(super) fn own(self, version: &'a Value, part: Part) -> &'a Value {
        if self.is_shared(part) { &Value::Null } else { version.at(part.name()) }
    }

    /// Whether every version has a schema.
    pub(super) fn has_schemas(self) -> bool {
        let is_complete = |version: &Value| version.at("schema.openAPIV3Schema").is_object();
        self.shared(Part::Schema).at("openAPIV3Schema").is_object() || self.versions().iter().all(is_complete)
    }

    /// The schemas of all versions.
    pub(super) fn schemas(self) -> impl Iterator<Item = &'a Value> {
        self.versions().iter().map(|version| version.at("schema.openAPIV3Schema")).filter(|schema| schema.is_object())
    }

    /// Whether any version has the status subresource.
    pub(super) fn has_status(self) -> bool {
        self.versions().iter().any(|version| version.at("subresources.status").is_object())
    }
}

/// Whether a schema, or one inside of it, is as wanted. Every place of a schema is visited.
pub(super) fn any_schema(schema: &Value, wanted: &mut dyn FnMut(&Value) -> bool) -> bool {
    const LISTS: &[&str] = &["allOf", "anyOf", "oneOf"];
    const MAPS: &[&str] = &["properties", "patternProperties", "definitions", "dependencies"];
    if !schema.is_object() {
        return false;
    }
    if wanted(schema) {
        return true;
    }
    let member = |name: &str| schema.get(name).unwrap_or(&Value::Null);
    let items = member("items");
    any_schema(items, wanted)
        || items.as_array().is_some_and(|list| list.iter().any(|schema| any_schema(schema, wanted)))
        || LISTS.iter().any(|name| schema.items(name).iter().any(|schema| any_schema(schema, wanted)))
        || ["not", "additionalProperties", "additionalItems"].iter().any(|name| any_schema(member(name), wanted))
        || MAPS.iter().any(|name| schema.map(name).is_some_and(|map| map.values().any(|one| any_schema(one, wanted))))
}
