//! A Service and an EndpointSlice as a diagnosis reads them: [`api::view`] and the members that only a diagnosis needs.
//!
//! In: JSON, as bytes or as a value. Out: typed forms. Lenient: null is the same as absent, and an object that cannot be read
//! is an empty one.

use std::net::IpAddr;
use std::ops::Deref;

use api::ip::{Family, parse_lenient};
use api::view::endpoint_slice::{EndpointConditions, EndpointPort};
use api::view::lenient::or_default;
use api::view::service::ServicePort;
use api::view::{self, ObjectMeta, Protocol};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses bytes; invalid input is read as empty.
pub(crate) fn read<T: DeserializeOwned + Default>(bytes: &[u8]) -> T {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// Parses an object of a list; invalid input is read as empty.
pub(crate) fn of<T: DeserializeOwned + Default>(object: &Value) -> T {
    T::deserialize(object).unwrap_or_default()
}

/// A Service.
#[derive(Clone, Debug, Default)]
pub struct Service {
    view: view::Service,
    more: More,
}

/// What a diagnosis reads of a Service and no other component does.
#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct More {
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    ip_family_policy: Box<str>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    load_balancer: LoadBalancer,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Value>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct LoadBalancer {
    #[serde(deserialize_with = "or_default")]
    ingress: Vec<Ingress>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct Ingress {
    #[serde(deserialize_with = "or_default")]
    ip: Box<str>,
    #[serde(deserialize_with = "or_default")]
    hostname: Box<str>,
}

impl Deref for Service {
    type Target = view::Service;

    fn deref(&self) -> &view::Service {
        &self.view
    }
}

impl Service {
    /// Parses the bytes of a Service, which do not contain its name.
    #[must_use]
    pub fn read(bytes: &[u8], namespace: &str, name: &str) -> Self {
        let mut view: view::Service = read(bytes);
        (view.metadata.namespace, view.metadata.name) = (namespace.into(), name.into());
        Self { view, more: read(bytes) }
    }

    /// Reads a Service of a list.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self { view: of(object), more: of(object) }
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
        &self.more.status.conditions
    }

    /// The labels that it selects Pods by, if it selects any.
    #[must_use]
    pub fn selector(&self) -> Option<&crate::Selector> {
        let selector = self.spec.selector.iter().as_slice();
        Some(selector).filter(|selector| !selector.is_empty() && !self.is_external_name())
    }

    /// Its ports.
    #[must_use]
    pub fn ports(&self) -> &[ServicePort] {
        &self.spec.ports
    }

    /// Whether every one of its families needs endpoints.
    pub(crate) fn needs_every_family(&self) -> bool {
        matches!(&*self.more.spec.ip_family_policy, "SingleStack" | "RequireDualStack")
    }

    /// The families of its endpoints.
    pub(crate) fn families(&self) -> Vec<Family> {
        let named: Vec<Family> = self.spec.ip_families.iter().filter_map(|name| Family::named(name)).collect();
        if !named.is_empty() {
            return named;
        }
        // Objects of older servers have no families: those with an address have its family, the others may have both.
        match parse_lenient(&self.spec.cluster_ip) {
            Some(address) => vec![Family::of(address)],
            None => vec![Family::V4, Family::V6],
        }
    }

    /// The addresses and host names of its load balancer.
    pub(crate) fn ingress(&self) -> Vec<&str> {
        let all = self.more.status.load_balancer.ingress.iter();
        all.map(|one| if one.ip.is_empty() { &*one.hostname } else { &*one.ip }).collect()
    }
}

/// The name of a Service port, or else its number.
pub(crate) fn port_name(port: &ServicePort) -> String {
    if port.name.is_empty() { port.port.to_string() } else { port.name.to_string() }
}

/// The name of a protocol.
pub(crate) fn protocol_name(protocol: Option<Protocol>) -> &'static str {
    protocol.map_or("an unknown protocol", Protocol::as_str)
}

/// An EndpointSlice: less of it than [`view::EndpointSlice`], since controllers read one after every change of it.
#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    #[serde(deserialize_with = "or_default")]
    metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    address_type: Box<str>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) ports: Vec<EndpointPort>,
}

#[derive(serde::Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(crate) struct Endpoint {
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) conditions: EndpointConditions,
}

impl Endpoint {
    /// The address that proxies use.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.addresses.first().and_then(|text| parse_lenient(text))
    }
}

impl Slice {
    /// Parses the bytes of a slice, which do not contain its name.
    #[must_use]
    pub fn read(bytes: &[u8], name: &str) -> Self {
        let mut slice: Self = read(bytes);
        slice.metadata.name = name.into();
        slice
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether it is being deleted.
    pub(crate) const fn is_deleting(&self) -> bool {
        self.metadata.is_deleting()
    }

    /// The family of its addresses; none for names. Slices without `addressType` have the family of their first address.
    pub(crate) fn family(&self) -> Option<Family> {
        match &*self.address_type {
            "" => self.endpoints.first().and_then(Endpoint::ip).map(Family::of),
            named => Family::named(named),
        }
    }
}
