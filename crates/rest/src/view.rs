//! Encodes objects, lists and errors in the negotiated form.
//!
//! In: stored entries or values, and the negotiated [`Form`]. Out: bytes and a content type. The common case, JSON without a transform,
//! copies stored bytes; everything else is decoded.

use std::io::Write as _;

use api::kind::Kind;
use api::status::Status;
use api::value::ValueExt as _;
use api::{object, proto, schema, yaml};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use store::Entry;

use crate::negotiate::{Form, Media, Transform};

/// What rows of a Table contain besides their cells (`includeObject`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Include {
    /// Everything.
    Object,
    /// The metadata.
    #[default]
    Metadata,
    /// Nothing.
    None,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                api::field::quote(other)
            ))),
        }
    }
}

/// The form of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) form: Form,
    pub(crate) include: Include,
    /// For ages in Tables.
    pub(crate) now: Timestamp,
}

/// The metadata of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
}

/// Bytes and their content type.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// A stored object as this kind shows it. What a webhook converts was converted before (`crate::conversion`).
pub(crate) fn read(kind: &Kind, entry: &Entry) -> Value {
    read_at(kind, entry, entry.modified)
}

/// A stored object with another revision (that of its deletion).
pub(crate) fn read_at(kind: &Kind, entry: &Entry, revision: u64) -> Value {
    let object = object::decode(kind, &entry.value, revision);
    if !kind.reshapes(&entry.value, entry.modified) {
        return object;
    }
    typed(kind, kind.rules.stored_to_shown(object))
}

fn typed(kind: &Kind, mut object: Value) -> Value {
    object.put("kind", kind.kind);
    object.put("apiVersion", kind.api_version());
    object
}

/// Encodes one stored object as JSON.
pub(crate) fn write_entry(out: &mut Vec<u8>, kind: &Kind, entry: &Entry, revision: u64, typed: bool) {
    if kind.reshapes(&entry.value, entry.modified) {
        let mut object = read_at(kind, entry, revision);
        if !typed {
            untype(&mut object);
        }
        let _ = serde_json::to_writer(out, &object);
    } else {
        object::write_json(out, kind, &entry.value, revision, typed);
    }
}

fn untype(object: &mut Value) {
    object.drop_path("kind");
    object.drop_path("apiVersion");
}

impl View {
    /// One stored object.
    pub(crate) fn entry(&self, kind: &Kind, entry: &Entry) -> Result<Document, Status> {
        if self.form.media == Media::Json && self.form.transform == Transform::None && !self.form.pretty {
            let mut out = Vec::with_capacity(entry.value.len() + 128);
            write_entry(&mut out, kind, entry, entry.modified, true);
            return Ok(Document { content_type: "application/json", body: out.into() });
        }
        self.object(kind, read(kind, entry))
    }

    /// One object.
    pub(crate) fn object(&self, kind: &Kind, object: Value) -> Result<Document, Status> {
        let shown = self.transformed(kind, object)?;
        Ok(self.write(&shown, |value| self.encode(kind, value)))
    }

    /// The protobuf message of a value in this form.
    pub(crate) fn encode(&self, kind: &Kind, shown: &Value) -> Vec<u8> {
        match self.form.transform {
            // Custom resources have no protobuf message; negotiation has excluded it.
            Transform::None => kind.table_type().map(|ty| proto::encode(ty, shown)).unwrap_or_default(),
            _ => proto::encode_partial(shown),
        }
    }

    /// One object in this form; also the object of a watch event.
    pub(crate) fn transformed(&self, kind: &Kind, object: Value) -> Result<Value, Status> {
        match self.form.transform {
            Transform::None => Ok(object),
            Transform::Partial { version } => Ok(partial(&object, version)),
            Transform::PartialList { .. } => Err(Status::not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
                go_package(kind),
                kind.kind
            ))),
            Transform::Table { version } => {
                let meta = json!({"resourceVersion": object.text("metadata.resourceVersion")});
                Ok(self.table(kind, version, &meta, std::iter::once(object), true))
            }
        }
    }

    /// A list of stored objects.
    pub(crate) fn list(
        &self,
        kind: &Kind,
        entries: &[std::sync::Arc<Entry>],
        meta: &ListMeta,
    ) -> Result<Document, Status> {
        match self.form {
            Form { transform: Transform::Partial { .. }, .. } => Err(Status::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
                go_package(kind),
                kind.kind
            ))),
            Form { media: Media::Json, transform: Transform::None, pretty: false } => {
                Ok(Document { content_type: "application/json", body: json_list(kind, entries, meta).into() })
            }
            Form { media: Media::Protobuf, transform: Transform::None, .. } => {
                let items = entries.iter().map(|entry| read(kind, entry));
                let raw = proto::encode_list(kind.type_id(), &meta.to_value(), items);
                let body = proto::encode_envelope(&kind.api_version(), &kind.list_kind(), &raw);
                Ok(Document { content_type: PROTOBUF, body: body.into() })
            }
            _ => Ok(self.list_value(kind, entries, meta)),
        }
    }

    fn list_value(&self, kind: &Kind, entries: &[std::sync::Arc<Entry>], meta: &ListMeta) -> Document {
        let objects = entries.iter().map(|entry| read(kind, entry));
        match self.form.transform {
            Transform::Table { version } => {
                let table = self.table(kind, version, &meta.to_value(), objects, true);
                self.write(&table, |_| Vec::new())
            }
            Transform::PartialList { version } => {
                let items: Vec<Value> = objects.map(|object| partial(&object, version)).collect();
                let list = json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
                    // An empty list is null here, as in kube-apiserver, unlike elsewhere.
                    "metadata": meta.to_value(), "items": if items.is_empty() { Value::Null } else { json!(items) },
                });
                self.write(&list, |_| proto::encode_partial_list(&meta.to_value(), &items))
            }
            Transform::None | Transform::Partial { .. } => {
                let is_custom = kind.is_custom();
                let items: Vec<Value> = objects
                    .map(|mut object| {
                        if !is_custom {
                            untype(&mut object);
                        }
                        object
                    })
                    .collect();
                let list = json!({
                    "kind": kind.list_kind(), "apiVersion": kind.api_version(),
                    "metadata": meta.of_list(kind), "items": items,
                });
                self.write(&list, |_| Vec::new())
            }
        }
    }

    /// A Table; watch events have the columns only once.
    pub(crate) fn table(
        &self,
        kind: &Kind,
        version: &str,
        meta: &Value,
        objects: impl Iterator<Item = Value>,
        columns: bool,
    ) -> Value {
        let rows: Vec<Value> = objects.map(|object| self.row(kind, version, object)).collect();
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
            "columnDefinitions": if columns { Value::from(kind.columns()) } else { Value::Null },
            "rows": rows,
        })
    }

    fn row(&self, kind: &Kind, version: &str, object: Value) -> Value {
        let mut row = Map::new();
        row.insert("cells".to_owned(), kind.cells(&object, self.now).into());
        let conditions = (kind.table_view.conditions)(&object);
        if !conditions.is_empty() {
            row.insert("conditions".to_owned(), conditions.into());
        }
        let carried = match self.include {
            Include::Object => object,
            Include::Metadata => partial(&object, version),
            Include::None => Value::Null,
        };
        row.insert("object".to_owned(), carried);
        Value::Object(row)
    }

    /// An error Status.
    pub(crate) fn status(&self, status: &Status) -> Document {
        let form = Form { transform: Transform::None, ..self.form };
        let view = Self { form, ..*self };
        view.write(&status.to_value(), |value| proto::encode(schema::named("meta.Status"), value))
    }

    /// The Status of a successful delete.
    pub(crate) fn success(&self, value: &Value) -> Document {
        let form = Form { transform: Transform::None, ..self.form };
        let view = Self { form, ..*self };
        view.write(value, |value| proto::encode(schema::named("meta.Status"), value))
    }

    /// A discovery document, which has no group: its `kind` names its message in the table `meta`.
    pub(crate) fn discovery(&self, document: &Value) -> Document {
        let message = |value: &Value| {
            let ty = schema::find(&format!("meta.{}", value.text("kind")));
            ty.map(|ty| proto::encode(ty, value)).unwrap_or_default()
        };
        self.write(document, message)
    }

    fn write(&self, value: &Value, raw: impl FnOnce(&Value) -> Vec<u8>) -> Document {
        match self.form.media {
            Media::Json => {
                let body = if self.form.pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
                Document { content_type: "application/json", body: body.unwrap_or_default().into() }
            }
            Media::Yaml => Document { content_type: "application/yaml", body: yaml::to_yaml(value).into() },
            Media::Protobuf => {
                let body = proto::encode_envelope(value.text("apiVersion"), value.text("kind"), &raw(value));
                Document { content_type: PROTOBUF, body: body.into() }
            }
        }
    }
}

/// The content type of protobuf responses.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl ListMeta {
    /// The metadata of a list of a kind. Lists of custom resources have a continue token even when it is empty.
    fn of_list(&self, kind: &Kind) -> Value {
        let mut metadata = self.to_value();
        if kind.is_custom() {
            metadata.put("continue", self.continue_token.as_str());
        }
        metadata
    }

    /// Its JSON.
    pub(crate) fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        if !self.continue_token.is_empty() {
            out.insert("continue".to_owned(), self.continue_token.as_str().into());
        }
        if let Some(remaining) = self.remaining {
            out.insert("remainingItemCount".to_owned(), remaining.into());
        }
        Value::Object(out)
    }
}

fn json_list(kind: &Kind, entries: &[std::sync::Arc<Entry>], meta: &ListMeta) -> Vec<u8> {
    let size: usize = entries.iter().map(|entry| entry.value.len() + 40).sum();
    let mut out = Vec::with_capacity(size + 256);
    // Custom resources are typed in lists.
    let is_custom = kind.is_custom();
    let metadata = meta.of_list(kind);
    let _ = write!(
        out,
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        kind.list_kind(),
        kind.api_version(),
    );
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_entry(&mut out, kind, entry, entry.modified, is_custom);
    }
    out.extend_from_slice(b"]}");
    out
}

fn partial(object: &Value, version: &str) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
           "metadata": object.at("metadata")})
}

/// The Go package that kube-apiserver prints before a type.
pub(crate) fn go_package(kind: &Kind) -> &'static str {
    match kind.group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}
