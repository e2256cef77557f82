//! The form in which objects are stored, chosen so that reading needs no decoding.
//!
//! Stored: the object's JSON without `kind`, `apiVersion` and `metadata.resourceVersion`, with `metadata` first. The first
//! two belong to the table, the third is the store's own revision; all three are spliced in front while copying. A list of
//! ten thousand objects is then ten thousand copies of bytes.
//!
//! Custom resources keep their `apiVersion`, in front of everything: which version of a definition is stored may change after
//! an object was written, and so may the way of its conversion. It is empty in bytes that have been converted to the version
//! of their reader, and missing in what earlier releases stored.

use std::io::Write as _;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::value::ValueExt as _;

/// The prefix of every stored object, except for the version of custom resources.
const HEAD: &[u8] = b"{\"metadata\":{";
/// The prefix of stored custom resources.
const VERSION: &[u8] = b"{\"apiVersion\":\"";

/// The stored form of an object.
#[must_use]
pub fn encode(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    write_members(&mut out, object);
    Bytes::from(out)
}

/// The stored form of a custom resource, with its `apiVersion`.
#[must_use]
pub fn encode_versioned(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(VERSION);
    // Groups and versions are names of DNS: nothing in them is escaped.
    out.extend_from_slice(object.text("apiVersion").as_bytes());
    out.extend_from_slice(b"\",");
    write_members(&mut out, object);
    Bytes::from(out)
}

/// The `apiVersion` of stored bytes, if they have one, and what follows after it.
fn split_version(stored: &[u8]) -> Option<(&str, &[u8])> {
    let rest = stored.strip_prefix(VERSION)?;
    let (version, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'"')?);
    Some((std::str::from_utf8(version).ok()?, rest.strip_prefix(b"\",")?))
}

/// The form of an object that has been converted to the version of its reader.
#[must_use]
pub fn encode_converted(mut object: Value) -> Bytes {
    object.put("apiVersion", "");
    encode_versioned(&object)
}

/// The `apiVersion` in which a custom resource is stored; empty if it has been converted to that of its reader.
#[must_use]
pub fn stored_version(stored: &[u8]) -> Option<&str> {
    split_version(stored).map(|(version, _)| version)
}

fn write_members(out: &mut Vec<u8>, object: &Value) {
    out.extend_from_slice(b"\"metadata\":");
    match object.map("metadata") {
        Some(metadata) if metadata.contains_key("resourceVersion") => {
            let mut metadata = metadata.clone();
            metadata.remove("resourceVersion");
            write(out, &Value::Object(metadata));
        }
        Some(_) => write(out, object.at("metadata")),
        None => out.extend_from_slice(b"{}"),
    }
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "kind" | "apiVersion") {
            out.push(b',');
            write(out, &Value::String(key.clone()));
            out.push(b':');
            write(out, value);
        }
    }
    out.push(b'}');
}

fn write(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON into memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// The object of stored bytes, with `kind`, `resourceVersion` and, unless it was stored, `apiVersion` filled in. Bytes that
/// are no object of ours read as an empty one; the store's checksums make that unreachable.
#[must_use]
pub fn decode(kind: &Kind, stored: &[u8], revision: u64) -> Value {
    let mut object = decode_bare(stored);
    object.put("metadata.resourceVersion", revision.to_string());
    object.put("kind", kind.kind);
    if stored_version(stored).is_none_or(str::is_empty) {
        object.put("apiVersion", kind.api_version());
    }
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

/// Writes the object of stored bytes as JSON; `typed` puts `kind` and `apiVersion` in front, which list items lack. The
/// version is that of the kind, whatever was stored.
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
    let rest = match split_version(stored) {
        Some((_, rest)) => rest.strip_prefix(HEAD.get(1..).unwrap_or_default()),
        None => stored.strip_prefix(HEAD),
    };
    match rest {
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
    fn a_custom_resource_keeps_the_version_in_which_it_was_stored() {
        let kind = kinds::find("", "v1", "configmaps").expect("ConfigMap");
        let object =
            json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "x"}, "spec": {"a": 1}});
        let stored = encode_versioned(&object);
        assert_eq!(stored_version(&stored), Some("example.com/v1"));
        assert_eq!(stored_version(&encode(&object)), None);
        let read = decode(kind, &stored, 7);
        assert_eq!((read.text("apiVersion"), read.int("spec.a")), ("example.com/v1", 1));
        assert_eq!(encode_versioned(&read), stored);
        let converted = encode_converted(object);
        assert_eq!((stored_version(&converted), decode(kind, &converted, 7).text("apiVersion")), (Some(""), "v1"));
        let mut out = Vec::new();
        write_json(&mut out, kind, &stored, 7, true);
        let shown: Value = serde_json::from_slice(&out).expect("JSON");
        let metadata = json!({"name": "x", "resourceVersion": "7"});
        assert_eq!(shown, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "spec": {"a": 1}}));
        assert_eq!(out.windows(12).filter(|part| *part == b"\"apiVersion\"").count(), 1);
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
