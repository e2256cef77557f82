//! Which definitions a server installs, and what it writes.
//!
//! In: the metadata of a stored definition. Out: whether it is due, and the object to write, established at once. A definition
//! that somebody else has created or changed is left alone: an annotation of ours records bundle version, channel, our revision
//! and the generation that we wrote, and clients change at least one of them.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::definition::{CHANNEL_ANNOTATION, VERSION_ANNOTATION};
use super::{BUNDLE_VERSION, Builder, Channel};
use crate::crd::names;
use crate::lifecycle::seconds;
use crate::value::ValueExt as _;
use crate::view::ObjectMeta;
use crate::view::lenient::or_default;

/// The annotation of definitions that the server installed.
pub const ANNOTATION: &str = "waypost.dev/gateway-api";
/// Counts changes of the definitions within a bundle version.
pub(super) const REVISION: u32 = 1;

/// The metadata of a stored definition.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Stored {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
}

#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
struct Metadata {
    #[serde(flatten)]
    object: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    generation: i64,
}

/// What the annotation records.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record<'a> {
    version: &'a str,
    channel: &'a str,
    revision: u32,
    generation: i64,
}

impl<'a> Record<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let record = Self {
            version: words.next()?,
            channel: words.next()?,
            revision: words.next()?.parse().ok()?,
            generation: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(record)
    }

    fn text(&self) -> String {
        let Self { version, channel, revision, generation } = self;
        format!("{version} {channel} {revision} {generation}")
    }
}

impl Stored {
    /// Whether the server installs its definition in place of this one.
    #[must_use]
    pub fn is_outdated(&self, channel: Channel) -> bool {
        let Metadata { object, generation } = &self.metadata;
        let Some(record) = object.annotation(ANNOTATION).and_then(Record::parse) else { return false };
        let is_unchanged = record.generation == *generation
            && object.annotation(VERSION_ANNOTATION) == Some(record.version)
            && object.annotation(CHANNEL_ANNOTATION) == Some(record.channel);
        let is_current =
            (record.version, record.channel, record.revision) == (BUNDLE_VERSION, channel.name(), REVISION);
        is_unchanged && !is_current && !object.is_deleting()
    }
}

/// The definition to write, in place of `old` if there is one. `others` are the definitions of its group, whose names are taken.
#[must_use]
pub fn object(
    builder: &Builder,
    channel: Channel,
    old: Option<Value>,
    others: &[&Value],
    now: Timestamp,
    uid: &str,
) -> Value {
    let new = builder.definition(channel);
    let mut object = old.unwrap_or_else(|| {
        json!({
            "metadata": {
                "name": builder.name, "uid": uid, "creationTimestamp": seconds(now), "generation": 0,
                "managedFields": [managed_fields(now)],
            },
            "status": {},
        })
    });
    let generation = object.int("metadata.generation") + 1;
    object.put("metadata.generation", generation);
    for part in ["annotations", "labels"] {
        for (key, value) in new.at("metadata").map(part).into_iter().flatten() {
            object_member(&mut object["metadata"], part)[key] = value.clone();
        }
    }
    let record = Record { version: BUNDLE_VERSION, channel: channel.name(), revision: REVISION, generation };
    object_member(&mut object["metadata"], "annotations")[ANNOTATION] = record.text().into();
    object.put("spec", new.at("spec").clone());
    if let Some(status) = names::status(&object, others, now) {
        object.put("status", status);
    }
    object
}

fn object_member<'v>(value: &'v mut Value, name: &str) -> &'v mut Value {
    if !value.at(name).is_object() {
        value[name] = json!({});
    }
    &mut value[name]
}

/// The server owns only its annotation: server-side apply of other definitions of the same name meets no conflict.
fn managed_fields(now: Timestamp) -> Value {
    json!({
        "manager": "waypost", "operation": "Apply", "apiVersion": "apiextensions.k8s.io/v1", "time": seconds(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {format!("f:{ANNOTATION}"): {}}}},
    })
}
