//! Objects as they arrive: the few members that names are made of, read from JSON, and forgiving where the API is.
//!
//! In: JSON of any server. Out: what [`Book::apply`](crate::book::Book::apply) takes; the forms live only for that
//! call. A null is an absent member, and what cannot be understood is as if it were not there, so that one odd member
//! never hides the rest.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Deserializer;

/// The label with the name of a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Who an object is.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Its annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// When it was asked to go.
    pub deletion_timestamp: Option<Box<str>>,
}

/// A Service.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Service {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it asks for.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceSpec,
}

/// What a Service asks for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its first address.
    #[serde(rename = "clusterIP", deserialize_with = "or_default")]
    pub cluster_ip: Box<str>,
    /// All its addresses.
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<Box<str>>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
    /// Another name for it.
    #[serde(deserialize_with = "or_default")]
    pub external_name: Box<str>,
}

/// A port of a Service or of a slice.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its protocol; absent means TCP.
    pub protocol: Option<Box<str>>,
    /// Its number; a slice may leave it out, which means every port.
    pub port: Option<i64>,
}

/// An EndpointSlice.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(deserialize_with = "or_default")]
    pub address_type: Box<str>,
    /// Its endpoints.
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    /// The ports of all of them.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
}

/// An endpoint.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<Box<str>>,
    /// How it is.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Conditions,
    /// Its own name.
    #[serde(deserialize_with = "or_default")]
    pub hostname: Box<str>,
    /// What it is.
    #[serde(deserialize_with = "or_default")]
    pub target_ref: Target,
}

/// How an endpoint is.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Conditions {
    /// Whether it takes traffic; absent means that it does.
    pub ready: Option<bool>,
}

/// What an endpoint is.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Target {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
}

/// A Namespace.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Namespace {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
}

/// A Pod.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Pod {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// How it is.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// How a Pod is.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// How far it is.
    #[serde(deserialize_with = "or_default")]
    pub phase: Box<str>,
    /// Its first address.
    #[serde(rename = "podIP", deserialize_with = "or_default")]
    pub pod_ip: Box<str>,
    /// All its addresses.
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: Vec<PodIp>,
}

/// An address of a Pod.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct PodIp {
    /// It.
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
}

impl Pod {
    /// Whether its addresses are its own: one that has ended has given them back.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(&*self.status.phase, "Succeeded" | "Failed" | "Unknown")
    }
}

/// A member that may be null, which means the same as absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
