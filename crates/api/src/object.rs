//! The form in which objects are stored, chosen so that reading needs no decoding.
//!
//! Stored: the object's JSON without `kind`, `apiVersion` and `metadata.resourceVersion`, with `metadata` first. The first
//! two belong to the table, the third is the store's own revision; all three are spliced in front while copying. A list of
//! ten thousand objects is then ten thousand copies of bytes.

use std::io::Write as _;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::value::ValueExt as _;

/// What every stored object begins with.
const HEAD: &[u8] = b"{\"metadata\":{";

/// The stored form of an object.
#[must_use]
pub fn encode(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"metadata\":");
    match object.map("metadata") {
        Some(metadata) if metadata.contains_key("resourceVersion") => {
            let mut metadata = metadata.clone();
            metadata.remove("resourceVersion");
            write(&mut out, &Value::Object(metadata));
        }
        Some(_) => write(&mut out, object.at("metadata")),
        None => out.extend_from_slice(b"{}"),
    }
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "kind" | "apiVersion") {
            out.push(b',');
            write(&mut out, &Value::String(key.clone()));
            out.push(b':');
            write(&mut out, value);
        }
    }
    out.push(b'}');
    Bytes::from(out)
}

fn write(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON into memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// The object of stored bytes, with `kind`, `apiVersion` and `resourceVersion` filled in. Bytes that are no object of ours
/// read as an empty one; the store's checksums make that unreachable.
#[must_use]
pub fn decode(kind: &Kind, stored: &[u8], revision: u64) -> Value {
    let mut object = decode_bare(stored);
    object.put("metadata.resourceVersion", revision.to_string());
    object.put("kind", kind.kind);
    object.put("apiVersion", kind.api_version());
    object
}

/// The object of stored bytes as it is.
#[must_use]
pub fn decode_bare(stored: &[u8]) -> Value {
    serde_json::from_slice(stored).unwrap_or_else(|_| Value::Object(Map::new()))
}

/// The object of stored bytes without `managedFields`, which are more than half of it and matter only to writers.
#[must_use]
pub fn decode_light(stored: &[u8]) -> Value {
    let mut parser = serde_json::Deserializer::from_slice(stored);
    Light.deserialize(&mut parser).unwrap_or_else(|_| Value::Object(Map::new()))
}

/// Builds a value and skips what [`decode_light`] leaves out.
struct Light;

impl<'de> DeserializeSeed<'de> for Light {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Light {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "managedFields" {
                map.next_value::<IgnoredAny>()?;
            } else {
                out.insert(key, map.next_value_seed(Self)?);
            }
        }
        Ok(Value::Object(out))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(item) = seq.next_element_seed(Self)? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

/// Writes the object of stored bytes as JSON; `typed` puts `kind` and `apiVersion` in front, which list items lack.
pub fn write_json(out: &mut Vec<u8>, kind: &Kind, stored: &[u8], revision: u64, typed: bool) {
    out.push(b'{');
    if typed {
        let _ = write!(out, "\"kind\":\"{}\",\"apiVersion\":\"", kind.kind);
        if !kind.group.is_empty() {
            let _ = write!(out, "{}/", kind.group);
        }
        let _ = write!(out, "{}\",", kind.version);
    }
    let _ = write!(out, "\"metadata\":{{\"resourceVersion\":\"{revision}\"");
    match stored.strip_prefix(HEAD) {
        Some(rest) if rest.first() != Some(&b'}') => {
            out.push(b',');
            out.extend_from_slice(rest);
        }
        Some(rest) => out.extend_from_slice(rest),
        None => out.extend_from_slice(b"}}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    #[test]
    fn what_is_written_is_what_was_stored_plus_its_type_and_revision() {
        let kind = kinds::find("", "v1", "configmaps").expect("ConfigMap");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "b"},
            "metadata": {"name": "x", "namespace": "default", "resourceVersion": "5"}});
        let stored = encode(&object);
        let mut out = Vec::new();
        write_json(&mut out, kind, &stored, 7, true);
        let read: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(read, decode(kind, &stored, 7));
        assert_eq!(read.text("metadata.resourceVersion"), "7");
        assert_eq!(read.text("data.a"), "b");
    }

    #[test]
    fn the_light_form_is_the_object_without_managed_fields() {
        let object = json!({"metadata": {"name": "x", "labels": {"a": "b"}, "generation": 3},
            "spec": {"list": [1, -2, 3.5, true, null, "t"]}});
        let mut stored = object.clone();
        stored.put("metadata.managedFields", json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]));
        assert_eq!(decode_light(&encode(&stored)), object);
        assert_eq!(decode_light(b"no JSON"), json!({}));
    }

    #[test]
    fn an_object_without_metadata_is_still_json() {
        let kind = kinds::find("", "v1", "configmaps").expect("ConfigMap");
        let mut out = Vec::new();
        write_json(&mut out, kind, &encode(&json!({"data": {}})), 7, false);
        let read: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(read, json!({"metadata": {"resourceVersion": "7"}, "data": {}}));
    }
}
