//! Whether a schema is structural: each value has one type, specified outside of junctors.

use serde_json::Value;

use super::dump;
use crate::field::{Errors, Path};
use crate::value::ValueExt as _;

/// Which part of the tree a node belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Element,
    Field,
}

/// The first field of a schema that no structural schema may have.
pub(super) fn unsupported(schema: &Value) -> Option<&'static str> {
    if !schema.is_object() {
        return None;
    }
    for (field, name) in [("id", "id"), ("$schema", "schema"), ("$ref", "$ref")] {
        if !schema.text(field).is_empty() {
            return Some(name);
        }
    }
    let filled = |field: &str| schema.map(field).is_some_and(|map| !map.is_empty());
    for field in ["patternProperties", "dependencies", "definitions"] {
        if filled(field) {
            return Some(field);
        }
    }
    if schema.has("additionalItems") {
        return Some("additionalItems");
    }
    if !schema.items("items").is_empty() {
        return Some("items");
    }
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if schema.get(preserve) == Some(&Value::Bool(false)) {
        return Some(preserve);
    }
    let below = ["not", "items", "additionalProperties"].into_iter().map(|field| schema.at(field));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|field| schema.items(field));
    let properties = schema.map("properties").into_iter().flat_map(|map| map.values());
    below.chain(lists).chain(properties).find_map(unsupported)
}

/// Checks a whole schema.
pub(super) fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    invariants(schema, Level::Root, path, errors);
}

fn invariants(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let ty = schema.text("type");
    match schema.at("items") {
        Value::Object(_) => invariants(schema.at("items"), Level::Element, &path.child("items"), errors),
        _ if ty == "array" && !schema.has("items") => errors.required(&path.child("items"), "must be specified"),
        _ => {}
    }
    let properties = path.child("properties");
    for (name, property) in schema.map("properties").into_iter().flatten() {
        invariants(property, Level::Field, &properties.key(name), errors);
    }
    if schema.has("additionalProperties") {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.forbidden(&path, "must not be used at the root");
        }
        let further = schema.at("additionalProperties");
        if further.is_object() {
            invariants(further, Level::Field, &path, errors);
        }
        if schema.flag("x-kubernetes-embedded-resource") {
            errors.forbidden(&path, "must not be used if x-kubernetes-embedded-resource is set");
        }
    }
    extensions(schema, path, errors);
    let any_of = is_int_or_string(schema.items("anyOf"));
    let all_of = schema.items("allOf").first().is_some_and(|first| is_int_or_string(first.items("anyOf")));
    values(schema, any_of, all_of, path, errors);
    check_type(schema, level, path, errors);
    check_meta(schema, level, path, errors);
}

fn extensions(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if schema.flag("x-kubernetes-int-or-string") {
        for field in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if schema.flag(field) {
                errors.invalid(
                    &path.child(field),
                    Value::Bool(true),
                    "must be false if x-kubernetes-int-or-string is true",
                );
            }
        }
    }
    let empty = schema.map("properties").is_none_or(serde_json::Map::is_empty);
    if schema.flag("x-kubernetes-embedded-resource") && !schema.flag("x-kubernetes-preserve-unknown-fields") && empty {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(&path.child("properties"), why);
    }
}

fn check_type(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let (ty, place) = (schema.text("type"), path.child("type"));
    let any = schema.flag("x-kubernetes-int-or-string") || schema.flag("x-kubernetes-preserve-unknown-fields");
    if schema.flag("x-kubernetes-embedded-resource") && ty != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        if ty.is_empty() {
            errors.required(&place, why);
        } else {
            errors.invalid(&place, ty, why);
        }
    } else if ty.is_empty() && !any {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Element => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(&place, why);
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.invalid(&place, ty, "must be object at the root");
    }
}

/// Checks the schemas of `apiVersion`, `kind` and `metadata` of a resource.
fn check_meta(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let resource = level == Level::Root || schema.flag("x-kubernetes-embedded-resource");
    let Some(properties) = schema.map("properties") else { return };
    let path = path.child("properties");
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(ty) = properties.get(name).map(|property| property.text("type")) else { continue };
        if resource && ty != wanted {
            errors.invalid(&path.key(name).child("type"), ty, &format!("must be {wanted}"));
        }
    }
    if level == Level::Root && properties.get("metadata").is_some_and(|metadata| !only_restricts_names(metadata)) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&path.key("metadata"), why);
    }
}

fn only_restricts_names(metadata: &Value) -> bool {
    let names = |(name, _): (&String, &Value)| matches!(name.as_str(), "name" | "generateName");
    metadata.map("properties").into_iter().flatten().all(names)
        && dump::set_fields(metadata).all(|field| matches!(field, "Type" | "Default" | "Properties"))
}

/// Whether junctors say `integer` or `string`, which only `x-kubernetes-int-or-string` needs.
fn is_int_or_string(any_of: &[Value]) -> bool {
    let is = |schema: &Value, ty: &str| schema.text("type") == ty && dump::set_fields(schema).eq(["Type"]);
    matches!(any_of, [first, second] if is(first, "integer") && is(second, "string"))
}

/// Checks the value validations of a node.
fn values(schema: &Value, skip_any_of: bool, skip_first_all_of: bool, path: &Path<'_>, errors: &mut Errors) {
    for (field, skipped) in [("anyOf", skip_any_of), ("allOf", false), ("oneOf", false)] {
        let place = path.child(field);
        for (index, junctor) in schema.items(field).iter().enumerate().filter(|_| !skipped) {
            nested(junctor, field == "allOf" && index == 0 && skip_first_all_of, &place.index(index), errors);
        }
    }
    if schema.at("not").is_object() {
        nested(schema.at("not"), false, &path.child("not"), errors);
    }
    let pattern = schema.text("pattern");
    if !pattern.is_empty()
        && let Err(why) = cel::compile_regex(pattern)
    {
        let why = format!("must be a valid regular expression, but isn't: {why}");
        errors.invalid(&path.child("pattern"), pattern, &why);
    }
}

/// Checks a schema inside of a junctor.
fn nested(schema: &Value, skip_any_of: bool, path: &Path<'_>, errors: &mut Errors) {
    values(schema, skip_any_of, false, path, errors);
    if schema.at("items").is_object() {
        nested(schema.at("items"), false, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in schema.map("properties").into_iter().flatten() {
        nested(property, false, &properties.key(name), errors);
        if name == "metadata" {
            errors.forbidden(&properties.key(name), "must not be specified in a nested context");
        }
    }
    if matches!(schema.at("additionalProperties"), Value::Object(_) | Value::Bool(true)) {
        errors.forbidden(&path.child("additionalProperties"), "must be undefined to be structural");
    }
    let forbidden = [
        ("type", "empty"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ];
    for (field, wanted) in forbidden {
        let given = match (wanted, schema.at(field)) {
            (_, Value::Null) => false,
            ("empty", Value::String(text)) => !text.is_empty(),
            ("empty", Value::Array(items)) => !items.is_empty(),
            ("false", value) => *value == Value::Bool(true),
            _ => true,
        };
        if given {
            errors.forbidden(&path.child(field), &format!("must be {wanted} to be structural"));
        }
    }
}
