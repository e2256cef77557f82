//! Which definitions a server installs, and what it writes.
//!
//! In: the metadata of a stored definition, and the record of what the server wrote. Out: whether it is due; the object to write,
//! established at once, and its record. A definition that somebody else has created or changed is left alone: its UID, its
//! generation or its annotations differ from the record. The record is not part of the definition, whose metadata is that of the
//! upstream bundle.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::definition::{CHANNEL_ANNOTATION, VERSION_ANNOTATION};
use super::{BUNDLE_VERSION, Builder, Channel};
use crate::crd::{approval, condition, names};
use crate::lifecycle::seconds;
use crate::value::ValueExt as _;
use crate::view::ObjectMeta;
use crate::view::lenient::or_default;

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

/// What the server wrote.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Record {
    version: String,
    channel: String,
    revision: u32,
    uid: String,
    generation: i64,
}

impl Record {
    /// The record of a definition that is written for a channel.
    #[must_use]
    pub fn of(definition: &Value, channel: Channel) -> Self {
        Self {
            version: BUNDLE_VERSION.to_owned(),
            channel: channel.name().to_owned(),
            revision: REVISION,
            uid: definition.text("metadata.uid").to_owned(),
            generation: definition.int("metadata.generation"),
        }
    }

    fn is_current(&self, channel: Channel) -> bool {
        (self.version.as_str(), self.channel.as_str(), self.revision) == (BUNDLE_VERSION, channel.name(), REVISION)
    }
}

impl Stored {
    /// Whether the server installs its definition in place of this one, which it recorded when it wrote it.
    #[must_use]
    pub fn is_outdated(&self, record: &Record, channel: Channel) -> bool {
        let Metadata { object, generation } = &self.metadata;
        let is_unchanged = record.generation == *generation
            && record.uid == *object.uid
            && object.annotation(VERSION_ANNOTATION) == Some(&record.version)
            && object.annotation(CHANNEL_ANNOTATION) == Some(&record.channel);
        is_unchanged && !record.is_current(channel) && !object.is_deleting()
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
    object.put("spec", new.at("spec").clone());
    // The order of conditions is that of kube-apiserver.
    if let Some(approval) = approval::condition(&object) {
        condition::set(&mut object, &approval, now);
    }
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

/// The server owns only the group, which nobody can change: server-side apply of another definition of the same name meets no
/// conflict. Without an owner of anything, everything would belong to the manager `before-first-apply`.
fn managed_fields(now: Timestamp) -> Value {
    json!({
        "manager": "waypost", "operation": "Apply", "apiVersion": "apiextensions.k8s.io/v1", "time": seconds(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:group": {}}},
    })
}
