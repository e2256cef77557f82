//! TrafficPolicies: what holds for the traffic of Gateways, routes and Services beyond the Gateway API.

use serde::Deserialize;

use super::gateway_api::{Material, PolicyTarget};
use super::lenient::{number, or_default};
use super::{ObjectMeta, Secret};

/// A TrafficPolicy.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct TrafficPolicy {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: TrafficPolicySpec,
}

/// The spec of a TrafficPolicy. A part that is absent says nothing.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicySpec {
    /// What it is attached to, in its own namespace.
    #[serde(deserialize_with = "or_default")]
    pub target_refs: Vec<PolicyTarget>,
    /// The bodies of requests.
    pub request_body: Option<RequestBody>,
    /// How long gateways wait for backends.
    pub timeouts: Option<TrafficTimeouts>,
    /// Client addresses.
    pub source_ranges: Option<SourceRanges>,
    /// Credentials.
    pub authentication: Option<Authentication>,
    /// Limits of the number of requests.
    #[serde(deserialize_with = "or_default")]
    pub rate_limits: Vec<TrafficRateLimit>,
    /// The limit of concurrent requests of a client.
    pub max_concurrent_requests: Option<ConcurrencyLimit>,
    /// Whether requests without TLS are redirected.
    #[serde(rename = "requireHTTPS", deserialize_with = "or_default")]
    pub require_https: bool,
    /// How an endpoint is selected.
    pub load_balancing: Option<LoadBalancing>,
    /// When endpoints that fail are left out.
    pub outlier_detection: Option<OutlierDetection>,
    /// How new endpoints start.
    pub slow_start: Option<SlowStart>,
    /// Sticky sessions.
    pub session: Option<Session>,
}

/// The bodies of requests.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestBody {
    /// The longest, a quantity.
    #[serde(deserialize_with = "or_default")]
    pub max_size: Box<str>,
}

/// How long gateways wait for backends: durations of the Gateway API.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct TrafficTimeouts {
    /// Until a connection is established.
    #[serde(deserialize_with = "or_default")]
    pub connect: Box<str>,
    /// The longest silence of a backend.
    #[serde(deserialize_with = "or_default")]
    pub read: Box<str>,
    /// The longest time in which a backend reads nothing.
    #[serde(deserialize_with = "or_default")]
    pub send: Box<str>,
}

/// Client addresses: CIDRs.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SourceRanges {
    /// Those that are accepted; all when empty.
    #[serde(deserialize_with = "or_default")]
    pub allow: Vec<Box<str>>,
    /// Those that are not accepted.
    #[serde(deserialize_with = "or_default")]
    pub deny: Vec<Box<str>>,
}

/// Credentials.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Authentication {
    /// User names and passwords.
    pub basic: Option<BasicAuthentication>,
    /// Another server that decides.
    pub external: Option<ExternalAuthentication>,
}

/// User names and passwords.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct BasicAuthentication {
    /// The Secret with lines `user:hash` under [`PASSWORDS`].
    #[serde(deserialize_with = "or_default")]
    pub secret_name: Box<str>,
    /// The realm.
    #[serde(deserialize_with = "or_default")]
    pub realm: Box<str>,
}

/// The key of passwords in a Secret.
pub const PASSWORDS: &str = "auth";

impl Secret {
    /// Whether it has user names and passwords: type `Opaque` with the key [`PASSWORDS`].
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        &*self.kind == "Opaque" && self.data.get(PASSWORDS).is_some_and(|text| !text.is_empty())
    }
}

/// Another server that authorises each request.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalAuthentication {
    /// Where it is.
    #[serde(deserialize_with = "or_default")]
    pub url: Box<str>,
    /// The method of requests to it.
    #[serde(deserialize_with = "or_default")]
    pub method: Box<str>,
    /// Where clients without credentials are redirected.
    #[serde(rename = "signInURL", deserialize_with = "or_default")]
    pub sign_in_url: Box<str>,
    /// The parameter of that URL with the page to return to.
    #[serde(deserialize_with = "or_default")]
    pub sign_in_redirect_parameter: Box<str>,
    /// The value of `X-Auth-Request-Redirect`.
    #[serde(deserialize_with = "or_default")]
    pub request_redirect: Box<str>,
    /// Headers of its response that backends see.
    #[serde(deserialize_with = "or_default")]
    pub response_headers: Vec<Box<str>>,
    /// Whether its cookies reach the client whatever the backend answers.
    #[serde(deserialize_with = "or_default")]
    pub always_set_cookie: bool,
}

/// A limit of the number of requests.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct TrafficRateLimit {
    /// Requests in each period.
    #[serde(deserialize_with = "number")]
    pub requests: u32,
    /// `Second`, `Minute` or `Hour`.
    #[serde(deserialize_with = "or_default")]
    pub per: Box<str>,
    /// Requests beyond the rate; absent is as many as `requests`.
    pub burst: Option<i64>,
    /// Which requests are counted together.
    #[serde(deserialize_with = "or_default")]
    pub key: TrafficRateLimitKey,
    /// Client addresses without limit: CIDRs.
    #[serde(deserialize_with = "or_default")]
    pub exempt: Vec<Box<str>>,
}

/// Which requests are counted together.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct TrafficRateLimitKey {
    /// `Client` or `Header`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// The name of the header.
    #[serde(deserialize_with = "or_default")]
    pub header: Box<str>,
}

/// The limit of concurrent requests of a client.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ConcurrencyLimit {
    /// The limit.
    #[serde(deserialize_with = "number")]
    pub limit: u32,
    /// Client addresses without limit: CIDRs.
    #[serde(deserialize_with = "or_default")]
    pub exempt: Vec<Box<str>>,
}

/// How an endpoint is selected.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancing {
    /// `LeastRequest`, `RoundRobin`, `Random` or `ConsistentHash`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// What the endpoint depends on.
    pub consistent_hash: Option<ConsistentHash>,
}

/// What the endpoint depends on.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ConsistentHash {
    /// `SourceIP`, `Header`, `Cookie`, `QueryParam` or `Path`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// The name of the header, cookie or parameter.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
}

/// When endpoints that fail are left out.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct OutlierDetection {
    /// Failures in a row.
    #[serde(deserialize_with = "number")]
    pub consecutive_errors: u32,
    /// How long, the first time.
    #[serde(deserialize_with = "or_default")]
    pub base_ejection_time: Box<str>,
    /// How long at most.
    #[serde(deserialize_with = "or_default")]
    pub max_ejection_time: Box<str>,
    /// How many of the endpoints at most, in percent.
    #[serde(deserialize_with = "number")]
    pub max_ejection_percent: u8,
}

/// How new endpoints start.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SlowStart {
    /// How long they get fewer requests.
    #[serde(deserialize_with = "or_default")]
    pub window: Box<str>,
}

/// Sticky sessions.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Session {
    /// The cookie that the gateway sets.
    #[serde(deserialize_with = "or_default")]
    pub cookie: SessionCookie,
    /// Whether a session moves to another endpoint when its own fails; absent is yes.
    pub change_on_failure: Option<bool>,
}

/// The cookie of sticky sessions.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionCookie {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its path.
    #[serde(deserialize_with = "or_default")]
    pub path: Box<str>,
    /// Its domain.
    #[serde(deserialize_with = "or_default")]
    pub domain: Box<str>,
    /// How long it lasts.
    #[serde(deserialize_with = "or_default")]
    pub max_age: Box<str>,
    /// Whether it is sent over TLS only; absent depends on the connection.
    pub secure: Option<bool>,
    /// `None`, `Lax` or `Strict`.
    #[serde(deserialize_with = "or_default")]
    pub same_site: Box<str>,
}

impl TrafficPolicy {
    /// The Secret with passwords.
    #[must_use]
    pub fn materials(&self) -> Vec<Material> {
        let basic = self.spec.authentication.as_ref().and_then(|authentication| authentication.basic.as_ref());
        basic.map(|basic| Material::Secret(self.secret_key(basic))).into_iter().collect()
    }

    /// `namespace/name` of a Secret with passwords.
    #[must_use]
    pub fn secret_key(&self, basic: &BasicAuthentication) -> Box<str> {
        format!("{}/{}", self.metadata.namespace, basic.secret_name).into()
    }
}
