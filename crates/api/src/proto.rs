//! Kubernetes protobuf, driven by the schema tables.
//!
//! In: bytes of typed clients, or our values. Out: values as the JSON decoder would have made them, or bytes as the
//! original writes them: fields by number, plain ones always, pointers when set, map keys sorted. No message has code
//! of its own; the tables know the numbers, and the few types with an encoding of their own (times, quantities) are in
//! the submodules `decode` and `encode`.
//!
//! An object travels in an envelope: `k8s\0` and a message that names its type around the bytes of the object.

mod decode;
mod encode;
mod wire;

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::schema::{self, Field, TypeId};
use wire::{Payload, Reader, Writer};

pub use wire::ProtoError;

/// The prefix of every document.
const MAGIC: &[u8] = b"k8s\0";

/// The fields of each message, by number.
static BY_NUMBER: LazyLock<HashMap<TypeId, Vec<&'static Field>>> = LazyLock::new(|| {
    let sorted = |ty: TypeId| {
        let mut fields: Vec<&'static Field> = ty.get().fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        (ty, fields)
    };
    schema::all().map(sorted).collect()
});

static LIST_META: LazyLock<TypeId> = LazyLock::new(|| schema::named("meta.ListMeta"));
static OBJECT_META: LazyLock<TypeId> = LazyLock::new(|| schema::named("meta.ObjectMeta"));

/// What an envelope holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope<'a> {
    /// `discovery.k8s.io/v1`; empty when absent.
    pub api_version: String,
    /// `EndpointSlice`; empty when absent.
    pub kind: String,
    /// The object's own message.
    pub raw: &'a [u8],
}

/// Opens an envelope.
///
/// # Errors
/// When there is no envelope, or it is broken.
pub fn decode_envelope(bytes: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    if bytes.is_empty() {
        return Err(ProtoError::EmptyData);
    }
    let body = bytes.strip_prefix(MAGIC).ok_or(ProtoError::NoPrefix)?;
    if body.is_empty() {
        return Err(ProtoError::EmptyBody);
    }
    let mut envelope = Envelope { api_version: String::new(), kind: String::new(), raw: &[] };
    let mut reader = Reader::new(body);
    while let Some((number, payload)) = reader.field("Unknown")? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => {
                let mut meta = Reader::new(bytes);
                while let Some((number, payload)) = meta.field("TypeMeta")? {
                    match number {
                        1 => envelope.api_version = wire::text(payload.bytes("apiVersion")?),
                        2 => envelope.kind = wire::text(payload.bytes("kind")?),
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(bytes)) => envelope.raw = bytes,
            (1..=4, payload) => {
                payload.bytes("Unknown")?;
            }
            _ => {}
        }
    }
    Ok(envelope)
}

/// Reads a message of this type. Plain fields that are zero are left out, as if JSON had not named them.
///
/// # Errors
/// When the bytes are no such message.
pub fn decode(ty: TypeId, raw: &[u8]) -> Result<Value, ProtoError> {
    decode::message(ty, raw)
}

/// Writes an object as a message of this type. `kind` and `apiVersion` belong to the envelope.
#[must_use]
pub fn encode(ty: TypeId, value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    encode::message(ty, value, &mut out);
    out.into_bytes()
}

/// Puts a message into an envelope.
#[must_use]
pub fn encode_envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Writer::with_capacity(MAGIC.len() + api_version.len() + kind.len() + raw.len() + 24);
    out.raw(MAGIC);
    out.nested(1, |meta| {
        meta.bytes(1, api_version.as_bytes());
        meta.bytes(2, kind.as_bytes());
    });
    out.bytes(2, raw);
    out.bytes(3, b"");
    out.bytes(4, b"");
    out.into_bytes()
}

/// Writes a list of objects of this type: the list's metadata, then each item. Items are consumed one after the other, so a list need not be in memory as
/// values.
#[must_use]
pub fn encode_list(ty: TypeId, metadata: &Value, items: impl IntoIterator<Item = impl Borrow<Value>>) -> Vec<u8> {
    let mut out = Writer::default();
    out.nested(1, |out| encode::message(*LIST_META, metadata, out));
    for item in items {
        out.nested(2, |out| encode::message(ty, item.borrow(), out));
    }
    out.into_bytes()
}

/// Writes a `PartialObjectMetadata`: the metadata of an object of any kind.
#[must_use]
pub fn encode_partial(object: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    partial(object, &mut out);
    out.into_bytes()
}

/// Writes a `PartialObjectMetadataList`.
#[must_use]
pub fn encode_partial_list<'a>(metadata: &Value, objects: impl IntoIterator<Item = &'a Value>) -> Vec<u8> {
    let mut out = Writer::default();
    out.nested(1, |out| encode::message(*LIST_META, metadata, out));
    for object in objects {
        out.nested(2, |out| partial(object, out));
    }
    out.into_bytes()
}

fn partial(object: &Value, out: &mut Writer) {
    out.nested(1, |out| encode::message(*OBJECT_META, object.get("metadata").unwrap_or(&Value::Null), out));
}

/// Reads a list of objects of this type: the list's metadata, and each item.
///
/// # Errors
/// When the bytes are no such message.
pub fn decode_list(ty: TypeId, raw: &[u8]) -> Result<(Value, Vec<Value>), ProtoError> {
    read_list(raw, |item| decode::message(ty, item))
}

/// Reads a `PartialObjectMetadata`.
///
/// # Errors
/// When the bytes are no such message.
pub fn decode_partial(raw: &[u8]) -> Result<Value, ProtoError> {
    let mut metadata = Value::Object(serde_json::Map::new());
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("PartialObjectMetadata")? {
        if number == 1 {
            metadata = decode::message(*OBJECT_META, payload.bytes("metadata")?)?;
        }
    }
    Ok(serde_json::json!({ "metadata": metadata }))
}

/// Reads a `PartialObjectMetadataList`.
///
/// # Errors
/// When the bytes are no such message.
pub fn decode_partial_list(raw: &[u8]) -> Result<(Value, Vec<Value>), ProtoError> {
    read_list(raw, decode_partial)
}

fn read_list(raw: &[u8], item: impl Fn(&[u8]) -> Result<Value, ProtoError>) -> Result<(Value, Vec<Value>), ProtoError> {
    let (mut metadata, mut items) = (Value::Object(serde_json::Map::new()), Vec::new());
    let mut reader = Reader::new(raw);
    while let Some((number, payload)) = reader.field("List")? {
        match number {
            1 => metadata = decode::message(*LIST_META, payload.bytes("metadata")?)?,
            2 => items.push(item(payload.bytes("items")?)?),
            _ => {}
        }
    }
    Ok((metadata, items))
}

/// Frames one event of a watch: its length, then the event around an envelope. The event itself has none.
#[must_use]
pub fn encode_watch_frame(event: &str, envelope: &[u8]) -> Vec<u8> {
    let mut out = Writer::with_capacity(event.len() + envelope.len() + 24);
    out.raw(&[0; 4]);
    out.bytes(1, event.as_bytes());
    out.nested(2, |out| out.bytes(1, envelope));
    let mut bytes = out.into_bytes();
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}
