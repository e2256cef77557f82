//! Cross-origin resource sharing (the CORS protocol of the Fetch standard): responses to preflight requests, and headers
//! of other responses.
//!
//! Only allowed origins get headers. Headers of CORS that a backend sends are removed: the policy of the route holds.

use api::view::gateway_api::Cors;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::{Method, StatusCode};

use super::BadValue;
use super::headers::value;

/// What a backend may have sent.
const OF_BACKENDS: [HeaderName; 6] = [
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

/// Allowed origins of one scheme and port.
#[derive(Debug)]
struct Origin {
    https: bool,
    host: Host,
    port: u16,
}

#[derive(Debug)]
enum Host {
    Any,
    /// What follows `*`, with its dot.
    Below(Box<str>),
    Exact(Box<str>),
}

/// A list that may be `*`.
#[derive(Debug)]
enum Names {
    None,
    All,
    These(HeaderValue),
}

/// A policy for cross-origin requests.
#[derive(Debug)]
pub struct CorsPolicy {
    any_origin: bool,
    origins: Box<[Origin]>,
    credentials: bool,
    methods: Names,
    headers: Names,
    expose: Names,
    max_age: HeaderValue,
}

impl CorsPolicy {
    /// Status of the response to a preflight request.
    pub const PREFLIGHT: StatusCode = StatusCode::NO_CONTENT;

    pub(super) fn new(given: &Cors) -> Result<Self, BadValue> {
        let any_origin = given.allow_origins.iter().any(|origin| &**origin == "*");
        let origins = given.allow_origins.iter().filter(|origin| &***origin != "*").map(|origin| {
            let bad = || BadValue {
                field: "cors.allowOrigins",
                value: origin.clone(),
                reason: "an origin is `*` or SCHEME://HOST[:PORT] with the scheme http or https",
            };
            Origin::new(origin).ok_or_else(bad)
        });
        Ok(Self {
            any_origin,
            origins: origins.collect::<Result<_, _>>()?,
            credentials: given.allow_credentials == Some(true),
            methods: Names::new("cors.allowMethods", &given.allow_methods)?,
            headers: Names::new("cors.allowHeaders", &given.allow_headers)?,
            expose: Names::new("cors.exposeHeaders", &given.expose_headers)?,
            max_age: HeaderValue::from(given.max_age.unwrap_or(5)),
        })
    }

    /// The headers of the response to a preflight request; none for any other request, which goes to the backend.
    #[must_use]
    pub fn preflight(&self, method: &Method, request: &HeaderMap) -> Option<HeaderMap> {
        let origin = request.get(ORIGIN).filter(|_| method == Method::OPTIONS)?;
        let asked_method = request.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let mut response = HeaderMap::with_capacity(8);
        if self.share(Some(origin), &mut response) {
            let asked_headers = request.get(ACCESS_CONTROL_REQUEST_HEADERS);
            let mut set = |name, value: Option<HeaderValue>| value.map(|value| response.insert(name, value));
            set(ACCESS_CONTROL_ALLOW_METHODS, self.methods.value(self.credentials, || Some(asked_method.clone())));
            set(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.value(self.credentials, || asked_headers.cloned()));
            set(ACCESS_CONTROL_EXPOSE_HEADERS, self.expose.value(self.credentials, || None));
            set(ACCESS_CONTROL_MAX_AGE, Some(self.max_age.clone()));
        }
        Some(response)
    }

    /// Sets the headers of a response that is not to a preflight request; `origin` is the `Origin` of the request.
    pub fn decorate(&self, origin: Option<&HeaderValue>, response: &mut HeaderMap) {
        for name in &OF_BACKENDS {
            response.remove(name);
        }
        if self.share(origin, response) {
            // With credentials `*` is the name of a header, so the headers that are there are named.
            let expose = self.expose.value(self.credentials, || names_of(response));
            expose.map(|expose| response.insert(ACCESS_CONTROL_EXPOSE_HEADERS, expose));
        }
    }

    /// Sets the headers that say who may read the response; false if the origin may not.
    fn share(&self, origin: Option<&HeaderValue>, response: &mut HeaderMap) -> bool {
        let constant = self.any_origin && !self.credentials;
        if !constant {
            vary_by_origin(response);
        }
        let Some(origin) = origin.filter(|origin| self.allows(origin)) else { return false };
        let shared_with = if constant { HeaderValue::from_static("*") } else { origin.clone() };
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, shared_with);
        if self.credentials {
            response.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        true
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        if self.any_origin {
            return true;
        }
        let sent = origin.to_str().ok().and_then(parse);
        sent.is_some_and(|(https, host, port)| self.origins.iter().any(|origin| origin.covers(https, host, port)))
    }
}

impl Names {
    fn new(field: &'static str, given: &[Box<str>]) -> Result<Self, BadValue> {
        if given.iter().any(|name| &**name == "*") {
            return Ok(Self::All);
        }
        if given.is_empty() {
            return Ok(Self::None);
        }
        Ok(Self::These(value(field, &given.join(", "))?))
    }

    /// The value to send: `*` is not understood in responses that allow credentials.
    fn value(&self, credentials: bool, asked: impl FnOnce() -> Option<HeaderValue>) -> Option<HeaderValue> {
        match self {
            Self::None => None,
            Self::All if credentials => asked(),
            Self::All => Some(HeaderValue::from_static("*")),
            Self::These(names) => Some(names.clone()),
        }
    }
}

/// The names of the headers of a response, but those that scripts never see.
fn names_of(response: &HeaderMap) -> Option<HeaderValue> {
    let hidden = |name: &HeaderName| {
        OF_BACKENDS.contains(name)
            || matches!(name.as_str(), "set-cookie" | "vary" | "connection" | "transfer-encoding")
    };
    let names: Vec<&str> = response.keys().filter(|name| !hidden(name)).map(HeaderName::as_str).collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|value| !value.is_empty())
}

fn vary_by_origin(response: &mut HeaderMap) {
    let names = |line: &HeaderValue| {
        let mut names = line.to_str().unwrap_or_default().split(',').map(str::trim);
        names.any(|name| name == "*" || name.eq_ignore_ascii_case("origin"))
    };
    if !response.get_all(VARY).iter().any(names) {
        response.append(VARY, HeaderValue::from_static("Origin"));
    }
}

impl Origin {
    fn new(given: &str) -> Option<Self> {
        let (https, host, port) = parse(given)?;
        let host = match host.strip_prefix('*') {
            Some("") => Host::Any,
            Some(suffix) => Host::Below(suffix.into()),
            None => Host::Exact(host.into()),
        };
        Some(Self { https, host, port })
    }

    fn covers(&self, https: bool, host: &str, port: u16) -> bool {
        self.https == https
            && self.port == port
            && match &self.host {
                Host::Any => true,
                Host::Exact(expected) => expected.eq_ignore_ascii_case(host),
                Host::Below(suffix) => {
                    let at = host.len().checked_sub(suffix.len()).filter(|at| *at > 0);
                    at.and_then(|at| host.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
                }
            }
    }
}

/// Whether the scheme is https, the host, and the port, which has a default.
fn parse(origin: &str) -> Option<(bool, &str, u16)> {
    let (scheme, authority) = origin.split_once("://")?;
    let https = scheme.eq_ignore_ascii_case("https");
    if !https && !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    let end = authority.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match authority[end..].find(':') {
        Some(colon) => (&authority[..end + colon], authority[end + colon + 1..].parse().ok()?),
        None => (authority, if https { 443 } else { 80 }),
    };
    let fits = !host.is_empty() && !host.bytes().any(|byte| matches!(byte, b'/' | b'@' | b'?' | b'#' | b' ' | b','));
    fits.then_some((https, host, port))
}
