//! From a structural schema to the types that expressions see.
//!
//! A property whose type expressions cannot use, because the schema does not say it, is left out.

use std::collections::HashMap;
use std::sync::Arc;

use cel::{Declared, Items, Properties, Shape};

use crate::structural::{Additional, ListType, Structural, Type};

/// The largest request in bytes, which bounds the size of everything without a limit of its own.
pub(super) const REQUEST: u64 = 3 * 1024 * 1024;
/// The longest duration, day and point in time in JSON.
const DURATION: u64 = 32;
const DAY: u64 = 12;
const TIME: u64 = 32;
/// Properties that every resource has.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The type that a schema declares, or none if expressions cannot use it. Objects get names that begin with `name`.
pub(super) fn declared(schema: &Structural, resource_root: bool, name: &str) -> Option<Arc<Declared>> {
    let of = |shape, max_elements| Some(Arc::new(Declared::new(shape, schema.nullable, max_elements)));
    if schema.int_or_string {
        return of(Shape::IntOrString, characters(schema).unwrap_or(REQUEST - 2));
    }
    match schema.ty? {
        Type::Boolean => of(Shape::Bool, 0),
        Type::Integer => of(Shape::Int, 0),
        Type::Number => of(Shape::Double, 0),
        Type::String => {
            let (shape, max_elements) = string(schema);
            of(shape, max_elements)
        }
        Type::Array => {
            let items = schema.items.as_deref()?;
            let items = declared(items, items.embedded, &format!("{name}.@idx"))?;
            let max_items = limit(schema.checks.max_items).unwrap_or((REQUEST - 2) / (items.min_size() + 1));
            of(Shape::List(items, unique(&schema.list)), max_items)
        }
        Type::Object => match &schema.additional {
            Additional::Schema(values) => {
                let values = declared(values, values.embedded, &format!("{name}.@elem"))?;
                let max_properties =
                    limit(schema.checks.max_properties).unwrap_or((REQUEST - 2) / (values.min_size() + 6));
                of(Shape::Map(values), max_properties)
            }
            _ => of(Shape::Object(properties(schema, resource_root, name)), 0),
        },
    }
}

fn limit(written: Option<i64>) -> Option<u64> {
    written.map(|limit| u64::try_from(limit).unwrap_or(0))
}

/// `maxLength` in bytes: a character has up to four of them.
fn characters(schema: &Structural) -> Option<u64> {
    limit(schema.checks.max_length).map(|limit| limit.saturating_mul(4))
}

fn string(schema: &Structural) -> (Shape, u64) {
    match schema.checks.format.as_str() {
        "byte" => (Shape::Bytes, limit(schema.checks.max_length).unwrap_or(REQUEST - 2)),
        "duration" => (Shape::Duration, DURATION),
        "date" => (Shape::Date, DAY),
        "date-time" => (Shape::DateTime, TIME),
        _ => {
            let words = || {
                let lengths = schema.checks.enumeration.iter().map(|word| word.as_str().map_or(0, str::len));
                lengths.max().and_then(|length| u64::try_from(length).ok())
            };
            (Shape::String, characters(schema).or_else(words).unwrap_or(REQUEST - 2))
        }
    }
}

fn unique(list: &ListType) -> Items {
    match list {
        ListType::Atomic => Items::Ordered,
        ListType::Set => Items::Set,
        ListType::Map(keys) => {
            let escaped = |key: &str| cel::escape(key).map_or_else(|| key.into(), Into::into);
            Items::Keyed(keys.iter().map(|key| escaped(key)).collect())
        }
    }
}

fn properties(schema: &Structural, resource_root: bool, name: &str) -> Properties {
    let implied = resource_root && !declares_meta(schema);
    let mut fields: HashMap<Box<str>, Option<Arc<Declared>>> = HashMap::with_capacity(schema.properties.len());
    let mut min_size: u64 = 2;
    let mut grow = |field: &str, kind: &Declared, has_default: bool| {
        if !has_default && schema.checks.required.iter().any(|required| **required == *field) {
            min_size += u64::try_from(field.len()).unwrap_or(u64::MAX) + kind.min_size() + 4;
        }
    };
    for (field, property) in &schema.properties {
        if implied && META.contains(&&**field) {
            continue;
        }
        let escaped = cel::escape(field);
        let kind = declared(property, property.embedded, &format!("{name}.{}", escaped.as_deref().unwrap_or(field)));
        if let Some(kind) = &kind {
            grow(field, kind, property.default.is_some());
        }
        fields.insert(field.clone(), kind);
    }
    if implied {
        for (field, kind) in meta_fields(name) {
            grow(field, &kind, false);
            fields.insert(field.into(), Some(kind));
        }
    }
    Properties { name: name.into(), fields, min_size }
}

/// Whether a schema specifies `apiVersion`, `kind`, `metadata.name` and `metadata.generateName`.
fn declares_meta(schema: &Structural) -> bool {
    let is =
        |schema: &Structural, field: &str, ty: Type| schema.properties.get(field).is_some_and(|one| one.ty == Some(ty));
    is(schema, "kind", Type::String)
        && is(schema, "apiVersion", Type::String)
        && is(schema, "metadata", Type::Object)
        && schema
            .properties
            .get("metadata")
            .is_some_and(|meta| is(meta, "name", Type::String) && is(meta, "generateName", Type::String))
}

/// What rules see of every resource.
fn meta_fields(name: &str) -> [(&'static str, Arc<Declared>); 3] {
    let text = || Arc::new(Declared::new(Shape::String, false, REQUEST - 2));
    let names = ["name", "generateName"].map(|field| (field.into(), Some(text())));
    let meta = Properties { name: format!("{name}.metadata").into(), fields: names.into(), min_size: 2 };
    [("apiVersion", text()), ("kind", text()), ("metadata", Arc::new(Declared::new(Shape::Object(meta), false, 0)))]
}
