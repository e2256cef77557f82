//! The object as kube-apiserver would print it.
//!
//! In: a checked object after defaults and rules were applied. Out: the same object with exactly the fields that Go
//! writes for it: empty ones removed, unless the table keeps them; structs that are not pointers always present.
//! Since kube-apiserver stores protobuf, an empty list or map is the same as none.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::schema::{self, Field, Shape, TypeId};

/// The fields of each type that are printed even when unset.
static ALWAYS: LazyLock<HashMap<TypeId, Vec<&'static Field>>> = LazyLock::new(|| {
    let always = |field: &&Field| field.keep || (!field.pointer && is_struct(&field.shape) && !field.omit_zero);
    schema::all().map(|ty| (ty, ty.get().json_fields().filter(always).collect())).collect()
});

/// Makes an object exactly what Go would print.
pub fn prune(ty: TypeId, value: &mut Value) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { return };
    let message = ty.get();
    map.retain(|key, value| match message.field(key) {
        Some(field) => settle(field, value),
        None => !value.is_null(),
    });
    for field in ALWAYS.get(&ty).into_iter().flatten() {
        if !map.contains_key(field.json) {
            map.insert(field.json.to_owned(), unset(field));
        }
    }
}

/// What Go prints for a value that was never set; lists and maps are null.
pub(super) fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::String | Shape::Bytes => "".into(),
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => 0.into(),
        Shape::Float64 => 0.0.into(),
        Shape::Quantity => "0".into(),
        Shape::Duration => "0s".into(),
        Shape::Object(ty) => {
            let mut value = Value::Null;
            prune(*ty, &mut value);
            value
        }
        Shape::Time | Shape::MicroTime | Shape::Raw | Shape::FieldsV1 | Shape::Json => Value::Null,
        Shape::List(_) | Shape::Map(_) | Shape::Union(..) => Value::Null,
    }
}

fn unset(field: &Field) -> Value {
    if field.pointer || field.shape == Shape::Bytes { Value::Null } else { zero(&field.shape) }
}

/// What Go cannot leave out for being empty.
fn is_struct(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Object(_)
            | Shape::Time
            | Shape::MicroTime
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::Duration
            | Shape::Raw
            | Shape::FieldsV1
            | Shape::Json
            | Shape::Union(..)
    )
}

/// Prunes the value of a field and returns whether it stays.
fn settle(field: &'static Field, value: &mut Value) -> bool {
    if field.pointer {
        if !value.is_null() {
            inside(&field.shape, value);
        }
        return field.keep || !value.is_null();
    }
    inside(&field.shape, value);
    if is_struct(&field.shape) {
        return !field.omit_zero || *value != zero(&field.shape);
    }
    let empty = match value {
        Value::Null => true,
        Value::Bool(flag) => !*flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    };
    if empty && field.keep {
        *value = unset(field);
    }
    field.keep || !empty
}

/// Prunes what is in a value; a null becomes what Go prints for it.
fn inside(shape: &Shape, value: &mut Value) {
    match (shape, &mut *value) {
        (Shape::Object(ty), _) => prune(*ty, value),
        (Shape::Union(ty, _), Value::Object(_)) => prune(*ty, value),
        (Shape::Union(_, other), Value::Array(_)) => inside(other, value),
        (Shape::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| inside(inner, item)),
        (Shape::Map(inner), Value::Object(map)) => map.values_mut().for_each(|item| inside(inner, item)),
        (_, Value::Null) => *value = zero(shape),
        _ => {}
    }
}
