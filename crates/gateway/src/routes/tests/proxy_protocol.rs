//! Clients behind a proxy that tells their address by the PROXY protocol.

use std::io::Write as _;
use std::net::Shutdown;

use api::gateway_api::watched;
use client::memory::Memory;
use parking_lot::Mutex;
use routing::policy::Policy;

use super::cluster::Watching;
use super::stream::tcp;
use super::*;
use crate::access_log::AccessLogFormat;
use crate::access_log::tests::Lines;
use crate::controller::Notice;
use crate::source_ranges::SourceRanges;
use crate::tests::{eventually, rest_of};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A Gateway with one route for clients of this range, behind proxies of loopback; clients of 203.0.113.0/24 must not connect.
fn behind_proxies(proxies: &str, allow: &str) -> (TestGateway, Lines) {
    let (log, lines) = Lines::log(AccessLogFormat::Json);
    let listeners = [listener("http", ListenerProtocol::Http, None)];
    let mut gateway = TestGateway::configured(&listeners, Trust::default(), |port| {
        port.access_log = Some(log);
        port.proxies.store(Arc::new(vec![proxies.parse().expect("a range")]));
        port.sources.store(Arc::new(SourceRanges::of(&["127.0.0.0/8".into(), "192.0.2.0/24".into()])));
    });
    gateway.service("one", &[named("one")]);
    let policy = Policy { allow: vec![allow.parse().expect("a range")], ..Policy::default() };
    let rule = Rule { policy: Some(Arc::new(policy)), ..rule(&json!({"backends": [{"name": "one"}]})) };
    gateway.route("http", "web", &[], vec![rule]);
    (gateway, lines)
}

fn binary(client: [u8; 4]) -> Vec<u8> {
    let addresses = [&client[..], &[192, 0, 2, 11, 0x13, 0x88, 0, 80]].concat();
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

fn ask(gateway: &TestGateway, header: &[u8]) -> String {
    let mut stream = gateway.connect();
    // The gateway may close before all of it is sent.
    let _ = stream.write_all(&[header, GET.as_bytes()].concat());
    rest_of(stream)
}

#[test]
fn the_client_of_a_proxy_is_the_client_for_everything() {
    let (gateway, lines) = behind_proxies("127.0.0.0/8", "192.0.2.0/25");
    for (header, client, status) in [
        (b"PROXY TCP4 192.0.2.7 192.0.2.11 5000 80\r\n".to_vec(), "192.0.2.7", 200),
        (binary([192, 0, 2, 8]), "192.0.2.8", 200),
        (binary([192, 0, 2, 200]), "192.0.2.200", 403),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", 403),
    ] {
        let answer = ask(&gateway, &header);
        assert_eq!(code(&answer), status, "{client}: {answer}");
        if status == 200 {
            assert!(answer.to_lowercase().contains(&format!("x-forwarded-for: {client}\r\n")), "{answer}");
        }
        let line = lines.next_json();
        assert_eq!((&line["client"], &line["status"]), (&json!(client), &json!(status)), "{line}");
    }
}

#[test]
fn a_header_may_come_in_pieces() {
    let (gateway, _) = behind_proxies("127.0.0.0/8", "192.0.2.0/24");
    for header in [b"PROXY TCP4 192.0.2.7 192.0.2.11 5000 80\r\n".to_vec(), binary([192, 0, 2, 8])] {
        let mut stream = gateway.connect();
        stream.set_nodelay(true).expect("no delay");
        for byte in header {
            stream.write_all(&[byte]).expect("sent");
            std::thread::yield_now();
        }
        stream.write_all(GET.as_bytes()).expect("sent");
        assert_eq!(code(&rest_of(stream)), 200);
    }
}

#[test]
fn connections_of_proxies_without_a_valid_header_are_closed() {
    let (gateway, lines) = behind_proxies("127.0.0.0/8", "192.0.2.0/24");
    for header in [
        &b""[..],
        b"PROXY TCP4 192.0.2.7 192.0.2.11 5000\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.11 5000 80\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ] {
        assert_eq!(ask(&gateway, header), "", "{}", String::from_utf8_lossy(header));
    }
    let mut stream = gateway.connect();
    stream.write_all(b"PROXY TCP4 192").expect("sent");
    stream.shutdown(Shutdown::Write).expect("sent");
    assert_eq!(rest_of(stream), "", "the header has no end");
    assert_eq!(code(&ask(&gateway, &binary([192, 0, 2, 8]))), 200);
    assert_eq!(lines.wait_json(1)[0]["status"], 200, "nothing else was a request");
}

#[test]
fn only_proxies_may_send_a_header() {
    let (gateway, _) = behind_proxies("192.0.2.0/24", "127.0.0.0/8");
    assert_eq!(code(&ask(&gateway, b"")), 200, "others need none");
    let answer = ask(&gateway, b"PROXY TCP4 192.0.2.7 192.0.2.11 5000 80\r\n");
    assert_ne!(code(&answer), 200, "it is no request: {answer}");
}

#[test]
fn bytes_behind_the_header_are_those_of_the_client() {
    let (log, lines) = Lines::log(AccessLogFormat::Json);
    let listeners = [listener("tcp", ListenerProtocol::Tcp, None)];
    let mut gateway = TestGateway::configured(&listeners, Trust::default(), |port| {
        port.access_log = Some(log);
        port.proxies.store(Arc::new(vec!["127.0.0.1/32".parse().expect("a range")]));
    });
    gateway.service("one", &[tcp("one")]);
    gateway.stream("tcp", RouteKind::Tcp, "db", &[], &[json!({"name": "one"})]);
    let mut stream = gateway.connect();
    stream.write_all(&[&binary([192, 0, 2, 8])[..], b"hello"].concat()).expect("sent");
    assert_eq!(rest_of(stream), "onehello");
    let line = lines.next_json();
    assert_eq!(
        (&line["client"], &line["clientPort"], &line["requestBytes"]),
        (&json!("192.0.2.8"), &json!(5000), &json!(5))
    );
}

#[test]
fn an_annotation_of_the_gateway_names_the_proxies() {
    let (memory, notices) = (Arc::new(Memory::default()), Arc::new(Mutex::new(Vec::<Notice>::new())));
    traffic::objects(&memory, tcp("one"));
    let reported = Arc::clone(&notices);
    let watching = Watching::start(Arc::clone(&memory) as _, |settings| {
        settings.events = Arc::new(move |notice| reported.lock().push(notice));
    });
    let address = watching.redirect(|_| true).listener;
    let answer = |sent: &str| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let _ = stream.write_all(sent.as_bytes());
        rest_of(stream)
    };
    eventually("connections are served", || answer("hello") == "onehello");
    let annotate = |ranges: &str| {
        let metadata = json!({"namespace": "shop", "name": "public", "creationTimestamp": "2026-01-01T00:00:00Z",
                              "generation": 1, "annotations": {"waypost.dev/proxy-protocol-from": ranges}});
        let listeners = json!([{"name": "tcp", "port": 80, "protocol": "TCP"}]);
        let spec = json!({"gatewayClassName": "waypost", "listeners": listeners});
        memory.put(&watched::GATEWAY, json!({"metadata": metadata, "spec": spec}));
    };
    annotate("nonsense, 127.0.0.0/8, 10.0.0.0/33, other");
    eventually("headers are required", || answer("hello").is_empty());
    assert_eq!(answer("PROXY TCP4 192.0.2.7 192.0.2.11 5000 80\r\nhello"), "onehello");
    eventually("the mistake is reported", || notices.lock().iter().any(|notice| notice.message.contains("`nonsense`")));
    let found: Vec<_> = notices.lock().iter().map(|notice| (notice.reason, notice.message.clone())).collect();
    assert!(matches!(&found[..], [("AnnotationIgnored", one)] if one.contains("as are 2 more ranges")), "{found:?}");
    annotate("");
    eventually("headers are not required", || answer("hello") == "onehello");
}
