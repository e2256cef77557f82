//! HTTPRoutes.

use serde::Deserialize;

use super::super::ObjectMeta;
use super::super::lenient::or_default;
use super::{BackendRef, Filter, ParentRef};

/// An HTTPRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct HttpRoute {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: HttpRouteSpec,
}

/// The spec of an HTTPRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteSpec {
    /// Gateways, ListenerSets or Services that it is attached to.
    #[serde(deserialize_with = "or_default")]
    pub parent_refs: Vec<ParentRef>,
    /// Hosts; all when empty.
    #[serde(deserialize_with = "or_default")]
    pub hostnames: Vec<Box<str>>,
    /// Its rules.
    #[serde(deserialize_with = "or_default")]
    pub rules: Vec<HttpRouteRule>,
}

/// A rule of an HTTPRoute.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteRule {
    /// Its name.
    pub name: Option<Box<str>>,
    /// Conditions on requests, of which one must hold; any request when empty.
    #[serde(deserialize_with = "or_default")]
    pub matches: Vec<HttpRouteMatch>,
    /// Filters.
    #[serde(deserialize_with = "or_default")]
    pub filters: Vec<Filter>,
    /// Backends.
    #[serde(deserialize_with = "or_default")]
    pub backend_refs: Vec<BackendRef>,
    /// Timeouts.
    #[serde(deserialize_with = "or_default")]
    pub timeouts: Timeouts,
    /// Retries.
    pub retry: Option<Retry>,
    /// Session persistence (experimental channel).
    pub session_persistence: Option<SessionPersistence>,
}

/// A condition on requests; all of its parts must hold.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteMatch {
    /// Condition on the path; absent is the prefix `/`.
    pub path: Option<PathMatch>,
    /// Conditions on headers.
    #[serde(deserialize_with = "or_default")]
    pub headers: Vec<NamedMatch>,
    /// Conditions on query parameters.
    #[serde(deserialize_with = "or_default")]
    pub query_params: Vec<NamedMatch>,
    /// Method.
    pub method: Option<Box<str>>,
}

/// A condition on the path.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct PathMatch {
    /// How it is compared.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: PathMatchKind,
    /// The path, prefix or regular expression; absent is `/`.
    pub value: Option<Box<str>>,
}

/// How a path is compared.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PathMatchKind {
    /// The whole path.
    Exact,
    /// A prefix, by path elements.
    #[default]
    PathPrefix,
    /// A regular expression for the whole path.
    RegularExpression,
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

/// A condition on a header or a query parameter.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NamedMatch {
    /// How it is compared.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: MatchKind,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// The value or regular expression.
    #[serde(deserialize_with = "or_default")]
    pub value: Box<str>,
}

/// How a value is compared.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MatchKind {
    /// The whole value.
    #[default]
    Exact,
    /// A regular expression for the whole value.
    RegularExpression,
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

/// Timeouts, as durations of GEP-2257; `0s` is no timeout.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// From the first byte of the request to the last one of the response.
    pub request: Option<Box<str>>,
    /// The same for one attempt.
    pub backend_request: Option<Box<str>>,
}

/// Retries.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Retry {
    /// Status codes that lead to another attempt.
    #[serde(deserialize_with = "or_default")]
    pub codes: Vec<u16>,
    /// Attempts after the first; 1 unless given.
    pub attempts: Option<u32>,
    /// The pause before the first of them, as a duration.
    pub backoff: Option<Box<str>>,
}

/// Session persistence (experimental channel): the fields of version 1.7, and those of 1.6 that it replaced.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPersistence {
    /// `Cookie` or `Header`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: SessionPersistenceKind,
    /// How long a session lasts, as a duration.
    pub absolute_timeout: Option<Box<str>>,
    /// The cookie.
    pub cookie: Option<SessionCookie>,
    /// The header.
    pub header: Option<SessionHeader>,
    /// Name of the cookie or header (1.6).
    pub session_name: Option<Box<str>>,
    /// How long a session lasts without requests, as a duration (1.6).
    pub idle_timeout: Option<Box<str>>,
    /// Settings of the cookie (1.6).
    pub cookie_config: Option<SessionCookie>,
}

/// What identifies a session.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionPersistenceKind {
    /// A cookie.
    #[default]
    Cookie,
    /// A header.
    Header,
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

/// The header of a session.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SessionHeader {
    /// Its name.
    pub name: Box<str>,
}

/// Settings of a session cookie.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionCookie {
    /// Its name; one is generated if it is not given.
    pub name: Option<Box<str>>,
    /// Its path; `/` if it is not given.
    pub path: Option<Box<str>>,
    /// `Session` (the default) or `Permanent`.
    pub lifetime_type: Option<Box<str>>,
}
