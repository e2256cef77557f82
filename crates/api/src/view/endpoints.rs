//! Endpoints, read and written in the same form.

use serde::{Deserialize, Serialize};

use super::endpoint_slice::TargetRef;
use super::lenient::{number, or_default, protocol, tcp};
use super::{ObjectMeta, Protocol};

/// An Endpoints object.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Endpoints {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
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
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
    /// Its host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<str>>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// The object behind it, mostly a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// A port.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, empty if it has none.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub port: u16,
    /// Its protocol; none for an unknown one.
    #[serde(default = "tcp", deserialize_with = "protocol", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Box<str>>,
}
