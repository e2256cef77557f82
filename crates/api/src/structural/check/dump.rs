//! A schema as Go prints its internal struct in an error: all fields, by their Go names, in their order.

use std::fmt::Write as _;

use serde_json::Value;

use crate::structural::go;
use crate::value::ValueExt as _;

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Flag,
    /// A pointer to something that is printed as JSON.
    Any,
    /// A list that is printed as JSON.
    List,
    Schema,
    Schemas,
    SchemaMap,
    SchemaOrList,
    SchemaOrFlag,
    Dependencies,
    Docs,
    Rules,
}

/// The fields: name in Go, name in JSON.
const FIELDS: &[(&str, &str, Kind)] = &[
    ("ID", "id", Kind::Text),
    ("Schema", "$schema", Kind::Text),
    ("Ref", "$ref", Kind::Any),
    ("Description", "description", Kind::Text),
    ("Type", "type", Kind::Text),
    ("Nullable", "nullable", Kind::Flag),
    ("Format", "format", Kind::Text),
    ("Title", "title", Kind::Text),
    ("Default", "default", Kind::Any),
    ("Maximum", "maximum", Kind::Any),
    ("ExclusiveMaximum", "exclusiveMaximum", Kind::Flag),
    ("Minimum", "minimum", Kind::Any),
    ("ExclusiveMinimum", "exclusiveMinimum", Kind::Flag),
    ("MaxLength", "maxLength", Kind::Any),
    ("MinLength", "minLength", Kind::Any),
    ("Pattern", "pattern", Kind::Text),
    ("MaxItems", "maxItems", Kind::Any),
    ("MinItems", "minItems", Kind::Any),
    ("UniqueItems", "uniqueItems", Kind::Flag),
    ("MultipleOf", "multipleOf", Kind::Any),
    ("Enum", "enum", Kind::List),
    ("MaxProperties", "maxProperties", Kind::Any),
    ("MinProperties", "minProperties", Kind::Any),
    ("Required", "required", Kind::List),
    ("Items", "items", Kind::SchemaOrList),
    ("AllOf", "allOf", Kind::Schemas),
    ("OneOf", "oneOf", Kind::Schemas),
    ("AnyOf", "anyOf", Kind::Schemas),
    ("Not", "not", Kind::Schema),
    ("Properties", "properties", Kind::SchemaMap),
    ("AdditionalProperties", "additionalProperties", Kind::SchemaOrFlag),
    ("PatternProperties", "patternProperties", Kind::SchemaMap),
    ("Dependencies", "dependencies", Kind::Dependencies),
    ("AdditionalItems", "additionalItems", Kind::SchemaOrFlag),
    ("Definitions", "definitions", Kind::SchemaMap),
    ("ExternalDocs", "externalDocs", Kind::Docs),
    ("Example", "example", Kind::Any),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Kind::Any),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Kind::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Kind::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Kind::List),
    ("XListType", "x-kubernetes-list-type", Kind::Any),
    ("XMapType", "x-kubernetes-map-type", Kind::Any),
    ("XValidations", "x-kubernetes-validations", Kind::Rules),
];

/// The Go names of the fields of a schema that are set, in the order of the struct.
pub(super) fn set_fields(schema: &Value) -> impl Iterator<Item = &'static str> {
    let is_set = |value: &Value, kind: Kind| match (kind, value) {
        (_, Value::Null) => false,
        (Kind::Text, value) => value.as_str() != Some(""),
        (Kind::Flag, value) => *value == Value::Bool(true),
        (Kind::List | Kind::Schemas | Kind::Rules, Value::Array(items)) => !items.is_empty(),
        (Kind::SchemaMap, Value::Object(schemas)) => !schemas.is_empty(),
        _ => true,
    };
    FIELDS.iter().filter(move |(_, json, kind)| is_set(schema.at(json), *kind)).map(|(name, ..)| *name)
}

/// A schema, printed.
pub(super) fn schema(schema: &Value) -> String {
    let mut out = String::new();
    write_schema(schema, &mut out);
    out
}

/// The value of `items`, printed.
pub(super) fn items(items: &Value) -> String {
    let mut out = String::new();
    write_field(items, Kind::SchemaOrList, &mut out);
    out
}

fn write_schema(schema: &Value, out: &mut String) {
    if !schema.is_object() {
        out.push_str("null");
        return;
    }
    for (index, (name, json, kind)) in FIELDS.iter().enumerate() {
        let _ = write!(out, "{}\"{name}\":", if index == 0 { '{' } else { ',' });
        write_field(schema.at(json), *kind, out);
    }
    out.push('}');
}

fn write_field(value: &Value, kind: Kind, out: &mut String) {
    match (kind, value) {
        (Kind::Text, value) => go::write_text(value.as_str().unwrap_or_default(), out),
        (Kind::Flag, value) => {
            let _ = write!(out, "{}", value.as_bool().unwrap_or_default());
        }
        (_, Value::Null) => out.push_str("null"),
        (Kind::Any | Kind::List, value) => out.push_str(&go::json(value)),
        (Kind::Schema, value) => write_schema(value, out),
        (Kind::Schemas, value) => write_list(value, out, write_schema),
        (Kind::SchemaMap, value) => write_map(value, out, write_schema),
        (Kind::SchemaOrList, value) => {
            out.push_str("{\"Schema\":");
            write_schema(value, out);
            out.push_str(",\"JSONSchemas\":");
            write_list(value, out, write_schema);
            out.push('}');
        }
        (Kind::SchemaOrFlag, value) => {
            let _ = write!(out, "{{\"Allows\":{},\"Schema\":", value.as_bool().unwrap_or(true));
            write_schema(value, out);
            out.push('}');
        }
        (Kind::Dependencies, value) => write_map(value, out, |value, out| {
            out.push_str("{\"Schema\":");
            write_schema(value, out);
            let names = if value.is_array() { go::json(value) } else { "null".to_owned() };
            let _ = write!(out, ",\"Property\":{names}}}");
        }),
        (Kind::Docs, value) => {
            out.push_str("{\"Description\":");
            go::write_text(value.text("description"), out);
            out.push_str(",\"URL\":");
            go::write_text(value.text("url"), out);
            out.push('}');
        }
        (Kind::Rules, value) => write_list(value, out, write_rule),
    }
}

fn write_rule(rule: &Value, out: &mut String) {
    let fields = [
        ("Rule", "rule", Kind::Text),
        ("Message", "message", Kind::Text),
        ("MessageExpression", "messageExpression", Kind::Text),
        ("Reason", "reason", Kind::Any),
        ("FieldPath", "fieldPath", Kind::Text),
        ("OptionalOldSelf", "optionalOldSelf", Kind::Any),
    ];
    for (index, (name, json, kind)) in fields.into_iter().enumerate() {
        let _ = write!(out, "{}\"{name}\":", if index == 0 { '{' } else { ',' });
        write_field(rule.at(json), kind, out);
    }
    out.push('}');
}

fn write_list(value: &Value, out: &mut String, write: impl Fn(&Value, &mut String)) {
    let Value::Array(items) = value else { return out.push_str("null") };
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(']');
}

fn write_map(value: &Value, out: &mut String, write: impl Fn(&Value, &mut String)) {
    let Value::Object(members) = value else { return out.push_str("null") };
    out.push('{');
    for (index, (name, member)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        go::write_text(name, out);
        out.push(':');
        write(member, out);
    }
    out.push('}');
}
