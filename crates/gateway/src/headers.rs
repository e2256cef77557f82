//! What changes about a request and its answer on their way through. Pure.
//!
//! In: the head of a request, who the client is, what the pod speaks. Out: the same head without what was meant for this hop alone, with
//! `X-Forwarded-For`, `-Port` and `-Proto`; or a refusal. hyper has refused what is no HTTP; here goes what is HTTP but means one thing
//! to one reader and another to the next.

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
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// Who asks, as pods are told.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address.
    pub ip: HeaderValue,
    /// The port of the Service to which it came.
    pub port: HeaderValue,
    /// `http` or `https`.
    pub proto: HeaderValue,
}

/// What the pod speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speech {
    /// HTTP/2 rather than HTTP/1.1.
    pub h2: bool,
    /// Over TLS.
    pub tls: bool,
}

/// Why a request goes no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The answer.
    pub status: StatusCode,
    /// In words.
    pub why: &'static str,
}

const fn bad(why: &'static str) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, why }
}

/// Whether a request means the same to everybody.
///
/// # Errors
/// Why it does not.
pub fn check(parts: &Parts) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT {
        let why = "CONNECT is for proxies that lead anywhere; this one leads to one Service.";
        return Err(Refusal { status: StatusCode::METHOD_NOT_ALLOWED, why });
    }
    if parts.version > Version::HTTP_11 {
        return Ok(());
    }
    // One look through the few that there are costs less than looking names up.
    let (mut hosts, mut codings, mut is_chunked) = (0, 0, true);
    for (name, value) in &parts.headers {
        hosts += usize::from(*name == HOST);
        if *name == TRANSFER_ENCODING {
            codings += 1;
            is_chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
        }
    }
    if hosts > 1 {
        return Err(bad("The request has more than one Host header."));
    }
    if hosts == 0 && parts.version == Version::HTTP_11 && parts.uri.authority().is_none() {
        return Err(bad("The request has no Host header."));
    }
    if codings > 1 || !is_chunked {
        return Err(bad("The request has a Transfer-Encoding other than chunked."));
    }
    Ok(())
}

/// The protocol to which a request wants to change, when it may: HTTP/2 is spoken from the start or not at all, for a pod that is asked
/// to change to it would get requests past the gateway.
#[must_use]
pub fn upgrade(parts: &Parts) -> Option<HeaderValue> {
    let (_, wanted) = parts.headers.iter().find(|(name, _)| **name == UPGRADE && parts.version == Version::HTTP_11)?;
    let said = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")))
    };
    let text = wanted.to_str().ok()?;
    let is_http =
        |word: &str| ["h2c", "h2", "http/2.0", "http/2", "tls"].iter().any(|bad| word.eq_ignore_ascii_case(bad));
    let is_fit = !text.split(',').any(|word| is_http(word.trim()));
    (is_fit && parts.headers.get_all(CONNECTION).iter().any(said)).then(|| wanted.clone())
}

/// Whether a request is one of gRPC.
#[must_use]
pub fn is_grpc(parts: &Parts) -> bool {
    let kind = parts.headers.get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Makes the head of a client's request that of ours to the pod; one that names no host gets this one. Pods of HTTP/1.1 are told who asks
/// when it is written ([`is_about_clients`], [`chain`]): for the three headers, most maps would have to grow.
///
/// # Errors
/// When it cannot be said in the pod's language.
pub fn prepare(
    parts: &mut Parts,
    client: &Client,
    speech: Speech,
    upgrade: Option<HeaderValue>,
    nameless: &str,
) -> Result<(), Refusal> {
    if parts.headers.keys().any(|name| is_for_this_hop(name) || *name == TE || *name == EXPECT) {
        let wants_trailers = parts.headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
        strip(&mut parts.headers);
        parts.headers.remove(TE);
        parts.headers.remove(EXPECT);
        if wants_trailers {
            parts.headers.insert(TE, TRAILERS);
            if !speech.h2 {
                parts.headers.insert(CONNECTION, HeaderValue::from_static("te"));
            }
        }
    }
    if let Some(protocol) = upgrade {
        parts.headers.insert(UPGRADE, protocol);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if !speech.h2 {
        return for_h1(parts, nameless);
    }
    let chain = chain(&parts.headers, client);
    parts.headers.insert(FORWARDED_FOR, chain);
    parts.headers.insert(FORWARDED_PORT, client.port.clone());
    parts.headers.insert(FORWARDED_PROTO, client.proto.clone());
    for_h2(parts, speech.tls, nameless)
}

/// Whether a header is for whoever reads it first, and not for those behind.
fn is_for_this_hop(name: &HeaderName) -> bool {
    [&CONNECTION, &TRANSFER_ENCODING, &UPGRADE, &KEEP_ALIVE, &PROXY_CONNECTION, &HTTP2_SETTINGS].contains(&name)
}

/// Takes out what was said to this hop alone: in an answer, everything that this does not leave.
pub fn strip(headers: &mut HeaderMap) {
    // Most heads have nothing of the kind: one look through them costs a third of looking each name up.
    if !headers.keys().any(is_for_this_hop) {
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
        // Whom a request is for is not the client's to take back.
        for name in named.iter().filter(|name| **name != HOST) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in [&KEEP_ALIVE, &PROXY_CONNECTION, &TRANSFER_ENCODING, &UPGRADE, &HTTP2_SETTINGS] {
        headers.remove(name);
    }
}

/// Whether pods are told this by us, whatever the client says.
#[must_use]
pub fn is_about_clients(name: &HeaderName) -> bool {
    [&FORWARDED_FOR, &FORWARDED_PORT, &FORWARDED_PROTO].contains(&name)
}

/// Who asked whom: what other proxies said stays in front.
#[must_use]
pub fn chain(headers: &HeaderMap, client: &Client) -> HeaderValue {
    let before = headers.get_all(&FORWARDED_FOR).iter().map(HeaderValue::as_bytes).filter(|value| !value.is_empty());
    let all: Vec<&[u8]> = before.chain([client.ip.as_bytes()]).collect();
    match &all[..] {
        [_] => client.ip.clone(),
        some => HeaderValue::from_maybe_shared(bytes::Bytes::from(some.join(&b", "[..])))
            .unwrap_or_else(|_| client.ip.clone()),
    }
}

fn for_h1(parts: &mut Parts, nameless: &str) -> Result<(), Refusal> {
    if let Some(authority) = parts.uri.authority() {
        // What the request line, or HTTP/2, says of the host is what counts.
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("The request has no fit host."))?;
        parts.headers.insert(HOST, host);
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        parts.uri = Uri::from(path);
    } else if !parts.headers.keys().any(|name| *name == HOST) {
        let host = HeaderValue::from_str(nameless).map_err(|_| bad("The request has no fit host."))?;
        parts.headers.insert(HOST, host);
    }
    let cookies: Vec<&[u8]> = match parts.version == Version::HTTP_2 {
        // HTTP/2 may tear it into pieces, HTTP/1.1 may not.
        true => parts.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect(),
        false => Vec::new(),
    };
    if cookies.len() > 1 {
        let whole =
            HeaderValue::from_bytes(&cookies.join(&b"; "[..])).map_err(|_| bad("The request has no fit cookie."))?;
        parts.headers.insert(COOKIE, whole);
    }
    parts.version = Version::HTTP_11;
    Ok(())
}

fn for_h2(parts: &mut Parts, tls: bool, nameless: &str) -> Result<(), Refusal> {
    let host = parts.headers.remove(HOST);
    let host = host.as_ref().and_then(|host| host.to_str().ok());
    let authority = match (parts.uri.authority(), host) {
        (Some(authority), _) => authority.clone(),
        (None, host) => {
            host.unwrap_or(nameless).parse::<Authority>().map_err(|_| bad("The request has no fit host."))?
        }
    };
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let scheme = if tls { Scheme::HTTPS } else { Scheme::HTTP };
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build();
    parts.uri = uri.map_err(|_| bad("The request has no fit target."))?;
    parts.version = Version::HTTP_2;
    Ok(())
}

#[cfg(test)]
mod tests;
