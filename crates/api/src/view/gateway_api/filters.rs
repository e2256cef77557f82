//! Filters: what a route does to requests and responses.

use serde::Deserialize;

use super::super::lenient::or_default;
use super::{BackendRef, ObjectRef};

/// A filter. Only the member that belongs to its kind is read.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    /// Its kind.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: FilterKind,
    /// Changes of request headers.
    pub request_header_modifier: Option<HeaderModifier>,
    /// Changes of response headers.
    pub response_header_modifier: Option<HeaderModifier>,
    /// A copy of requests for another backend.
    pub request_mirror: Option<RequestMirror>,
    /// A redirect as the response.
    pub request_redirect: Option<RequestRedirect>,
    /// Changes of the Host header and the path.
    pub url_rewrite: Option<UrlRewrite>,
    /// Cross-origin resource sharing.
    pub cors: Option<Cors>,
    /// Authorisation by another server (experimental channel).
    pub external_auth: Option<ExternalAuth>,
    /// A filter of another API.
    pub extension_ref: Option<ObjectRef>,
}

/// Kind of a filter.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FilterKind {
    /// Changes request headers.
    RequestHeaderModifier,
    /// Changes response headers.
    ResponseHeaderModifier,
    /// Sends a copy of requests to another backend.
    RequestMirror,
    /// Answers with a redirect.
    RequestRedirect,
    /// Changes the Host header and the path.
    #[serde(rename = "URLRewrite")]
    UrlRewrite,
    /// Cross-origin resource sharing.
    #[serde(rename = "CORS")]
    Cors,
    /// Authorisation by another server.
    ExternalAuth,
    /// A filter of another API.
    ExtensionRef,
    /// A kind of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Changes of headers: `set` replaces, `add` appends, `remove` deletes.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderModifier {
    /// Replaced headers.
    #[serde(deserialize_with = "or_default")]
    pub set: Vec<Header>,
    /// Appended headers.
    #[serde(deserialize_with = "or_default")]
    pub add: Vec<Header>,
    /// Names of removed headers.
    #[serde(deserialize_with = "or_default")]
    pub remove: Vec<Box<str>>,
}

/// A header.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Header {
    /// Its name, in any case.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its value.
    #[serde(deserialize_with = "or_default")]
    pub value: Box<str>,
}

/// A copy of requests for another backend; of all requests unless a share is given.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestMirror {
    /// The backend.
    #[serde(deserialize_with = "or_default")]
    pub backend_ref: BackendRef,
    /// The share, in percent.
    pub percent: Option<u32>,
    /// The share, as a fraction.
    pub fraction: Option<Fraction>,
}

/// A fraction.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Fraction {
    /// Its numerator.
    pub numerator: u32,
    /// Its denominator; absent is 100.
    pub denominator: Option<u32>,
}

/// A redirect.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestRedirect {
    /// Scheme; that of the request unless given.
    pub scheme: Option<Box<str>>,
    /// Host; that of the request unless given.
    pub hostname: Option<Box<str>>,
    /// Path; that of the request unless given.
    pub path: Option<PathModifier>,
    /// Port; see the specification for its default.
    pub port: Option<u16>,
    /// Status code; 302 unless given.
    pub status_code: Option<u16>,
}

/// A change of the path.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PathModifier {
    /// Its kind.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: PathModifierKind,
    /// The whole new path.
    pub replace_full_path: Option<Box<str>>,
    /// The new prefix, in place of the matched one.
    pub replace_prefix_match: Option<Box<str>>,
}

/// Kind of a change of the path.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PathModifierKind {
    /// Replaces the whole path.
    ReplaceFullPath,
    /// Replaces the prefix that matched.
    ReplacePrefixMatch,
    /// A kind of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Changes of the Host header and the path.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct UrlRewrite {
    /// The new Host header.
    pub hostname: Option<Box<str>>,
    /// The new path.
    pub path: Option<PathModifier>,
}

/// Cross-origin resource sharing.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Cors {
    /// Allowed origins; `*` for all, `*.` at the start of a host for any depth.
    #[serde(deserialize_with = "or_default")]
    pub allow_origins: Vec<Box<str>>,
    /// Whether credentials are allowed.
    pub allow_credentials: Option<bool>,
    /// Allowed methods.
    #[serde(deserialize_with = "or_default")]
    pub allow_methods: Vec<Box<str>>,
    /// Allowed request headers.
    #[serde(deserialize_with = "or_default")]
    pub allow_headers: Vec<Box<str>>,
    /// Response headers that scripts may read.
    #[serde(deserialize_with = "or_default")]
    pub expose_headers: Vec<Box<str>>,
    /// How long clients keep the result of a preflight request, in seconds; 5 unless given.
    pub max_age: Option<u32>,
}

/// Authorisation by another server (experimental channel).
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalAuth {
    /// `HTTP` or `GRPC`.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Box<str>,
    /// The server.
    #[serde(deserialize_with = "or_default")]
    pub backend_ref: BackendRef,
    /// Settings of the protocol HTTP.
    pub http: Option<ExternalAuthBackend>,
    /// Settings of the protocol GRPC.
    pub grpc: Option<ExternalAuthBackend>,
}

/// What is sent to the server that authorises, and what is taken from its response.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalAuthBackend {
    /// Prefix of the path.
    pub path: Option<Box<str>>,
    /// Request headers that are sent in addition to the usual ones.
    #[serde(rename = "allowedHeaders", deserialize_with = "or_default")]
    pub allowed_headers: Vec<Box<str>>,
    /// Response headers that are copied to the request; all unless given.
    #[serde(deserialize_with = "or_default")]
    pub allowed_response_headers: Vec<Box<str>>,
}
