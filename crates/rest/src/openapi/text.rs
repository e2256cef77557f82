//! Descriptions of types and fields.
//!
//! In: the descriptions that the build script extracted from the crate `k8s-openapi`, and those of our own kinds in [`own`]. Out: the text of a type or
//! a field. The tables of the scheme have structure but no text. Read once per build of a document and dropped afterwards.

use flate2::read::GzDecoder;
use serde_json::{Map, Value};

use super::own;

/// Definition ─▶ its description and those of its fields, as compressed JSON.
static DESCRIPTIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.json.gz"));

/// The descriptions of all types that can be reached from the kinds.
pub(super) struct Texts(Map<String, Value>);

impl Texts {
    pub(super) fn read() -> Self {
        // Written by the build script; the tests read it.
        Self(serde_json::from_reader(GzDecoder::new(DESCRIPTIONS)).unwrap_or_default())
    }

    /// The description of a type, by the name of its definition.
    pub(super) fn of_type(&self, definition: &str) -> Option<&str> {
        if let Some(text) = own::of_type(definition) {
            return Some(text);
        }
        self.0.get(definition)?.get("description")?.as_str()
    }

    /// The description of a field.
    pub(super) fn of_field(&self, definition: &str, field: &str) -> Option<&str> {
        if let Some(text) = own::of_field(definition, field) {
            return Some(text);
        }
        self.0.get(definition)?.get("fields")?.get(field)?.as_str()
    }
}
