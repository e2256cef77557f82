//! Whether defaults are complete and valid values of their schemas. CEL rules are not checked.

use serde_json::{Map, Value};

use super::invalid;
use crate::field::{Errors, Path};
use crate::structural::{Structural, go, metadata, prune};

/// The way from a resource to a node.
enum Trail<'t> {
    Resource,
    Member(&'t Self, &'t str),
    Element(&'t Self),
}

impl Trail<'_> {
    /// A resource that has a value at the end of the way, and nothing else that matters.
    fn surround(&self, value: Value) -> Value {
        match self {
            Self::Resource => {
                let mut resource = value;
                if let Value::Object(members) = &mut resource {
                    for (name, text) in [("kind", "Validation"), ("apiVersion", "validation/v1")] {
                        members.entry(name).or_insert_with(|| text.into());
                    }
                }
                resource
            }
            Self::Member(parent, name) => parent.surround(Value::Object(Map::from_iter([((*name).to_owned(), value)]))),
            Self::Element(parent) => parent.surround(Value::Array(vec![value])),
        }
    }
}

/// Checks the defaults of a whole schema.
pub(super) fn check(schema: &Value, path: &Path<'_>, pruned: bool, errors: &mut Errors) {
    let schema = Structural::parse(schema);
    if schema.has_defaults {
        Check { pruned }.node(&schema, &schema, true, &Trail::Resource, false, path, errors);
    }
}

struct Check {
    /// Defaults must not have unknown fields.
    pruned: bool,
}

impl Check {
    /// Checks the default of a node and of those below it. Below `additionalProperties` nothing is looked at, as in the
    /// original.
    #[expect(clippy::too_many_arguments, reason = "the state of a recursion")]
    fn node(
        &self,
        schema: &Structural,
        resource: &Structural,
        root: bool,
        trail: &Trail<'_>,
        inside_meta: bool,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        if !schema.has_defaults {
            return;
        }
        let is_resource = root || schema.embedded;
        let (resource, trail, inside_meta) =
            if is_resource { (schema, &Trail::Resource, false) } else { (resource, trail, inside_meta) };
        if let Some(default) = &schema.default {
            let path = path.child("default");
            if inside_meta {
                in_meta(schema, default, resource, trail, &path, errors);
            } else {
                self.outside_meta(schema, default, is_resource, &path, errors);
            }
        }
        if let Some(items) = &schema.items {
            let trail = Trail::Element(trail);
            self.node(items, resource, false, &trail, inside_meta, &path.child("items"), errors);
        }
        let properties = path.child("properties");
        for (name, property) in &schema.properties {
            let meta = is_resource && matches!(&**name, "metadata" | "apiVersion" | "kind");
            let (trail, inside_meta) = (Trail::Member(trail, name), inside_meta || meta);
            self.node(property, resource, false, &trail, inside_meta, &properties.key(name), errors);
        }
    }

    fn outside_meta(
        &self,
        schema: &Structural,
        default: &Value,
        is_resource: bool,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        if self.pruned && prune::removes_any(&mut default.clone(), schema, is_resource) {
            errors.0.push(invalid(path, &go::shown(default), "must not have unknown fields"));
        }
        let mut coerced = default.clone();
        if let Err(error) = metadata::coerce_value(schema, &mut coerced, is_resource, Some(path)) {
            errors.0.push(error);
            return;
        }
        let before = errors.0.len();
        metadata::validate(schema, &coerced, is_resource, Some(path), errors);
        if errors.0.len() == before {
            schema.validate_default(&coerced, path, errors);
        }
    }
}

/// Checks a default in the metadata of a resource by putting it into one.
fn in_meta(
    schema: &Structural,
    default: &Value,
    resource: &Structural,
    trail: &Trail<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut object = trail.surround(default.clone());
    let mut found = Errors::default();
    match metadata::coerce_value(resource, &mut object, true, None) {
        Ok(()) => metadata::validate(resource, &object, true, None, &mut found),
        Err(error) => found.0.push(error),
    }
    if found.is_empty() {
        schema.validate_default(default, path, errors);
    } else {
        let why = format!("must result in valid metadata: {}", found.summary());
        errors.0.push(invalid(path, &go::shown(default), &why));
    }
}
