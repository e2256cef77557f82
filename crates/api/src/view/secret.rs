//! Secrets.

use std::fmt;

use serde::Deserialize;

use super::lenient::or_default;
use super::{ObjectMeta, StringMap};

/// A Secret.
#[derive(Deserialize, Clone, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Secret {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its type.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its values by key, in base64.
    #[serde(deserialize_with = "or_default")]
    pub data: StringMap,
}

impl fmt::Debug for Secret {
    /// Never shows the data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.metadata.key())
    }
}
