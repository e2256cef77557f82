//! Objects as they arrive: the members that matter to a gateway, read from JSON, and forgiving where the API is.
//!
//! In: JSON of any server. Out: small forms. A null is an absent member, and a number beyond its kind is 0.

use std::collections::BTreeMap;

use client::watch::Object;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};

/// Services with this label belong to another proxy.
pub const FOREIGN_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// The label with the name of a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The classes of load balancers that are ours; so is no class at all.
const OUR_CLASSES: [&str; 3] = ["waypost.dev/l2", "waypost.dev/bgp", "waypost.dev/proxy"];

/// What every object says of itself.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
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
    /// When it was deleted.
    pub deletion_timestamp: Option<Box<str>>,
}

/// A Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Service {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it asks for.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceSpec,
    /// What it got.
    #[serde(deserialize_with = "or_default")]
    pub status: ServiceStatus,
}

/// What a Service asks for.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `LoadBalancer`, if it concerns us.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Who makes its load balancer.
    pub load_balancer_class: Option<Box<str>>,
    /// The families of its addresses.
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<Box<str>>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// Who may use its load balancer.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer_source_ranges: Vec<Box<str>>,
    /// `Local` or `Cluster`, for traffic from outside.
    pub external_traffic_policy: Option<Box<str>>,
}

/// A port of a Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its protocol; nothing is TCP.
    pub protocol: Option<Box<str>>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub port: u16,
    /// What is spoken there.
    pub app_protocol: Option<Box<str>>,
}

/// What a Service got.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// From its load balancer.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer: LoadBalancer,
}

/// What a load balancer gave.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct LoadBalancer {
    /// Where it can be reached.
    #[serde(deserialize_with = "or_default")]
    pub ingress: Vec<Ingress>,
}

/// Where a load balancer can be reached.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Ingress {
    /// Its address.
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
    /// `VIP` (packets arrive with it) or `Proxy` (they do not).
    pub ip_mode: Option<Box<str>>,
}

/// An EndpointSlice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(deserialize_with = "or_default")]
    pub address_type: Box<str>,
    /// Its endpoints.
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<SliceEndpoint>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<SlicePort>,
}

/// An endpoint of a slice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    /// Its addresses; only the first is used.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<Box<str>>,
    /// Its state.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Conditions,
    /// Its node.
    pub node_name: Option<Box<str>>,
}

/// The state of an endpoint.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Conditions {
    /// Whether new connections should go there.
    pub ready: Option<bool>,
    /// Whether it answers.
    pub serving: Option<bool>,
    /// Whether it is about to go.
    pub terminating: Option<bool>,
}

/// A port of a slice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SlicePort {
    /// The name of the Service's port.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its protocol; nothing is TCP.
    pub protocol: Option<Box<str>>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub port: u16,
}

/// A Secret.
#[derive(Deserialize, Clone, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Secret {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it is for.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// What it holds, in base64.
    #[serde(deserialize_with = "or_default")]
    pub data: BTreeMap<Box<str>, Box<str>>,
}

/// The node.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Node {
    /// What it says.
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// What a node says.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeStatus {
    /// Where it can be reached.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<NodeAddress>,
}

/// Where a node can be reached.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// The address.
    #[serde(deserialize_with = "or_default")]
    pub address: Box<str>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What it holds is nobody's business.
        write!(f, "Secret({}/{})", self.metadata.namespace, self.metadata.name)
    }
}

impl Service {
    /// Whether its load balancer is ours to be.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        &*self.spec.kind == "LoadBalancer"
            && self.spec.load_balancer_class.as_deref().is_none_or(|class| OUR_CLASSES.contains(&class))
            && !self.metadata.labels.contains_key(FOREIGN_PROXY)
    }

    /// The addresses of its load balancer that packets arrive with.
    pub fn vips(&self) -> impl Iterator<Item = &Ingress> {
        let fits =
            |ingress: &&Ingress| !ingress.ip.is_empty() && ingress.ip_mode.as_deref().is_none_or(|mode| mode == "VIP");
        self.status.load_balancer.ingress.iter().filter(fits)
    }

    /// An annotation, without the spaces around it; none when it is empty.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
    }
}

impl ServicePort {
    /// Whether it is a port of TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
    }
}

/// Reads an object; one that cannot be read is said and left out.
pub(crate) fn read<T: DeserializeOwned>(object: &Object) -> Option<T> {
    serde_json::from_slice(&object.value)
        .map_err(|error| tracing::warn!(object = object.key(), %error, "an object cannot be read; it is left out"))
        .ok()
}

/// A member that may be null, which means the same as absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A number; one beyond what it can be is 0.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    Ok(Option::<i64>::deserialize(from)?.and_then(|number| u16::try_from(number).ok()).unwrap_or_default())
}
