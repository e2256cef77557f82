//! Converts an object as a server sends it to the form in which it is stored here.
//!
//! In: its JSON. Out: an [`Object`] without `kind`, `apiVersion`, `resourceVersion` and `managedFields` (which are more than
//! half of it), and its resource version. Values are copied as text and never decoded; only the names on the way are read.

use crate::watch::Object;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One event of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK`, `ERROR`.
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// A bookmark, a Status, or a list without its items: what we need of them.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(super) struct Note {
    pub(super) metadata: NoteMeta,
    pub(super) code: u16,
    pub(super) message: String,
}

#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NoteMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) continue_token: String,
    pub(super) annotations: Option<std::collections::BTreeMap<String, String>>,
}

impl Note {
    /// Whether it is the bookmark at the end of the initial events.
    pub(super) fn ends_initial(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|map| map.get("k8s.io/initial-events-end")).is_some_and(|text| text == "true")
    }
}

/// An object in stored form.
#[derive(Debug)]
pub(super) struct Slim {
    pub(super) object: Object,
    pub(super) revision: String,
}

/// Converts an object to stored form; `None` when it has no name, which no object of a server lacks.
pub(super) fn slim(json: &[u8]) -> Result<Option<Slim>, serde_json::Error> {
    let members: Members<'_> = serde_json::from_slice(json)?;
    let metadata = members.0.iter().find(|(key, _)| key == "metadata").map_or("{}", |(_, raw)| raw.get());
    let metadata: Members<'_> = serde_json::from_str(metadata)?;
    let text = |name: &str| {
        let found = metadata.0.iter().find(|(key, _)| key == name);
        found.map_or(Ok(String::new()), |(_, raw)| serde_json::from_str(raw.get()))
    };
    let (namespace, name, revision) = (text("namespace")?, text("name")?, text("resourceVersion")?);
    if name.is_empty() {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(json.len());
    out.extend_from_slice(b"{\"metadata\":");
    metadata.write(&mut out, b'{', &["managedFields", "resourceVersion"])?;
    out.push(b'}');
    members.write(&mut out, b',', &["metadata", "kind", "apiVersion"])?;
    out.push(b'}');
    // Half of the capacity was for what was left out, and objects are kept for long.
    out.shrink_to_fit();
    let object = Object { namespace: namespace.into(), name: name.into(), value: Bytes::from(out) };
    Ok(Some(Slim { object, revision }))
}

/// The members of a JSON object, in order, not decoded.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl Members<'_> {
    /// Writes all but some of them, with `before` in front of the first.
    fn write(&self, out: &mut Vec<u8>, before: u8, without: &[&str]) -> Result<(), serde_json::Error> {
        let mut joint = before;
        for (key, raw) in self.0.iter().filter(|(key, _)| !without.contains(&key.as_str())) {
            out.push(joint);
            serde_json::to_writer(&mut *out, key)?;
            out.push(b':');
            out.extend_from_slice(raw.get().as_bytes());
            joint = b',';
        }
        Ok(())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Collect).map(Members)
    }
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut out = Vec::new();
        while let Some(member) = map.next_entry()? {
            out.push(member);
        }
        Ok(out)
    }
}
