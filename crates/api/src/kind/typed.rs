//! What depends on the type of a kind's objects: a schema table, or the schema of a definition.
//!
//! Objects of the tables must fit their type when they are decoded. Custom resources are read as any JSON; of their content
//! only unknown fields are dropped, and wrong types are found by validation. Their metadata is that of all kinds.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Kind;
use crate::apply::{self, Manager};
use crate::crd::columns;
use crate::custom::Definition;
use crate::decode::{self, DecodeError, Decoded, TypeError};
use crate::object;
use crate::patch::{Patch, PatchError};
use crate::schema::{self, TypeId};
use crate::status::Status;
use crate::table::Column;
use crate::value::ValueExt as _;

impl Kind {
    /// Decodes a JSON document as an object of this kind.
    ///
    /// # Errors
    /// When the document is no JSON, or does not fit the type.
    pub fn decode_json(&self, bytes: &[u8]) -> Result<Decoded, DecodeError> {
        let Some(definition) = self.rules.definition() else { return decode::decode_json(self.type_id(), bytes) };
        let (mut value, mut strict) = decode::parse_json(bytes)?;
        strict.extend(check_custom(self, &definition, &mut value)?);
        Ok(Decoded { value, strict })
    }

    /// Checks a value as an object of this kind: drops unknown fields and returns them (`unknown field "spec.foo"`).
    ///
    /// # Errors
    /// When the value does not fit the type.
    pub fn check(&self, value: &mut Value) -> Result<Vec<String>, TypeError> {
        match self.rules.definition() {
            Some(definition) => check_custom(self, &definition, value),
            None => decode::check(self.type_id(), value),
        }
    }

    /// Brings an object into the form in which it is stored: without what its type leaves out when it is empty.
    pub fn normalize(&self, object: &mut Value) {
        if !self.is_custom() {
            decode::prune(self.type_id(), object);
        } else if let Some(metadata) = object.get_mut("metadata") {
            decode::prune(metadata_type(), metadata);
        }
    }

    /// The stored form of an object. A custom resource is stored in the version that its `apiVersion` has.
    #[must_use]
    pub fn encode(&self, object: &Value) -> Bytes {
        let is_versioned = self.is_custom() && !object.text("apiVersion").is_empty();
        if is_versioned { object::encode_versioned(object) } else { object::encode(object) }
    }

    /// Whether stored bytes that were written at this revision may differ from what readers of this version see.
    #[must_use]
    pub fn reshapes(&self, stored: &[u8], modified: u64) -> bool {
        match object::stored_version(stored) {
            // It has been converted to this version.
            Some("") => false,
            Some(version) => {
                self.rules.converts(modified) || version.split_once('/') != Some((self.group, self.version))
            }
            None => self.rules.converts(modified),
        }
    }

    /// See [`apply::track_update`].
    pub fn track_update(&self, live: Option<&Value>, new: &mut Value, manager: &Manager<'_>, now: &str) {
        match self.rules.definition() {
            Some(definition) => apply::track_update(&definition.object_type, live, new, manager, now),
            None => apply::track_update(self.type_id(), live, new, manager, now),
        }
    }

    /// See [`apply::apply`].
    ///
    /// # Errors
    /// The Status of a configuration that does not fit the schema, or that is in conflict with other managers.
    pub fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &Manager<'_>,
        force: bool,
        now: &str,
    ) -> Result<Value, Status> {
        match self.rules.definition() {
            Some(definition) => apply::apply(&definition.object_type, live, config, manager, force, now),
            None => apply::apply(self.type_id(), live, config, manager, force, now),
        }
    }

    /// Applies a patch to an object of this kind.
    ///
    /// # Errors
    /// When the body is no patch of its format, or does not fit the object.
    pub fn patch(&self, patch: &Patch, object: &Value) -> Result<Value, PatchError> {
        patch.apply(self.table_type(), object)
    }

    /// The columns of a Table, as JSON.
    #[must_use]
    pub fn columns(&self) -> Vec<Value> {
        match self.rules.definition() {
            Some(definition) => definition.columns.definitions(),
            None => self.table_view.columns.iter().map(Column::to_value).collect(),
        }
    }

    /// The cells of an object in a Table.
    #[must_use]
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self.rules.definition() {
            Some(definition) => columns::row(&definition.columns, object, now),
            None => (self.table_view.row)(object, now),
        }
    }

    /// Whether a CustomResourceDefinition defines it.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.rules.definition().is_some()
    }

    /// The type of the schema tables; `None` for a custom kind.
    #[must_use]
    pub fn table_type(&self) -> Option<TypeId> {
        (!self.is_custom()).then(|| self.type_id())
    }
}

fn metadata_type() -> TypeId {
    schema::named("meta.ObjectMeta")
}

fn check_custom(kind: &Kind, definition: &Definition, value: &mut Value) -> Result<Vec<String>, TypeError> {
    let Some(object) = value.as_object_mut() else { return Ok(Vec::new()) };
    let mut of_metadata = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        let complaints = decode::check(metadata_type(), metadata)?;
        if metadata.is_null() {
            *metadata = Value::Object(Map::new());
        }
        of_metadata.extend(complaints.into_iter().map(|text| text.replacen("field \"", "field \"metadata.", 1)));
    }
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if !version.is_empty() && version != kind.api_version() {
        // No schema is known for another version, so that no field is: the request is refused for its version later.
        let known = |name: &String| matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        return Ok(object.keys().filter(|name| !known(name)).map(|name| format!("unknown field \"{name}\"")).collect());
    }
    let unknown = definition.schema().prune_strict(value)?;
    Ok(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).chain(of_metadata).collect())
}
