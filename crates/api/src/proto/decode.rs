//! A message becomes a value.
//!
//! What comes out is what the JSON decoder would have made of the same object: absent fields are absent, times and
//! quantities are in their canonical spelling. Fields the tables do not know are skipped, as typed servers do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::BY_NUMBER;
use super::wire::{Payload, ProtoError, Reader, text};
use crate::decode::scalar;
use crate::schema::{Field, Shape, TypeId};
use crate::timestamp::{Moment, Precision};
use crate::{duration, quantity};

/// Deeper than any message of the tables.
const MAX_DEPTH: usize = 64;

/// Reads a whole message.
pub(super) fn message(ty: TypeId, raw: &[u8]) -> Result<Value, ProtoError> {
    let mut out = Map::new();
    fill(ty, raw, &mut out, 0)?;
    Ok(out.into())
}

/// Reads a message on top of what is there: a message that comes in pieces is merged.
fn fill(ty: TypeId, raw: &[u8], out: &mut Map<String, Value>, depth: usize) -> Result<(), ProtoError> {
    if depth > MAX_DEPTH {
        return Err(ProtoError::Depth);
    }
    let name = ty.get().name.rsplit('.').next().unwrap_or_default();
    let fields = BY_NUMBER.get(&ty).map_or(&[][..], Vec::as_slice);
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field(name)? {
        if let Ok(at) = fields.binary_search_by_key(&number, |field| field.number) {
            put(fields[at], payload, out, depth)?;
        }
    }
    Ok(())
}

/// Puts one field where it belongs.
fn put(
    field: &'static Field,
    payload: Payload<'_>,
    out: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    match &field.shape {
        Shape::Object(ty) if field.inline => fill(*ty, payload.bytes(field.json)?, out, depth + 1),
        Shape::Object(ty) => {
            let raw = payload.bytes(field.json)?;
            let slot = out.entry(field.json).or_insert_with(|| Map::new().into());
            slot.as_object_mut().map_or(Ok(()), |map| fill(*ty, raw, map, depth + 1))
        }
        Shape::Union(ty, other) => {
            let value = union(*ty, other, field, payload.bytes(field.json)?, depth)?;
            out.insert(field.json.to_owned(), value);
            out.retain(|_, value| !value.is_null());
            Ok(())
        }
        Shape::List(inner) => {
            let slot = out.entry(field.json).or_insert_with(|| Value::Array(Vec::new()));
            slot.as_array_mut().map_or(Ok(()), |list| append(inner, field, payload, list, depth))
        }
        Shape::Map(inner) => {
            let (key, value) = entry(inner, field, payload.bytes(field.json)?, depth)?;
            let slot = out.entry(field.json).or_insert_with(|| Map::new().into());
            if let Some(map) = slot.as_object_mut() {
                map.insert(key, value);
            }
            Ok(())
        }
        shape => {
            let value = scalar(shape, field, payload)?;
            if value.is_null() || (!field.pointer && is_zero(shape, &value)) {
                out.remove(field.json);
            } else {
                out.insert(field.json.to_owned(), value);
            }
            Ok(())
        }
    }
}

/// What JSON would not have named; an empty port name is not port 0.
fn is_zero(shape: &Shape, value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() && *shape != Shape::IntOrString,
        _ => false,
    }
}

/// Adds one element, or many when numbers come packed.
fn append(
    inner: &Shape,
    field: &'static Field,
    payload: Payload<'_>,
    list: &mut Vec<Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    if let (Shape::Int32 | Shape::Int64 | Shape::Bool, Payload::Bytes(packed)) = (inner, payload) {
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            list.push(scalar(inner, field, Payload::Varint(reader.varint()?))?);
        }
        return Ok(());
    }
    if let (Shape::Float64, Payload::Bytes(packed)) = (inner, payload) {
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            list.push(scalar(inner, field, Payload::Fixed64(reader.fixed64()?))?);
        }
        return Ok(());
    }
    list.push(element(inner, field, payload, depth)?);
    Ok(())
}

/// A value in a list or a map.
fn element(shape: &Shape, field: &'static Field, payload: Payload<'_>, depth: usize) -> Result<Value, ProtoError> {
    match shape {
        Shape::Object(ty) => {
            let mut map = Map::new();
            fill(*ty, payload.bytes(field.json)?, &mut map, depth + 1)?;
            Ok(map.into())
        }
        Shape::Union(ty, other) => union(*ty, other, field, payload.bytes(field.json)?, depth),
        // A list inside of a list or a map is a message with the elements in field 1.
        Shape::List(inner) => {
            let mut list = Vec::new();
            let mut reader = Reader::new(payload.bytes(field.json)?);
            while let Some((number, payload)) = reader.field("List")? {
                if number == 1 && depth < MAX_DEPTH {
                    append(inner, field, payload, &mut list, depth + 1)?;
                }
            }
            Ok(list.into())
        }
        Shape::Map(_) => Err(ProtoError::Depth),
        _ => scalar(shape, field, payload),
    }
}

/// A message, or the flag or list that may stand instead of it.
fn union(ty: TypeId, other: &Shape, field: &'static Field, raw: &[u8], depth: usize) -> Result<Value, ProtoError> {
    let is_flag = *other == Shape::Bool;
    let (mut object, mut flag, mut list) = (None, false, Vec::new());
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("Union")? {
        match (number, other) {
            (1, Shape::Bool) => flag = payload.varint(field.json)? != 0,
            (1 | 2, _) if (number == 2) == is_flag => {
                fill(ty, payload.bytes(field.json)?, object.get_or_insert_with(Map::new), depth + 1)?;
            }
            (2, Shape::List(item)) => append(item, field, payload, &mut list, depth + 1)?,
            _ => {}
        }
    }
    Ok(match object {
        Some(object) if list.is_empty() => object.into(),
        _ if is_flag => flag.into(),
        _ if list.is_empty() => Value::Null,
        _ => list.into(),
    })
}

fn entry(inner: &Shape, field: &'static Field, raw: &[u8], depth: usize) -> Result<(String, Value), ProtoError> {
    let mut key = String::new();
    let mut value = None;
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("Entry")? {
        match number {
            1 => key = text(payload.bytes(field.json)?),
            2 => value = Some(element(inner, field, payload, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        None => match inner {
            Shape::Int32 | Shape::Int64 | Shape::Bool => element(inner, field, Payload::Varint(0), depth)?,
            Shape::Float64 => 0.0.into(),
            _ => element(inner, field, Payload::Bytes(&[]), depth)?,
        },
    };
    Ok((key, value))
}

fn scalar(shape: &Shape, field: &Field, payload: Payload<'_>) -> Result<Value, ProtoError> {
    let name = field.json;
    Ok(match shape {
        Shape::String => text(payload.bytes(name)?).into(),
        Shape::Bytes => STANDARD.encode(payload.bytes(name)?).into(),
        Shape::Bool => (payload.varint(name)? != 0).into(),
        // An int32 travels as 64 bits, of which the lower half counts.
        Shape::Int32 => (payload.varint(name)? as u32).cast_signed().into(),
        Shape::Int64 => payload.varint(name)?.cast_signed().into(),
        Shape::Float64 => match payload {
            Payload::Fixed64(bits) => scalar::float(f64::from_bits(bits)),
            other => return Err(other.mismatch(name)),
        },
        Shape::Time => time(payload.bytes(name)?, Precision::Seconds)?,
        Shape::MicroTime => time(payload.bytes(name)?, Precision::Micros)?,
        Shape::Duration => duration::print(number(payload.bytes(name)?, 1)?.cast_signed()).into(),
        Shape::Quantity => match single(payload.bytes(name)?)? {
            [] => "0".into(),
            bytes => quantity::canonical(&text(bytes)).map_err(|error| ProtoError::Value(error.to_owned()))?.into(),
        },
        Shape::IntOrString => int_or_string(payload.bytes(name)?)?,
        Shape::Raw | Shape::FieldsV1 | Shape::Json => match single(payload.bytes(name)?)? {
            [] => Value::Null,
            bytes => serde_json::from_slice(bytes).map_err(|error| ProtoError::Value(error.to_string()))?,
        },
        Shape::Object(_) | Shape::Union(..) | Shape::List(_) | Shape::Map(_) => return Err(payload.mismatch(name)),
    })
}

/// The bytes in field 1.
fn single(raw: &[u8]) -> Result<&[u8], ProtoError> {
    let mut out: &[u8] = &[];
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("Value")? {
        if number == 1 {
            out = payload.bytes("value")?;
        }
    }
    Ok(out)
}

/// The number in a field.
fn number(raw: &[u8], wanted: u32) -> Result<u64, ProtoError> {
    let mut out = 0;
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("Timestamp")? {
        if number == wanted {
            out = payload.varint("value")?;
        }
    }
    Ok(out)
}

/// An empty message is no time at all.
fn time(raw: &[u8], precision: Precision) -> Result<Value, ProtoError> {
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let seconds = number(raw, 1)?.cast_signed();
    let nanos = (number(raw, 2)? as u32).cast_signed();
    let moment = Moment { seconds, nanos };
    Ok(if moment.is_zero() { Value::Null } else { moment.print(precision).into() })
}

fn int_or_string(raw: &[u8]) -> Result<Value, ProtoError> {
    let (mut is_text, mut int, mut string) = (false, 0, &[][..]);
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("IntOrString")? {
        match number {
            1 => is_text = payload.varint("type")? == 1,
            2 => int = (payload.varint("intVal")? as u32).cast_signed(),
            3 => string = payload.bytes("strVal")?,
            _ => {}
        }
    }
    Ok(if is_text { text(string).into() } else { int.into() })
}
