//! An EndpointSlice, as it is read and as it is written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::Entry;

use super::metadata::Metadata;
use super::or_default;

/// The label with the name of the Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the name of whoever looks after a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// An EndpointSlice.
#[derive(Clone, PartialEq, Debug)]
pub struct Slice {
    /// The stored form: key, labels and revision.
    pub entry: Arc<Entry>,
    /// Uid and owners.
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: Box<str>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// One endpoint.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<Box<str>>,
    /// Its state.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Conditions,
    /// Its host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<str>>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// The zone it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Box<str>>,
    /// Whom it should serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Hints>,
}

/// The state of an endpoint.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Conditions {
    /// Whether new connections should go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Whether it is about to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// A reference to a Pod.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(default)]
pub struct TargetRef {
    /// `Pod`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: Box<str>,
    /// Its namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Its uid.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: Box<str>,
}

/// Whom an endpoint should serve.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// Clients of these zones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub for_zones: Vec<Named>,
    /// Clients on these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub for_nodes: Vec<Named>,
}

/// A name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct Named {
    /// The name.
    pub name: Box<str>,
}

/// A port of a slice.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Box<str>,
    /// Its number; none means every port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What is spoken on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    metadata: Metadata,
    address_type: Box<str>,
    #[serde(deserialize_with = "or_default")]
    endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<Port>,
}

impl Slice {
    /// Reads a stored slice.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let Raw { metadata, address_type, endpoints, ports } = super::read(&entry.value);
        Self { entry: Arc::clone(entry), metadata, address_type, endpoints, ports }
    }

    /// Whether it says that an object owns it.
    #[must_use]
    pub fn is_owned_by(&self, kind: &str, uid: &str) -> bool {
        self.metadata
            .owner_references
            .iter()
            .any(|owner| *owner.uid == *uid && *owner.kind == *kind && &*owner.api_version == "v1")
    }
}
