//! What is forbidden or contradictory anywhere in a schema.

use serde_json::Value;

use super::{Options, lists};
use crate::field::{Errors, Path};
use crate::structural::Type;
use crate::value::ValueExt as _;

/// What the position of a node means for it.
#[derive(Clone, Copy)]
struct Position<'p> {
    root: bool,
    /// Why it may not have a default.
    no_default: Option<Reason<'p>>,
    /// In `apiVersion`, `kind` or `metadata` of a resource.
    inside_meta: bool,
}

#[derive(Clone, Copy)]
enum Reason<'p> {
    TopLevel(&'p str),
    Further,
}

/// Checks a whole schema.
pub(super) fn check(schema: &Value, path: &Path<'_>, options: &Options, errors: &mut Errors) {
    let root = Position { root: true, no_default: None, inside_meta: false };
    node(schema, path, root, options, errors);
}

fn node(schema: &Value, path: &Path<'_>, position: Position<'_>, options: &Options, errors: &mut Errors) {
    if !schema.is_object() {
        return;
    }
    unsupported(schema, path, position, options, errors);
    if schema.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), why);
    }
    let below = Position { root: false, ..position };
    further(schema, path, below, options, errors);
    properties(schema, path, position, options, errors);
    node(schema.at("not"), &path.child("not"), below, options, errors);
    for field in ["allOf", "oneOf", "anyOf"] {
        list(schema, field, path, below, options, errors);
    }
    map(schema, "definitions", path, below, options, errors);
    node(schema.at("items"), &path.child("items"), below, options, errors);
    list(schema, "items", path, below, options, errors);
    map(schema, "dependencies", path, below, options, errors);
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let place = path.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(&place, Value::Bool(false), "must be true or undefined");
    }
    lists::check_map_type(schema, path, errors);
    lists::check_list_type(schema, path, options.atomic_sets, errors);
    if options.complete_keys {
        lists::check_keys(schema, path, errors);
    }
}

fn list(schema: &Value, field: &str, path: &Path<'_>, position: Position<'_>, options: &Options, errors: &mut Errors) {
    let place = path.child(field);
    for (index, schema) in schema.items(field).iter().enumerate() {
        node(schema, &place.index(index), position, options, errors);
    }
}

fn map(schema: &Value, field: &str, path: &Path<'_>, position: Position<'_>, options: &Options, errors: &mut Errors) {
    let place = path.child(field);
    for (name, schema) in schema.map(field).into_iter().flatten() {
        node(schema, &place.key(name), position, options, errors);
    }
}

fn further(schema: &Value, path: &Path<'_>, position: Position<'_>, options: &Options, errors: &mut Errors) {
    let (further, place) = (schema.at("additionalProperties"), path.child("additionalProperties"));
    let has_properties = schema.map("properties").is_some_and(|properties| !properties.is_empty());
    if has_properties && matches!(further, Value::Object(_) | Value::Bool(false)) {
        errors.forbidden(&place, "additionalProperties and properties are mutual exclusive");
    }
    let no_default = if position.inside_meta { Some(Reason::Further) } else { position.no_default };
    node(further, &place, Position { no_default, ..position }, options, errors);
}

fn properties(schema: &Value, path: &Path<'_>, position: Position<'_>, options: &Options, errors: &mut Errors) {
    let place = path.child("properties");
    let resource = position.root || schema.flag("x-kubernetes-embedded-resource");
    for (name, property) in schema.map("properties").into_iter().flatten() {
        let mut below = Position { root: false, ..position };
        if resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            below.inside_meta = true;
            if position.root {
                below.no_default = Some(Reason::TopLevel(name));
            }
        }
        node(property, &place.key(name), below, options, errors);
    }
}

/// Checks fields of JSON Schema that are not supported.
fn unsupported(schema: &Value, path: &Path<'_>, position: Position<'_>, options: &Options, errors: &mut Errors) {
    let ty = schema.text("type");
    if options.known_types && !ty.is_empty() && Type::named(ty).is_none() {
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.not_supported(&path.child("type"), ty, &known);
    }
    if let Some(reason) = position.no_default.filter(|_| schema.has("default")) {
        let why = match reason {
            Reason::TopLevel(name) => format!("must not be set in top-level {name}"),
            Reason::Further => "must not be set inside additionalProperties applying to object metadata".to_owned(),
        };
        errors.forbidden(&path.child("default"), &why);
    }
    let filled = |field: &str| schema.map(field).is_some_and(|map| !map.is_empty());
    let given = [
        ("id", !schema.text("id").is_empty()),
        ("additionalItems", schema.has("additionalItems")),
        ("patternProperties", filled("patternProperties")),
        ("definitions", filled("definitions")),
        ("dependencies", schema.at("dependencies").is_object()),
        ("$ref", schema.has("$ref")),
    ];
    for (field, given) in given {
        if given {
            errors.forbidden(&path.child(field), &format!("{field} is not supported"));
        }
    }
    if ty == "null" {
        let why = "type cannot be set to null, use nullable as an alternative";
        errors.forbidden(&path.child("type"), why);
    }
    if !schema.items("items").is_empty() {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    if position.inside_meta && schema.flag("x-kubernetes-embedded-resource") {
        let place = path.child("x-kubernetes-embedded-resource");
        errors.forbidden(&place, "must not be used inside of resource meta");
    }
}
