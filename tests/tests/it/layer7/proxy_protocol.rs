//! Clients behind a proxy that sends PROXY headers: who they are for backends and policies, and that others cannot pretend.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::net::{Family, Outside, eventually};

use super::stage::{ADDRESS, GATEWAYS, Page, Stage, listener, to};

/// Far more than a response takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A client, as a proxy says.
const CLIENT: [u8; 4] = [198, 51, 100, 7];

/// A header of version 2 with a command (1: of a client, 0: of the proxy itself), and TLVs.
fn binary(command: u8, tlvs: &[u8]) -> Vec<u8> {
    let addresses = [&CLIENT[..], &[203, 0, 113, 0], &50_000_u16.to_be_bytes(), &80_u16.to_be_bytes(), tlvs].concat();
    let length = u16::try_from(addresses.len()).expect("short").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[0x20 | command, 0x11][..], &length, &addresses].concat()
}

/// The answer to a request after these bytes; none if the connection is closed without one.
fn ask(from: &Outside, before: &[u8]) -> Option<Page> {
    let at = SocketAddr::new(ADDRESS.parse().expect("an address"), 80);
    let mut stream = from.in_namespace(|| TcpStream::connect(at)).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let request = b"GET /path HTTP/1.1\r\nHost: web.test\r\nX-Forwarded-For: 192.0.2.99\r\nConnection: close\r\n\r\n";
    stream.write_all(&[before, request].concat()).ok()?;
    let mut answer = String::new();
    // A connection with bytes that were not read is reset.
    let _ = stream.read_to_string(&mut answer);
    Page::parse(&answer)
}

/// The address of the client that the pod was told after that of the request; the code if it was not asked.
fn seen(from: &Outside, before: &[u8]) -> Option<Result<String, u16>> {
    let page = ask(from, before)?;
    let chain = page.heard("x-forwarded-for").map(|chain| chain.trim_start_matches("192.0.2.99, ").to_owned());
    Some(chain.ok_or(page.code))
}

#[test]
fn s52_proxies_of_a_gateway_say_who_the_client_is_and_others_cannot() {
    let stage = Stage::new();
    if !stage.served.mode().keeps_source {
        // All connections come from the address of the node: the documentation says that the annotation has no use then.
        return;
    }
    stage.backend("web");
    stage.gateway(&json!([listener("http", 80)]));
    stage.route("web", "web.test", &json!([to("all", "/", "web")]));
    let _ = stage.until("the route is served", &["http://web.test/"], |page| page.code == 200);
    let other = stage.served.cluster().outside("other");
    other.route(&format!("{ADDRESS}/28"), &stage.node);
    let (proxy, own) = (&stage.outside, stage.outside.address(Family::V4).to_string());
    let text = b"PROXY TCP4 198.51.100.7 203.0.113.0 50000 80\r\n".to_vec();
    let client = Some(Ok("198.51.100.7".to_owned()));
    // Without the annotation a header is no request: 400, or a reset that overtakes it.
    assert!(seen(proxy, &text).is_none_or(|seen| seen == Err(400)));
    assert_eq!(seen(proxy, b""), Some(Ok(own.clone())));
    let annotate = |value: Value| {
        let metadata = json!({"name": "public", "annotations": {"waypost.dev/proxy-protocol-from": value}});
        stage.put(GATEWAYS, &json!({"metadata": metadata}));
    };
    annotate(format!("nonsense,{own}/32").into());
    eventually("connections of the proxy need a header", || seen(proxy, b"").is_none());
    for header in [&text, &binary(1, b""), &binary(1, b"\x04\0\x05hello")] {
        assert_eq!(seen(proxy, header), client, "{header:?}");
    }
    // Headers of the proxy itself, and without an address.
    for header in [binary(0, b""), b"PROXY UNKNOWN\r\n".to_vec()] {
        assert_eq!(seen(proxy, &header), Some(Ok(own.clone())), "{header:?}");
    }
    let malformed = ["PROXY TCP4 198.51.100.7\r\n", "PROXY TCP4 x y 1 2\r\n", &"P".repeat(200)]
        .map(|text| text.as_bytes().to_vec());
    for header in malformed.iter().chain([&binary(7, b"")]) {
        assert_eq!(seen(proxy, header), None, "{header:?}");
    }
    // Others are served as they are, and cannot choose their address.
    let theirs = other.address(Family::V4).to_string();
    assert_eq!(seen(&other, b""), Some(Ok(theirs)));
    for header in [&text, &binary(1, b"")] {
        assert!(seen(&other, header).is_none_or(|seen| seen == Err(400)), "{header:?}");
    }
    // Policies hold for the client that the proxy names.
    stage.policy("ranges", "HTTPRoute/web", &json!({"sourceRanges": {"deny": ["198.51.100.0/24"]}}));
    eventually("the client is denied", || seen(proxy, &text) == Some(Err(403)));
    assert_eq!(seen(proxy, &binary(1, b"")), Some(Err(403)));
    assert_eq!(seen(proxy, b"PROXY TCP4 192.0.2.77 203.0.113.0 5 80\r\n"), Some(Ok("192.0.2.77".to_owned())));
    assert!(seen(&other, b"").is_some_and(|seen| seen.is_ok()));
    let events = || stage.served.session(|session| session.items("/api/v1/namespaces/default/events"));
    eventually("the invalid range is an Event", || {
        events().iter().any(|event| {
            let message = event["message"].as_str().unwrap_or_default();
            event["reason"] == "AnnotationIgnored" && message.contains("`nonsense`")
        })
    });
    annotate(Value::Null);
    eventually("connections of the proxy need no header", || seen(proxy, b"") == Some(Ok(own.clone())));
}
