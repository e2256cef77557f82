//! Versions as Go prints the structs behind them, which error messages quote.
//!
//! In: a value and its type in the schema tables. Out: JSON with every field by its Go name, empty ones included.

use std::fmt::Write as _;

use serde_json::Value;

use crate::schema::{self, Field, Shape, TypeId};

/// Go names that are not the JSON name with a capital.
const NAMES: &[(&str, &str)] = &[
    ("$ref", "Ref"),
    ("$schema", "Schema"),
    ("id", "ID"),
    ("jsonPath", "JSONPath"),
    ("url", "URL"),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource"),
    ("x-kubernetes-int-or-string", "XIntOrString"),
    ("x-kubernetes-list-map-keys", "XListMapKeys"),
    ("x-kubernetes-list-type", "XListType"),
    ("x-kubernetes-map-type", "XMapType"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// A version; `hidden` names fields that stand beside the versions.
pub(super) fn version(value: &Value, hidden: &[&str]) -> String {
    let mut value = value.clone();
    if let Value::Object(map) = &mut value {
        map.retain(|key, _| !hidden.contains(&key.as_str()));
    }
    let mut out = String::new();
    message(schema::named("apiextensions.CustomResourceDefinitionVersion"), &value, &mut out);
    out
}

/// The Go name of a field.
fn name(json: &str) -> String {
    if let Ok(at) = NAMES.binary_search_by_key(&json, |(json, _)| json) {
        return NAMES[at].1.to_owned();
    }
    let mut characters = json.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

/// The fields of a type in the order of the Go struct.
fn fields(ty: TypeId) -> Vec<&'static Field> {
    let mut fields: Vec<&Field> = ty.get().fields.iter().collect();
    // The struct that is printed has `nullable` behind `type`, unlike the one that is decoded.
    if let Some(from) = fields.iter().position(|field| field.json == "nullable") {
        let nullable = fields.remove(from);
        let to = fields.iter().position(|field| field.json == "type").map_or(0, |at| at + 1);
        fields.insert(to, nullable);
    }
    fields
}

fn message(ty: TypeId, value: &Value, out: &mut String) {
    out.push('{');
    for (index, field) in fields(ty).into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let _ = write!(out, "\"{}\":", name(field.json));
        let member = value.get(field.json).unwrap_or(&Value::Null);
        if field.pointer && member.is_null() { out.push_str("null") } else { one(&field.shape, member, out) }
    }
    out.push('}');
}

fn one(shape: &Shape, value: &Value, out: &mut String) {
    match (shape, value) {
        (Shape::Object(ty), _) => message(*ty, value, out),
        (Shape::Union(ty, other), _) => union(*ty, other, value, out),
        (Shape::List(item), Value::Array(items)) if !items.is_empty() => list(item, items, out),
        (Shape::Map(item), Value::Object(map)) if !map.is_empty() => {
            out.push('{');
            for (index, (key, value)) in map.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&escaped(&key.as_str().into()));
                out.push(':');
                one(item, value, out);
            }
            out.push('}');
        }
        (Shape::List(_) | Shape::Map(_), _) => out.push_str("null"),
        (Shape::String, Value::Null) => out.push_str("\"\""),
        (Shape::Bool, Value::Null) => out.push_str("false"),
        (Shape::Int32 | Shape::Int64 | Shape::Float64, Value::Null) => out.push('0'),
        (_, value) => out.push_str(&escaped(value)),
    }
}

fn list(item: &Shape, items: &[Value], out: &mut String) {
    out.push('[');
    for (index, value) in items.iter().enumerate() {
        out.push_str(if index > 0 { "," } else { "" });
        one(item, value, out);
    }
    out.push(']');
}

fn union(ty: TypeId, other: &Shape, value: &Value, out: &mut String) {
    let mut object = String::new();
    if value.is_object() {
        message(ty, value, &mut object);
    } else {
        object.push_str("null");
    }
    let mut rest = String::new();
    match (other, value) {
        (Shape::List(item), Value::Array(items)) => list(item, items, &mut rest),
        _ => rest.push_str("null"),
    }
    let _ = match other {
        Shape::Bool => write!(out, "{{\"Allows\":{},\"Schema\":{object}}}", value.is_object() || *value == true),
        Shape::List(item) if **item == Shape::String => write!(out, "{{\"Schema\":{object},\"Property\":{rest}}}"),
        _ => write!(out, "{{\"Schema\":{object},\"JSONSchemas\":{rest}}}"),
    };
}

/// JSON with the characters escaped that are special in HTML, as Go does it.
fn escaped(value: &Value) -> String {
    let text = value.to_string();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
