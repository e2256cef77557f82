//! TLSRoutes, TCPRoutes and UDPRoutes: they have one shape; only TLSRoutes have hostnames.

use serde::Deserialize;

use super::super::ObjectMeta;
use super::super::lenient::or_default;
use super::{BackendRef, ParentRef};

/// A TLSRoute, a TCPRoute or a UDPRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct StreamRoute {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: StreamRouteSpec,
}

/// The spec of a TLSRoute, a TCPRoute or a UDPRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRouteSpec {
    /// Gateways, ListenerSets or Services that it is attached to.
    #[serde(deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentRef>,
    /// Server names (SNI) of a TLSRoute.
    #[serde(deserialize_with = "or_default")]
    pub hostnames: Vec<Box<str>>,
    /// Its rules; one.
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<StreamRouteRule>,
}

/// A rule: connections or flows are divided among its backends.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamRouteRule {
    /// Its name.
    pub name: Option<Box<str>>,
    /// Backends.
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendRef>,
}
