//! GRPCRoutes.

use serde::Deserialize;

use super::super::ObjectMeta;
use super::super::lenient::or_default;
use super::{BackendRef, Filter, MatchKind, NamedMatch, ParentRef, SessionPersistence};

/// A GRPCRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct GrpcRoute {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: GrpcRouteSpec,
}

/// The spec of a GRPCRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteSpec {
    /// Gateways, ListenerSets or Services that it is attached to.
    #[serde(deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentRef>,
    /// Hosts; all when empty.
    #[serde(deserialize_with = "or_default")]
    pub hostnames: Vec<Box<str>>,
    /// Its rules.
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<GrpcRouteRule>,
}

/// A rule of a GRPCRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct GrpcRouteRule {
    /// Its name.
    pub name: Option<Box<str>>,
    /// Conditions on calls, of which one must hold; any call when empty.
    #[serde(deserialize_with = "or_default")]
    pub matches: Vec<GrpcRouteMatch>,
    /// Filters.
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
    /// Backends.
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendRef>,
    /// Session persistence (experimental channel).
    pub session_persistence: Option<SessionPersistence>,
}

/// A condition on calls; all of its parts must hold.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct GrpcRouteMatch {
    /// Condition on service and method.
    pub method: Option<GrpcMethodMatch>,
    /// Conditions on headers.
    #[serde(deserialize_with = "or_default")]
    pub headers: Vec<NamedMatch>,
}

/// A condition on service and method.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct GrpcMethodMatch {
    /// How both are compared.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: MatchKind,
    /// The service; any when absent.
    pub service: Option<Box<str>>,
    /// The method; any when absent.
    pub method: Option<Box<str>>,
}
