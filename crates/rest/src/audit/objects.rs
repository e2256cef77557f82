//! Objects of requests and responses, as events show them.
//!
//! In: the bytes that were received or are about to be sent, and their media type. Out: JSON, the metadata that completes `objectRef`, and the
//! Status of the response. This runs in the writer's thread where they are large, otherwise in that of the request; bytes are shared, not copied.

use std::borrow::Cow;

use api::kind::{Kind, SCALE};
use api::kinds::{binding, scale};
use api::options::WriteOptions;
use api::value::ValueExt as _;
use api::{decode, kinds, proto, schema, yaml};
use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::event::ResponseStatus;
use super::level::Level;
use crate::negotiate::{self, Media};
use crate::route::Target;
use crate::{body, query};

/// The body of a request.
#[derive(Clone)]
pub(super) struct RequestBody {
    pub(super) content: Content,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) bytes: Bytes,
}

/// What the body of a request holds.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Object(&'static Kind),
    /// A message that is not a kind of the API: its schema and its type.
    Message {
        schema: &'static str,
        api_version: &'static str,
        kind: &'static str,
    },
    DeleteOptions,
    Patch,
}

/// The metadata of the object in a request.
#[derive(Deserialize, PartialEq, Eq, Debug, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

/// The part of an object that completes `objectRef`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct WithMetadata {
    metadata: Metadata,
}

impl Content {
    /// What a request with this verb has in its body.
    pub(super) fn of(target: &Target<'_>, verb: &str) -> Self {
        match (verb, target.subresource.map_or("", |sub| sub.name)) {
            ("patch", _) => Self::Patch,
            ("delete" | "deletecollection", _) => Self::DeleteOptions,
            (_, SCALE) => Self::Object(&scale::KIND),
            (_, "binding") => Self::Object(&binding::KIND),
            (_, "eviction") => Self::Message { schema: "policy.Eviction", api_version: "policy/v1", kind: "Eviction" },
            (_, "token") => Self::Message {
                schema: "authentication.TokenRequest",
                api_version: "authentication.k8s.io/v1",
                kind: "TokenRequest",
            },
            _ => Self::Object(target.kind),
        }
    }
}

impl RequestBody {
    /// The metadata and, from the level `Request` on, the object. Nothing of a body that cannot be decoded; `uri_query` are the options.
    pub(super) fn read(
        &self,
        level: Level,
        omit_managed_fields: bool,
        uri_query: &str,
    ) -> (Option<Metadata>, Option<Box<RawValue>>) {
        match self.content {
            Content::Patch if level >= Level::Request => (None, self.patch()),
            Content::DeleteOptions if level >= Level::Request => (None, self.delete_options()),
            Content::Patch | Content::DeleteOptions => (None, None),
            Content::Object(_) | Content::Message { .. } if level < Level::Request => (self.metadata(uri_query), None),
            Content::Object(_) | Content::Message { .. } => {
                let Some(mut object) = self.decoded(uri_query) else { return (None, None) };
                let metadata = metadata_of(&object);
                if omit_managed_fields {
                    drop_managed_fields(&mut object);
                }
                (Some(metadata), raw(&object))
            }
        }
    }

    fn media(&self) -> Option<Media> {
        let text = self.content_type.as_ref().map(|value| value.to_str().unwrap_or("?"));
        negotiate::body_media(text).ok()
    }

    /// The metadata alone: JSON need not be decoded as a whole for that.
    fn metadata(&self, uri_query: &str) -> Option<Metadata> {
        match self.media()? {
            Media::Json => serde_json::from_slice::<WithMetadata>(&self.bytes).ok().map(|object| object.metadata),
            Media::Yaml | Media::Protobuf => self.decoded(uri_query).map(|object| metadata_of(&object)),
        }
    }

    /// The object with its defaults, as it is before admission, with the fields that Go writes.
    fn decoded(&self, uri_query: &str) -> Option<Value> {
        let media = self.media()?;
        let (mut object, api_version, kind) = match self.content {
            Content::Object(kind) => {
                let options = WriteOptions::create(&query::parse(uri_query)).ok()?;
                let mut object =
                    body::object(kind, media, &self.bytes, options.field_validation, &mut Vec::new()).ok()?;
                kind.normalize(&mut object);
                (object, Cow::Owned(kind.api_version()), kind.kind)
            }
            Content::Message { schema, api_version, kind } => {
                let mut object = body::message(schema, media, &self.bytes).ok()?;
                decode::prune(schema::named(schema), &mut object);
                (object, Cow::Borrowed(api_version), kind)
            }
            Content::DeleteOptions | Content::Patch => return None,
        };
        object.put("kind", kind);
        object.put("apiVersion", &*api_version);
        Some(object)
    }

    fn delete_options(&self) -> Option<Box<RawValue>> {
        let mut options = body::delete_options(self.media()?, &self.bytes).ok()??;
        options.put("kind", "DeleteOptions");
        if options.text("apiVersion").is_empty() {
            options.put("apiVersion", "v1");
        }
        raw(&options)
    }

    /// The patch as it was sent, YAML as JSON.
    fn patch(&self) -> Option<Box<RawValue>> {
        match serde_json::from_slice::<&RawValue>(&self.bytes) {
            Ok(patch) => Some(patch.to_owned()),
            Err(_) => raw(&yaml::from_yaml(&self.bytes).ok()?.0),
        }
    }
}

/// A response: its code, and its body as far as an event may need it.
#[derive(Clone, Default)]
pub(super) struct Response {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    pub(super) bytes: Bytes,
}

/// The `kind` of a document.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Typed<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl Response {
    /// The status and, at the level `RequestResponse`, the object. Documents without a `kind` are not objects of the API.
    pub(super) fn read(&self, level: Level, omit_managed_fields: bool) -> (ResponseStatus, Option<Box<RawValue>>) {
        let (status, object) = self.document(level, omit_managed_fields).unwrap_or_default();
        (ResponseStatus { code: self.code, ..status.unwrap_or_default() }, object)
    }

    fn document(
        &self,
        level: Level,
        omit_managed_fields: bool,
    ) -> Option<(Option<ResponseStatus>, Option<Box<RawValue>>)> {
        let wants_object = level >= Level::RequestResponse;
        let mut value = match self.content_type.split(';').next().unwrap_or_default() {
            "application/json" if !(wants_object && omit_managed_fields) => {
                let typed: Typed<'_> = serde_json::from_slice(&self.bytes).ok()?;
                let status = if typed.kind == "Status" { serde_json::from_slice(&self.bytes).ok() } else { None };
                let object = (wants_object && !typed.kind.is_empty()).then_some(&self.bytes);
                return Some((status, object.and_then(|bytes| serde_json::from_slice(bytes).ok())));
            }
            "application/json" => serde_json::from_slice(&self.bytes).ok()?,
            "application/yaml" => yaml::from_yaml(&self.bytes).ok()?.0,
            "application/vnd.kubernetes.protobuf" => from_protobuf(&self.bytes)?,
            _ => return None,
        };
        let kind = value.text("kind");
        let status = if kind == "Status" { ResponseStatus::deserialize(&value).ok() } else { None };
        if !wants_object || kind.is_empty() {
            return Some((status, None));
        }
        if omit_managed_fields {
            drop_managed_fields(&mut value);
        }
        Some((status, raw(&value)))
    }
}

fn raw(value: &Value) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(value).ok()
}

fn metadata_of(object: &Value) -> Metadata {
    Metadata::deserialize(object.at("metadata")).unwrap_or_default()
}

/// Removes `managedFields` from an object, from the items of a list, or from the objects in the rows of a Table.
fn drop_managed_fields(value: &mut Value) {
    value.drop_path("metadata.managedFields");
    for item in value.items_mut("items") {
        item.drop_path("metadata.managedFields");
    }
    for row in value.items_mut("rows") {
        row.drop_path("object.metadata.managedFields");
    }
}

/// A response in protobuf as the same response in JSON.
fn from_protobuf(bytes: &[u8]) -> Option<Value> {
    let envelope = proto::decode_envelope(bytes).ok()?;
    let (group, version) = envelope.api_version.rsplit_once('/').unwrap_or(("", &envelope.api_version));
    let find = |name: &str| {
        let other = [&scale::KIND].into_iter().find(|kind| kind.kind == name && kind.group == group);
        kinds::find_kind(group, version, name).or(other)
    };
    let list = |(metadata, items): (Value, Vec<Value>)| serde_json::json!({"metadata": metadata, "items": items});
    let mut value = match (envelope.kind.as_str(), find(&envelope.kind)) {
        (_, Some(kind)) => proto::decode(kind.type_id(), envelope.raw).ok()?,
        ("Status", None) => proto::decode(schema::named("meta.Status"), envelope.raw).ok()?,
        ("PartialObjectMetadata", None) => proto::decode_partial(envelope.raw).ok()?,
        ("PartialObjectMetadataList", None) => list(proto::decode_partial_list(envelope.raw).ok()?),
        (name, None) => list(proto::decode_list(find(name.strip_suffix("List")?)?.type_id(), envelope.raw).ok()?),
    };
    value.put("kind", envelope.kind.as_str());
    value.put("apiVersion", envelope.api_version.as_str());
    Some(value)
}

#[cfg(test)]
mod tests;
