//! Headers that pods receive, headers that are removed, and rejected requests.

use http::Request;
use proptest::prelude::*;

use super::*;
use crate::http1::head::write;

fn client() -> Client {
    let value = HeaderValue::from_static;
    Client { ip: value("192.0.2.7"), port: value("443"), proto: value("https") }
}

const H1: UpstreamProtocol = UpstreamProtocol { h2: false, tls: false };
const H2: UpstreamProtocol = UpstreamProtocol { h2: true, tls: false };

fn request(uri: &str, version: Version, headers: &[(&str, &str)]) -> Parts {
    let start = Request::builder().uri(uri).version(version);
    let built = headers.iter().fold(start, |builder, (name, value)| builder.header(*name, *value));
    built.body(()).expect("a request").into_parts().0
}

fn shown(parts: &Parts) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
    let mut all: Vec<_> = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    all.sort();
    all
}

/// Request head that the pod receives.
fn prepared(mut parts: Parts, protocol: UpstreamProtocol) -> Parts {
    let wanted = upgrade(&parts);
    prepare(&mut parts, &client(), protocol, wanted, "10.0.0.1:80").expect("a valid request");
    if !protocol.h2 {
        parts.headers = written(&parts);
    }
    parts
}

/// Headers of an HTTP/1.1 request in wire format.
fn written(parts: &Parts) -> HeaderMap {
    let mut text = Vec::new();
    write(&Request::from_parts(parts.clone(), ()), None, &client(), &mut text);
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut read = httparse::Request::new(&mut slots);
    assert!(read.parse(&text).expect("a request").is_complete());
    let pairs = read
        .headers
        .iter()
        .map(|header| (header.name.parse().expect("a name"), HeaderValue::from_bytes(header.value).expect("a value")));
    // Each header appears as often as it was written.
    pairs.fold(HeaderMap::new(), |mut all, (name, value): (HeaderName, HeaderValue)| {
        all.append(name, value);
        all
    })
}

fn header(parts: &Parts, name: &str) -> Option<String> {
    parts.headers.get(name).map(|value| value.to_str().expect("text").to_owned())
}

#[test]
fn s48_the_client_is_appended_to_x_forwarded_for() {
    let bare = prepared(request("/", Version::HTTP_11, &[("host", "a")]), H1);
    assert_eq!(header(&bare, "x-forwarded-for").as_deref(), Some("192.0.2.7"));
    let seen = [("host", "a"), ("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")];
    let seen = prepared(request("/", Version::HTTP_11, &seen), H1);
    assert_eq!(header(&seen, "x-forwarded-for").as_deref(), Some("1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.7"));
    assert_eq!(seen.headers.get_all("x-forwarded-for").iter().count(), 1);
    let lies = [("host", "a"), ("x-forwarded-port", "1"), ("x-forwarded-proto", "gopher")];
    let lies = prepared(request("/", Version::HTTP_11, &lies), H1);
    assert_eq!(header(&lies, "x-forwarded-port").as_deref(), Some("443"));
    assert_eq!(header(&lies, "x-forwarded-proto").as_deref(), Some("https"));
}

#[test]
fn hop_by_hop_headers_are_removed() {
    let seen = [
        ("host", "a"),
        ("connection", "close, X-Secret, Host"),
        ("x-secret", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "gzip"),
        ("expect", "100-continue"),
        ("accept", "*/*"),
    ];
    let parts = prepared(request("/", Version::HTTP_11, &seen), H1);
    let names: Vec<String> = shown(&parts).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["accept", "host", "x-forwarded-for", "x-forwarded-port", "x-forwarded-proto"]);
}

#[test]
fn a_client_cannot_remove_x_forwarded_headers() {
    let seen = [("host", "a"), ("connection", "x-forwarded-for"), ("x-forwarded-for", "1.1.1.1")];
    let parts = prepared(request("/", Version::HTTP_11, &seen), H1);
    assert_eq!(header(&parts, "x-forwarded-for").as_deref(), Some("192.0.2.7"));
}

#[test]
fn websocket_upgrades_pass_and_h2c_upgrades_do_not() {
    let asking = |protocol: &str, connection: &str| {
        let seen = [("host", "a"), ("connection", connection), ("upgrade", protocol), ("http2-settings", "AAMAAABk")];
        prepared(request("/", Version::HTTP_11, &seen), H1)
    };
    let socket = asking("websocket", "keep-alive, Upgrade");
    assert_eq!(header(&socket, "upgrade").as_deref(), Some("websocket"));
    assert_eq!(header(&socket, "connection").as_deref(), Some("upgrade"));
    for (protocol, connection) in
        [("h2c", "Upgrade, HTTP2-Settings"), ("websocket, H2C", "upgrade"), ("websocket", "close")]
    {
        let plain = asking(protocol, connection);
        assert_eq!((header(&plain, "upgrade"), header(&plain, "http2-settings")), (None, None), "{protocol}");
    }
}

#[test]
fn http_2_requests_reach_http_1_pods_and_vice_versa() {
    let seen = [("cookie", "a=1"), ("cookie", "b=2"), ("host", "lie")];
    let parts = prepared(request("https://web.example/x?y=1", Version::HTTP_2, &seen), H1);
    assert_eq!((parts.uri.to_string().as_str(), parts.version), ("/x?y=1", Version::HTTP_11));
    assert_eq!(header(&parts, "host").as_deref(), Some("web.example"));
    assert_eq!(header(&parts, "cookie").as_deref(), Some("a=1; b=2"));
    let parts = prepared(request("/x", Version::HTTP_11, &[("host", "web.example"), ("te", "trailers")]), H2);
    assert_eq!((parts.uri.to_string().as_str(), parts.version), ("http://web.example/x", Version::HTTP_2));
    assert_eq!((header(&parts, "host"), header(&parts, "te").as_deref()), (None, Some("trailers")));
    assert_eq!(header(&parts, "connection"), None);
    let old = prepared(request("/x", Version::HTTP_10, &[]), H1);
    assert_eq!(header(&old, "host").as_deref(), Some("10.0.0.1:80"));
}

#[test]
fn ambiguous_requests_are_rejected() {
    let status = |method: Method, version: Version, seen: &[(&str, &str)]| {
        let mut parts = request("/", version, seen);
        parts.method = method;
        check(&parts).map_err(|rejection| rejection.status.as_u16())
    };
    let get = |seen: &[(&str, &str)]| status(Method::GET, Version::HTTP_11, seen);
    assert_eq!(get(&[("host", "a")]), Ok(()));
    assert_eq!(get(&[]), Err(400));
    assert_eq!(status(Method::GET, Version::HTTP_10, &[]), Ok(()));
    assert_eq!(get(&[("host", "a"), ("host", "b")]), Err(400));
    assert_eq!(get(&[("host", "a"), ("transfer-encoding", "Chunked")]), Ok(()));
    assert_eq!(get(&[("host", "a"), ("transfer-encoding", "gzip, chunked")]), Err(400));
    assert_eq!(get(&[("host", "a"), ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]), Err(400));
    assert_eq!(status(Method::CONNECT, Version::HTTP_2, &[]), Err(405));
}

#[test]
fn malformed_hosts_and_targets_are_rejected() {
    let status = |uri: &str, version: Version, seen: &[(&str, &str)]| {
        check(&request(uri, version, seen)).map_err(|rejection| rejection.status.as_u16())
    };
    for good in
        ["", "a", "A.example", "a_b.example:80", "a.example:", "192.0.2.1:8080", "[2001:db8::1]", "[::1]:443", "%61"]
    {
        assert_eq!(status("/", Version::HTTP_11, &[("host", good)]), Ok(()), "{good}");
        assert_eq!(status("/", Version::HTTP_2, &[("host", good)]), Ok(()), "{good}");
    }
    for bad in [
        "a b", " ", "a/b", "u@a", "a:80:80", "a:port", "a:123456", ":80", "a<b", "a\\", "a?b", "a#b", "\"a\"", "[::1",
        "[]", "[::1]x", "[::1]:x", "::1", "ä",
    ] {
        assert_eq!(status("/", Version::HTTP_11, &[("host", bad)]), Err(400), "{bad}");
        assert_eq!(status("/", Version::HTTP_2, &[("host", bad)]), Err(400), "{bad}");
    }
    assert_eq!(status("http://a.example/x", Version::HTTP_11, &[("host", "other")]), Ok(()));
    for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3] {
        for target in ["/", "https://a.example/"] {
            let several = status(target, version, &[("host", "a.example"), ("host", "b.example")]);
            assert_eq!(several, Err(400), "{version:?} {target}: backends may take the other one");
        }
    }
    assert_eq!(status("http://u@a.example/x", Version::HTTP_11, &[("host", "a")]), Err(400));
    assert_eq!(status("http://u@a.example/x", Version::HTTP_2, &[]), Err(400));
    assert_eq!(status("a.example", Version::HTTP_11, &[("host", "a")]), Err(400), "a target for CONNECT only");
}

#[test]
fn targets_with_a_query_have_a_path() {
    let status = |uri, version, headers: &[_]| {
        check(&request(uri, version, headers)).map_err(|rejection| rejection.status.as_u16())
    };
    for (version, headers) in [(Version::HTTP_11, &[("host", "a")][..]), (Version::HTTP_2, &[])] {
        assert_eq!(status("http://a.example?shared", version, headers), Err(400), "{version:?}");
        assert_eq!(status("http://a.example/?shared", version, headers), Ok(()), "{version:?}");
        assert_eq!(status("http://a.example", version, headers), Ok(()), "{version:?}");
    }
}

proptest! {
    #[test]
    fn pods_get_one_host_and_the_client_last_in_x_forwarded_for(
        seen in proptest::collection::vec(("(x-a|connection|te|upgrade|x-forwarded-for|keep-alive|cookie)", "[a-z0-9, .=-]{0,20}"), 0..8),
        h2 in any::<bool>(), to_h2 in any::<bool>(),
    ) {
        let version = if h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let uri = if h2 { "https://web.example/" } else { "/" };
        let mut headers: Vec<(&str, &str)> = seen.iter().map(|(name, value)| (name.as_str(), value.trim())).collect();
        if !h2 { headers.push(("host", "web.example")); }
        let parts = prepared(request(uri, version, &headers), UpstreamProtocol { h2: to_h2, tls: false });
        let forwarded_for = header(&parts, "x-forwarded-for").expect("the header");
        prop_assert!(forwarded_for == "192.0.2.7" || forwarded_for.ends_with(", 192.0.2.7"));
        let host = header(&parts, "host").or(parts.uri.host().map(str::to_owned));
        prop_assert_eq!(host.as_deref(), Some("web.example"));
        prop_assert!(!parts.headers.contains_key("keep-alive"));
        prop_assert!(!to_h2 || !parts.headers.contains_key("connection") || parts.headers.contains_key("upgrade"));
    }
}
