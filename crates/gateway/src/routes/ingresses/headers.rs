//! Headers of requests and responses of Ingresses, beside those of every proxy. Pure.
//!
//! In: a request of a client. Out: the same with the headers that ingress-nginx sends to backends. What the client says
//! about itself is not passed on as if it were known: its `X-Forwarded-For` becomes `X-Original-Forwarded-For`.

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, SERVER};
use http::request::Parts;

use crate::headers::{Client, FORWARDED_FOR, REQUEST_ID};

const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-scheme");
const ORIGINAL_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-original-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const SCHEME: HeaderName = HeaderName::from_static("x-scheme");
/// CGI programs read it as the variable `HTTP_PROXY`.
const PROXY: HeaderName = HeaderName::from_static("proxy");
const OWN_SERVER: HeaderValue = HeaderValue::from_static("waypost");

/// Adds what the backend should know about the client. `X-Forwarded-For`, `-Port` and `-Proto` are added later, as for
/// all requests; `id` makes a value of `X-Request-ID` for requests without one.
pub(in crate::routes) fn describe(parts: &mut Parts, client: &Client, id: impl FnOnce() -> u128) {
    let host = match parts.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => parts.headers.get(HOST).cloned(),
    };
    let headers = &mut parts.headers;
    let claimed = claimed(headers);
    headers.remove(FORWARDED_FOR);
    headers.remove(PROXY);
    set(headers, ORIGINAL_FORWARDED_FOR, claimed);
    set(headers, FORWARDED_HOST, host);
    for name in [FORWARDED_SCHEME, SCHEME] {
        headers.insert(name, client.proto.clone());
    }
    headers.insert(REAL_IP, client.ip.clone());
    if headers.get(REQUEST_ID).is_none_or(HeaderValue::is_empty)
        && let Ok(id) = HeaderValue::from_str(&format!("{:032x}", id()))
    {
        headers.insert(REQUEST_ID, id);
    }
}

/// Adds the name of the server to a response that does not say it.
pub(in crate::routes) fn sign(headers: &mut HeaderMap) {
    headers.entry(SERVER).or_insert(OWN_SERVER);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => drop(headers.insert(name, value)),
        None => drop(headers.remove(name)),
    }
}

/// `X-Forwarded-For` of the client; several lines are one list.
fn claimed(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty());
    let lines: Vec<&[u8]> = lines.collect();
    (!lines.is_empty()).then(|| HeaderValue::from_bytes(&lines.join(&b", "[..])).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn described(request: http::request::Builder) -> Vec<String> {
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        let value = HeaderValue::from_static;
        let client = Client { ip: value("192.0.2.9"), port: value("443"), proto: value("https") };
        describe(&mut parts, &client, || 0xabc);
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        let mut all: Vec<_> = parts.headers.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
        all.sort();
        all
    }

    #[test]
    fn backends_are_told_about_the_client() {
        let all = described(Request::builder().uri("/").header("Host", "shop.example:8443"));
        let expected = [
            "host: shop.example:8443",
            "x-forwarded-host: shop.example:8443",
            "x-forwarded-scheme: https",
            "x-real-ip: 192.0.2.9",
            "x-request-id: 00000000000000000000000000000abc",
            "x-scheme: https",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_a_client_says_about_itself_is_not_believed() {
        let request = Request::builder()
            .uri("https://shop.example/")
            .header("X-Forwarded-For", "10.0.0.1")
            .header("X-Forwarded-For", "10.0.0.2")
            .header("X-Original-Forwarded-For", "10.0.0.3")
            .header("X-Real-IP", "10.0.0.4")
            .header("X-Forwarded-Host", "other.example")
            .header("X-Scheme", "http")
            .header("X-Request-ID", "mine")
            .header("Proxy", "http://evil.example");
        let expected = [
            "x-forwarded-host: shop.example",
            "x-forwarded-scheme: https",
            "x-original-forwarded-for: 10.0.0.1, 10.0.0.2",
            "x-real-ip: 192.0.2.9",
            "x-request-id: mine",
            "x-scheme: https",
        ];
        assert_eq!(described(request), expected);
        let claimed = described(Request::builder().uri("/").header("X-Original-Forwarded-For", "10.0.0.3"));
        assert!(!claimed.iter().any(|line| line.starts_with("x-original-forwarded-for")), "{claimed:?}");
    }

    #[test]
    fn responses_name_the_server_unless_the_backend_does() {
        let mut headers = HeaderMap::new();
        sign(&mut headers);
        assert_eq!(headers[SERVER], "waypost");
        headers.insert(SERVER, HeaderValue::from_static("backend"));
        sign(&mut headers);
        assert_eq!(headers[SERVER], "backend");
    }
}
