//! The members of a Service and an EndpointSlice that a diagnosis needs.
//!
//! In: JSON, as bytes or as a value. Out: typed forms. Lenient: null is the same as absent, and an object that cannot be read
//! is an empty one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::ip::{Family, parse_lenient};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;

/// A member that may be null.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads bytes; what does not fit reads as empty.
pub(crate) fn read<T: DeserializeOwned + Default>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// What every object says of itself.
#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "or_default")]
    labels: BTreeMap<Box<str>, Box<str>>,
    deletion_timestamp: Option<Box<str>>,
}

/// A Service.
#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct Service {
    #[serde(deserialize_with = "or_default")]
    pub(crate) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub(crate) spec: Spec,
    #[serde(deserialize_with = "or_default")]
    pub(crate) status: Status,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) external_name: String,
    #[serde(rename = "clusterIP", deserialize_with = "or_default")]
    cluster_ip: Box<str>,
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    cluster_ips: Vec<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    ip_families: Vec<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ip_family_policy: String,
    #[serde(deserialize_with = "labels")]
    selector: Box<crate::Selector>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ports: Vec<Port>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) publish_not_ready_addresses: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) load_balancer_class: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) load_balancer_source_ranges: Vec<String>,
}

/// A port of a Service.
#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, if it has one.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(deserialize_with = "protocol")]
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// Its number on every node, or 0.
    #[serde(deserialize_with = "or_default")]
    pub(crate) node_port: u16,
    target_port: Option<Target>,
}

/// The name of a protocol; TCP where none is named.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Protocol(Box<str>);

impl Default for Protocol {
    fn default() -> Self {
        Self("TCP".into())
    }
}

impl std::ops::Deref for Protocol {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

pub(crate) fn protocol<'de, D: Deserializer<'de>>(from: D) -> Result<Protocol, D::Error> {
    let name: Option<Box<str>> = Option::deserialize(from)?;
    Ok(name.filter(|name| !name.is_empty()).map(Protocol).unwrap_or_default())
}

/// The `targetPort` of a Service port.
#[derive(serde::Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum Target {
    /// A number.
    Number(u16),
    /// The name of a container port.
    Name(Box<str>),
}

impl Port {
    /// How people call it: by its name, or else by its number.
    pub(crate) fn called(&self) -> String {
        if self.name.is_empty() { self.port.to_string() } else { self.name.to_string() }
    }

    /// Where it leads in a Pod.
    #[must_use]
    pub fn target(&self) -> Target {
        match &self.target_port {
            Some(Target::Number(number)) if *number > 0 => Target::Number(*number),
            Some(Target::Name(name)) if !name.is_empty() => Target::Name(name.clone()),
            _ => Target::Number(self.port),
        }
    }
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    #[serde(deserialize_with = "or_default")]
    pub(crate) load_balancer: LoadBalancer,
    #[serde(deserialize_with = "or_default")]
    pub(crate) conditions: Vec<Value>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(crate) struct LoadBalancer {
    #[serde(deserialize_with = "or_default")]
    pub(crate) ingress: Vec<Ingress>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(crate) struct Ingress {
    #[serde(deserialize_with = "or_default")]
    pub(crate) ip: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) hostname: String,
}

impl Service {
    /// Reads the bytes of a Service, which does not say its own name there.
    #[must_use]
    pub fn read(bytes: &[u8], namespace: &str, name: &str) -> Self {
        let mut service: Self = read(bytes);
        service.metadata.namespace = namespace.to_owned();
        service.metadata.name = name.to_owned();
        service
    }

    /// Reads a Service of a list.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// The conditions in its status.
    #[must_use]
    pub fn conditions(&self) -> &[Value] {
        &self.status.conditions
    }

    /// Whether it is an alias of a name.
    #[must_use]
    pub fn is_external_name(&self) -> bool {
        self.spec.kind == "ExternalName"
    }

    /// The labels that it selects Pods by, if it selects any.
    #[must_use]
    pub fn selector(&self) -> Option<&crate::Selector> {
        Some(&*self.spec.selector).filter(|selector| !selector.is_empty() && !self.is_external_name())
    }

    /// Its ports.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.spec.ports
    }

    /// Its cluster addresses as they are written; `None` for a headless Service.
    pub(crate) fn cluster_ips(&self) -> &[Box<str>] {
        let Spec { cluster_ip, cluster_ips, .. } = &self.spec;
        if cluster_ips.is_empty() && !cluster_ip.is_empty() { std::slice::from_ref(cluster_ip) } else { cluster_ips }
    }

    /// The families of its endpoints.
    pub(crate) fn families(&self) -> Vec<Family> {
        let named: Vec<Family> = self.spec.ip_families.iter().filter_map(|name| Family::named(name)).collect();
        if !named.is_empty() {
            return named;
        }
        // Objects of another age have no families: those with an address have its family, the others may have both.
        match parse_lenient(&self.spec.cluster_ip) {
            Some(address) => vec![Family::of(address)],
            None => vec![Family::V4, Family::V6],
        }
    }

    /// The addresses of its load balancer.
    pub(crate) fn balancer_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.status.load_balancer.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok())
    }
}

/// A map of strings as sorted pairs.
pub(crate) fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<Box<crate::Selector>, D::Error> {
    let map: Option<BTreeMap<Box<str>, Box<str>>> = Option::deserialize(from)?;
    Ok(map.unwrap_or_default().into_iter().collect())
}

/// An EndpointSlice.
#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    address_type: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ports: Vec<SlicePort>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(crate) struct Endpoint {
    #[serde(deserialize_with = "or_default")]
    pub(crate) addresses: Vec<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    conditions: EndpointConditions,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct EndpointConditions {
    ready: Option<bool>,
}

#[derive(serde::Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(default)]
pub(crate) struct SlicePort {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: Box<str>,
    #[serde(deserialize_with = "protocol")]
    pub(crate) protocol: Protocol,
}

impl Endpoint {
    /// An endpoint that says nothing of itself is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.conditions.ready != Some(false)
    }

    /// The address that proxies use.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.addresses.first().and_then(|text| parse_lenient(text))
    }
}

impl Slice {
    /// Reads the bytes of a slice, which does not say its own name there.
    #[must_use]
    pub fn read(bytes: &[u8], name: &str) -> Self {
        let mut slice: Self = read(bytes);
        name.clone_into(&mut slice.metadata.name);
        slice
    }

    /// Reads a slice of a list.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Its namespace, where it says it.
    pub(crate) fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// The Service that it belongs to.
    pub(crate) fn service(&self) -> Option<&str> {
        self.metadata.labels.get(SERVICE_NAME).map(|name| &**name)
    }

    /// Whether it is being deleted.
    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The family of its addresses; none for names. Slices that do not say have that of their first address.
    pub(crate) fn family(&self) -> Option<Family> {
        match &*self.address_type {
            "" => self.endpoints.first().and_then(Endpoint::ip).map(Family::of),
            named => Family::named(named),
        }
    }
}

/// The label of a slice with the name of its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
