//! Redirects: the `Location` for a request.

use api::view::gateway_api::RequestRedirect;
use http::{HeaderValue, StatusCode};

use super::BadValue;
use super::paths::PathChange;

/// A redirect.
#[derive(Debug)]
pub struct Redirect {
    scheme: Option<Box<str>>,
    hostname: Option<Box<str>>,
    path: Option<PathChange>,
    port: Option<u16>,
    status: StatusCode,
}

/// What a `Location` depends on.
#[derive(Clone, Copy, Debug)]
pub struct RedirectRequest<'a> {
    /// `http` or `https`: how the request arrived.
    pub scheme: &'a str,
    /// Its host, without port; IPv6 addresses in brackets.
    pub host: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Its query.
    pub query: Option<&'a str>,
    /// The port of the listener, or of the Service.
    pub listener_port: u16,
    /// The path prefix that matched.
    pub prefix: Option<&'a str>,
}

impl Redirect {
    pub(super) fn new(given: &RequestRedirect) -> Result<Self, BadValue> {
        let bad = |field, value: &str, reason| BadValue { field, value: value.into(), reason };
        let scheme = given.scheme.as_deref().map(str::to_ascii_lowercase);
        if let Some(scheme) = &scheme
            && !matches!(&**scheme, "http" | "https")
        {
            return Err(bad("requestRedirect.scheme", scheme, "use http or https"));
        }
        let code = given.status_code.unwrap_or(302);
        if !matches!(code, 301 | 302 | 303 | 307 | 308) {
            return Err(bad("requestRedirect.statusCode", &code.to_string(), "use 301, 302, 303, 307 or 308"));
        }
        Ok(Self {
            scheme: scheme.map(Into::into),
            hostname: given.hostname.as_deref().map(|host| hostname("requestRedirect.hostname", host)).transpose()?,
            path: given.path.as_ref().map(PathChange::new).transpose()?,
            port: given.port.filter(|port| *port != 0),
            status: StatusCode::from_u16(code).unwrap_or(StatusCode::FOUND),
        })
    }

    /// Status and `Location`. The port is the given one, else that of the given scheme, else that of the listener; the
    /// default port of the scheme is left out. The query is kept.
    #[must_use]
    pub fn location(&self, request: &RedirectRequest<'_>) -> (StatusCode, HeaderValue) {
        let scheme = self.scheme.as_deref().unwrap_or(request.scheme);
        let host = self.hostname.as_deref().unwrap_or(request.host);
        let default = if scheme == "https" { 443 } else { 80 };
        let implied = if self.scheme.is_some() { default } else { request.listener_port };
        let port = self.port.unwrap_or(implied);
        let path = match &self.path {
            Some(change) => change.apply(request.path, request.prefix),
            None => request.path.into(),
        };
        let mut location = String::with_capacity(path.len() + host.len() + 32);
        // Without a host (HTTP/1.0) a relative reference is all that can be said.
        if !host.is_empty() {
            location.extend([scheme, "://", host]);
            if port != default {
                location.push_str(&format!(":{port}"));
            }
        }
        // A relative reference that begins with two slashes would name another host.
        let path = if host.is_empty() { path.trim_start_matches('/') } else { path.strip_prefix('/').unwrap_or(&path) };
        location.extend(["/", if path == "*" { "" } else { path }]);
        if let Some(query) = request.query {
            location.extend(["?", query]);
        }
        let value = HeaderValue::try_from(location).unwrap_or_else(|_| HeaderValue::from_static("/"));
        (self.status, value)
    }
}

/// A hostname that can be sent.
pub(super) fn hostname(field: &'static str, host: &str) -> Result<Box<str>, BadValue> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    if host.is_empty() || !host.bytes().all(fits) {
        return Err(BadValue { field, value: host.into(), reason: "it is not a hostname" });
    }
    Ok(host.into())
}
