//! EndpointSlices. Endpoints and ports are also written in this form, by the controllers that make slices.

use serde::{Deserialize, Serialize};

use super::lenient::{or_default, protocol, tcp};
use super::{ObjectMeta, Protocol, labels};
use crate::ip::Family;

/// An EndpointSlice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(deserialize_with = "or_default")]
    pub address_type: Box<str>,
    /// Its endpoints.
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    /// The ports of all its endpoints.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

/// An endpoint.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses; proxies use the first.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<Box<str>>,
    /// Its state.
    #[serde(deserialize_with = "or_default")]
    pub conditions: EndpointConditions,
    /// Its host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Box<str>>,
    /// The object behind it, mostly a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<Box<str>>,
    /// The zone it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Box<str>>,
    /// The clients that should prefer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Hints>,
}

/// The state of an endpoint.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct EndpointConditions {
    /// Whether new connections should go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether it serves, also while it terminates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Whether it terminates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// A reference to an object.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(default)]
pub struct TargetRef {
    /// `Pod`.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its namespace.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "or_default")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its uid.
    #[serde(skip_serializing_if = "str::is_empty", deserialize_with = "or_default")]
    pub uid: Box<str>,
}

/// The clients that should prefer an endpoint.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// Clients in these zones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub for_zones: Vec<Named>,
    /// Clients on these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub for_nodes: Vec<Named>,
}

/// A name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Named {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
}

/// A port of all endpoints of a slice.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// The name of the Service's port, empty if that has none. Servers set it always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// Its protocol; none for an unknown one.
    #[serde(default = "tcp", deserialize_with = "protocol", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Its number, as it is written; none means every port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<Box<str>>,
}

impl EndpointSlice {
    /// Its family; none for names.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        Family::named(&self.address_type)
    }

    /// The name of its Service.
    #[must_use]
    pub fn service_name(&self) -> Option<&str> {
        self.metadata.labels.get(labels::SERVICE_NAME).filter(|name| !name.is_empty())
    }

    /// `namespace/name` of its Service.
    #[must_use]
    pub fn service(&self) -> Option<String> {
        self.service_name().map(|name| format!("{}/{name}", self.metadata.namespace))
    }

    /// Whether its Service has no cluster IP.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.metadata.labels.contains_key(labels::HEADLESS)
    }
}

impl EndpointConditions {
    /// Whether new connections should go there; absent means that they should.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Whether it serves, also while it terminates; absent means that it does.
    #[must_use]
    pub fn is_serving(self) -> bool {
        self.serving.unwrap_or(true)
    }

    /// Whether it terminates.
    #[must_use]
    pub fn is_terminating(self) -> bool {
        self.terminating.unwrap_or(false)
    }
}

impl EndpointPort {
    /// Its number, if connections can be made to it.
    #[must_use]
    pub fn number(&self) -> Option<u16> {
        self.port.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
    }
}
