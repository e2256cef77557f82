//! An Endpoints object, as it is read and as it is written.

use serde::{Deserialize, Serialize};

use super::metadata::Metadata;
use super::or_default;
use super::slice::TargetRef;

/// An Endpoints object.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Endpoints {
    /// Uid and owners.
    pub metadata: Metadata,
    /// Addresses that share ports.
    #[serde(deserialize_with = "or_default")]
    pub subsets: Vec<Subset>,
}

/// Addresses that share ports.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// Those that are ready.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub addresses: Vec<Address>,
    /// Those that are not.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub not_ready_addresses: Vec<Address>,
    /// Their ports.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ports: Vec<Port>,
}

/// One address.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// The address.
    pub ip: Box<str>,
    /// Its host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<str>>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// A port.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its number.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Box<str>,
    /// What is spoken on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Box<str>>,
}

impl Endpoints {
    /// Reads a stored Endpoints object.
    #[must_use]
    pub fn read(stored: &[u8]) -> Self {
        super::read(stored)
    }
}
