//! A value becomes a message.
//!
//! Fields are written by number. Plain ones are written even when they are zero, because Kubernetes does so and old
//! readers count on it; pointers only when set. A value of the wrong type is written as zero: objects were checked
//! before they came here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::BY_NUMBER;
use super::wire::Writer;
use crate::schema::{Shape, TypeId};
use crate::timestamp::{Moment, Precision};
use crate::{duration, quantity};

/// Writes the fields of an object.
pub(super) fn message(ty: TypeId, value: &Value, out: &mut Writer) {
    for field in BY_NUMBER.get(&ty).into_iter().flatten() {
        if let (Shape::Object(inner), true) = (&field.shape, field.inline) {
            out.nested(field.number, |out| message(*inner, value, out));
            continue;
        }
        let member = value.get(field.json).unwrap_or(&Value::Null);
        match (&field.shape, member) {
            (Shape::List(inner), Value::Array(items)) => {
                items.iter().for_each(|item| one(inner, field.number, item, out));
            }
            (Shape::Map(inner), Value::Object(entries)) => {
                for (key, value) in entries {
                    out.nested(field.number, |out| {
                        out.bytes(1, key.as_bytes());
                        one(inner, 2, value, out);
                    });
                }
            }
            (Shape::List(_) | Shape::Map(_), _) => {}
            (_, Value::Null) if field.pointer || field.shape == Shape::Bytes => {}
            (shape, member) => one(shape, field.number, member, out),
        }
    }
}

/// Writes one value into a field.
fn one(shape: &Shape, number: u32, value: &Value, out: &mut Writer) {
    let text = value.as_str().unwrap_or_default();
    match shape {
        Shape::String => out.bytes(number, text.as_bytes()),
        Shape::Bool => out.int(number, value.as_bool().unwrap_or_default().into()),
        Shape::Int32 | Shape::Int64 => out.int(number, value.as_i64().unwrap_or_default()),
        Shape::Float64 => out.float(number, value.as_f64().unwrap_or_default()),
        Shape::Bytes => out.bytes(number, &STANDARD.decode(text).unwrap_or_default()),
        Shape::Time => out.nested(number, |out| time(text, Precision::Seconds, out)),
        Shape::MicroTime => out.nested(number, |out| time(text, Precision::Micros, out)),
        Shape::Duration => out.nested(number, |out| out.int(1, duration::parse(text).unwrap_or_default())),
        Shape::Quantity => {
            let spelled = quantity::canonical(text).unwrap_or_else(|_| "0".to_owned());
            out.nested(number, |out| out.bytes(1, spelled.as_bytes()));
        }
        Shape::IntOrString => out.nested(number, |out| {
            out.int(1, value.is_string().into());
            out.int(2, value.as_i64().unwrap_or_default());
            out.bytes(3, text.as_bytes());
        }),
        Shape::Raw | Shape::FieldsV1 | Shape::Json => out.nested(number, |out| {
            if !value.is_null() {
                out.bytes(1, value.to_string().as_bytes());
            }
        }),
        Shape::Object(ty) => out.nested(number, |out| message(*ty, value, out)),
        Shape::Union(ty, other) => out.nested(number, |out| union(*ty, other, value, out)),
        Shape::List(inner) => out.nested(number, |out| {
            value.as_array().into_iter().flatten().for_each(|item| one(inner, 1, item, out));
        }),
        // No message has a map directly in a list or a map.
        Shape::Map(_) => {}
    }
}

/// A union with a flag writes the flag first, which is set beside a message; one with a list writes the list second.
fn union(ty: TypeId, other: &Shape, value: &Value, out: &mut Writer) {
    let is_flag = *other == Shape::Bool;
    if is_flag {
        out.int(1, (value.is_object() || value.as_bool().unwrap_or_default()).into());
    }
    match (other, value) {
        (_, Value::Object(_)) => out.nested(if is_flag { 2 } else { 1 }, |out| message(ty, value, out)),
        (Shape::List(item), Value::Array(items)) => items.iter().for_each(|value| one(item, 2, value, out)),
        _ => {}
    }
}

/// No time is an empty message.
fn time(text: &str, precision: Precision, out: &mut Writer) {
    let Ok(moment) = Moment::parse(text, precision) else { return };
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => moment.nanos / 1000 * 1000,
    };
    out.int(1, moment.seconds);
    out.int(2, nanos.into());
}
