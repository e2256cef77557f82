//! Request and response headers when proxying. Pure.
//!
//! In: a request head, the client, the protocol of the pod. Out: the head without hop-by-hop headers and with
//! `X-Forwarded-For`, `-Port` and `-Proto`; or a rejection. hyper has rejected invalid HTTP; this rejects ambiguous
//! requests (request smuggling).

use http::header::{
    CONNECTION, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, StatusCode, Uri, Version};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const NO_VALID_HOST: &str = "The request has no valid host.";
const SEVERAL_HOSTS: &str = "The request has more than one Host header.";
/// Digits of a port.
const LONGEST_PORT: usize = 5;
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// Client, as described by `X-Forwarded-*`.
#[derive(Clone, Debug)]
pub struct Client {
    /// IP address.
    pub ip: HeaderValue,
    /// Port of the Service.
    pub port: HeaderValue,
    /// `http` or `https`.
    pub proto: HeaderValue,
}

/// Protocol of the pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpstreamProtocol {
    /// HTTP/2 instead of HTTP/1.1.
    pub h2: bool,
    /// TLS.
    pub tls: bool,
}

/// Rejected request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Status code.
    pub status: StatusCode,
    /// Message.
    pub why: &'static str,
}

const fn bad(why: &'static str) -> Rejection {
    Rejection { status: StatusCode::BAD_REQUEST, why }
}

/// Rejects ambiguous requests.
///
/// # Errors
/// The rejection.
pub fn check(parts: &Parts) -> Result<(), Rejection> {
    if parts.method == Method::CONNECT {
        let why = "CONNECT is not supported: this is a reverse proxy.";
        return Err(Rejection { status: StatusCode::METHOD_NOT_ALLOWED, why });
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    if authority.is_some_and(|authority| !is_authority(authority)) {
        return Err(bad(NO_VALID_HOST));
    }
    // Rules would see the path `/`, and backends a target that is not valid (RFC 9113, 8.3.1).
    if parts.uri.path_and_query().is_some_and(|target| target.as_str().starts_with('?')) {
        return Err(bad("The request target has a query but no path."));
    }
    if parts.version > Version::HTTP_11 {
        let mut hosts = parts.headers.get_all(HOST).iter();
        let host = hosts.next().filter(|_| authority.is_none());
        // The rules see the first, and a backend with HTTP/1.1 would get all.
        if hosts.next().is_some() {
            return Err(bad(SEVERAL_HOSTS));
        }
        return if host.is_none_or(is_host) { Ok(()) } else { Err(bad(NO_VALID_HOST)) };
    }
    if parts.uri.scheme().is_none() && authority.is_some() {
        return Err(bad("The request target is neither a path nor a URL."));
    }
    // A scan of the few headers is cheaper than lookups by name.
    let (mut hosts, mut codings, mut is_chunked, mut has_valid_host) = (0, 0, true, true);
    for (name, value) in &parts.headers {
        if *name == HOST {
            hosts += 1;
            has_valid_host &= is_host(value);
        }
        if *name == TRANSFER_ENCODING {
            codings += 1;
            is_chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
        }
    }
    if hosts > 1 {
        return Err(bad(SEVERAL_HOSTS));
    }
    if !has_valid_host {
        return Err(bad(NO_VALID_HOST));
    }
    if hosts == 0 && parts.version == Version::HTTP_11 && parts.uri.authority().is_none() {
        return Err(bad("The request has no Host header."));
    }
    if codings > 1 || !is_chunked {
        return Err(bad("The request has a Transfer-Encoding other than chunked."));
    }
    Ok(())
}

/// Whether a Host header is valid. It is empty for targets without authority (RFC 9112, 3.2).
fn is_host(value: &HeaderValue) -> bool {
    value.is_empty() || is_authority(value.as_bytes())
}

/// Whether it is a host, possibly with a port (RFC 3986, 3.2.2), without user. Backends may disagree about the host of others.
fn is_authority(text: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte);
    let is_address = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
    let (has_host, rest) = match text.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().position(|byte| !is_address(byte)).unwrap_or(rest.len());
            (end > 0 && rest.get(end) == Some(&b']'), rest.get(end + 1..).unwrap_or_default())
        }
        None => {
            let end = text.iter().position(|byte| !is_name(byte)).unwrap_or(text.len());
            (end > 0, &text[end..])
        }
    };
    let is_port = |port: &[u8]| port.len() <= LONGEST_PORT && port.iter().all(u8::is_ascii_digit);
    has_host && (rest.is_empty() || rest.strip_prefix(b":").is_some_and(is_port))
}

/// Protocol of an Upgrade request, if allowed. Upgrades to HTTP/2 are not: requests would bypass the gateway (h2c
/// smuggling).
#[must_use]
pub fn upgrade(parts: &Parts) -> Option<HeaderValue> {
    let (_, wanted) = parts.headers.iter().find(|(name, _)| **name == UPGRADE && parts.version == Version::HTTP_11)?;
    let has_upgrade = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")))
    };
    let text = wanted.to_str().ok()?;
    let is_http =
        |word: &str| ["h2c", "h2", "http/2.0", "http/2", "tls"].iter().any(|bad| word.eq_ignore_ascii_case(bad));
    let is_fit = !text.split(',').any(|word| is_http(word.trim()));
    (is_fit && parts.headers.get_all(CONNECTION).iter().any(has_upgrade)).then(|| wanted.clone())
}

/// Whether it is a gRPC request.
#[must_use]
pub fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Removes the hop-by-hop headers of a client's request, except `TE: trailers`. Headers that are added afterwards stay: the
/// client says in `Connection` which ones are removed, and must not name those that backends trust.
pub(crate) fn end_hop(headers: &mut HeaderMap) {
    let wants_trailers = wants_trailers(headers);
    strip_hop_by_hop(headers);
    headers.remove(TE);
    if wants_trailers {
        headers.insert(TE, TRAILERS);
    }
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// Removes headers with `_` in their names, as nginx does: to many backends they are the same as those with `-`, and a client
/// could set ones that it must not.
pub(crate) fn drop_underscores(headers: &mut HeaderMap) {
    let has_underscore = |name: &&HeaderName| name.as_str().contains('_');
    let named: Vec<HeaderName> = headers.keys().filter(has_underscore).cloned().collect();
    for name in &named {
        headers.remove(name);
    }
}

/// Prepares a request head for the pod; a request without host gets `default_host`. For HTTP/1.1 the `X-Forwarded-*`
/// headers are added when the head is written, because most header maps would have to grow for them.
///
/// # Errors
/// When the request cannot be expressed in the pod's protocol.
pub fn prepare(
    parts: &mut Parts,
    client: &Client,
    protocol: UpstreamProtocol,
    upgrade: Option<HeaderValue>,
    default_host: &str,
) -> Result<(), Rejection> {
    if parts.headers.keys().any(|name| is_hop_by_hop(name) || *name == TE || *name == EXPECT) {
        let wants_trailers = wants_trailers(&parts.headers);
        strip_hop_by_hop(&mut parts.headers);
        parts.headers.remove(TE);
        parts.headers.remove(EXPECT);
        if wants_trailers {
            parts.headers.insert(TE, TRAILERS);
            if !protocol.h2 {
                parts.headers.insert(CONNECTION, HeaderValue::from_static("te"));
            }
        }
    }
    if let Some(protocol) = upgrade {
        parts.headers.insert(UPGRADE, protocol);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if !protocol.h2 {
        return for_h1(parts, default_host);
    }
    let forwarded_for = forwarded_for(&parts.headers, client);
    parts.headers.insert(FORWARDED_FOR, forwarded_for);
    parts.headers.insert(FORWARDED_PORT, client.port.clone());
    parts.headers.insert(FORWARDED_PROTO, client.proto.clone());
    for_h2(parts, protocol.tls, default_host)
}

/// Whether a header is hop-by-hop (RFC 9110, 7.6.1).
fn is_hop_by_hop(name: &HeaderName) -> bool {
    [&CONNECTION, &TRANSFER_ENCODING, &UPGRADE, &KEEP_ALIVE, &PROXY_CONNECTION, &HTTP2_SETTINGS].contains(&name)
}

/// Removes hop-by-hop headers.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most heads have none: one scan is cheaper than lookups by name.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|text| text.split(','))
            .filter_map(|word| HeaderName::from_bytes(word.trim().as_bytes()).ok())
            .collect();
        // Clients must not remove Host.
        for name in named.iter().filter(|name| **name != HOST) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in [&KEEP_ALIVE, &PROXY_CONNECTION, &TRANSFER_ENCODING, &UPGRADE, &HTTP2_SETTINGS] {
        headers.remove(name);
    }
}

/// Whether it is one of the `X-Forwarded-*` headers that we set.
#[must_use]
pub fn is_forwarded_header(name: &HeaderName) -> bool {
    [&FORWARDED_FOR, &FORWARDED_PORT, &FORWARDED_PROTO].contains(&name)
}

/// `X-Forwarded-For` with the client appended.
#[must_use]
pub fn forwarded_for(headers: &HeaderMap, client: &Client) -> HeaderValue {
    let before = headers.get_all(&FORWARDED_FOR).iter().map(HeaderValue::as_bytes).filter(|value| !value.is_empty());
    let all: Vec<&[u8]> = before.chain([client.ip.as_bytes()]).collect();
    match &all[..] {
        [_] => client.ip.clone(),
        some => HeaderValue::from_maybe_shared(bytes::Bytes::from(some.join(&b", "[..])))
            .unwrap_or_else(|_| client.ip.clone()),
    }
}

fn for_h1(parts: &mut Parts, default_host: &str) -> Result<(), Rejection> {
    if let Some(authority) = parts.uri.authority() {
        // The request target, or `:authority`, takes precedence over Host.
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad(NO_VALID_HOST))?;
        parts.headers.insert(HOST, host);
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        parts.uri = Uri::from(path);
    } else if !parts.headers.keys().any(|name| *name == HOST) {
        let host = HeaderValue::from_str(default_host).map_err(|_| bad(NO_VALID_HOST))?;
        parts.headers.insert(HOST, host);
    }
    let cookies: Vec<&[u8]> = match parts.version >= Version::HTTP_2 {
        // Cookie may be split in HTTP/2 and HTTP/3 but not in HTTP/1.1 (RFC 9113, 8.2.3; RFC 9114, 4.2.1).
        true => parts.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect(),
        false => Vec::new(),
    };
    if cookies.len() > 1 {
        let whole =
            HeaderValue::from_bytes(&cookies.join(&b"; "[..])).map_err(|_| bad("The request has no valid cookie."))?;
        parts.headers.insert(COOKIE, whole);
    }
    parts.version = Version::HTTP_11;
    Ok(())
}

fn for_h2(parts: &mut Parts, tls: bool, default_host: &str) -> Result<(), Rejection> {
    let host = parts.headers.remove(HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok());
    let authority = match (parts.uri.authority(), host) {
        (Some(authority), _) => authority.clone(),
        (None, host) => host.unwrap_or(default_host).parse::<Authority>().map_err(|_| bad(NO_VALID_HOST))?,
    };
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let scheme = if tls { Scheme::HTTPS } else { Scheme::HTTP };
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build();
    parts.uri = uri.map_err(|_| bad("The request has no valid target."))?;
    parts.version = Version::HTTP_2;
    Ok(())
}

#[cfg(test)]
mod tests;
