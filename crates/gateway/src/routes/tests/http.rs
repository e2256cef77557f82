//! Listeners, matches, errors of rules and backends, weights.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

fn http() -> TestGateway {
    TestGateway::new(&[listener("http", ListenerProtocol::Http, None)])
}

#[test]
fn host_and_path_select_the_rule() {
    let mut gateway = http();
    gateway.service("one", &[named("one")]);
    gateway.service("two", &[named("two")]);
    let rules = json!([
        {"matches": [{"path": {"type": "PathPrefix", "value": "/two"}}], "backends": [{"name": "two"}]},
        {"matches": [{"path": {"type": "Exact", "value": "/"}}], "backends": [{"name": "one"}]},
    ]);
    let rules = rules.as_array().expect("rules").iter().map(rule).collect();
    gateway.route("http", "web", &["web.example"], rules);
    assert!(gateway.get("web.example", "/").contains("\r\n\r\none GET / HTTP/1.1"));
    assert!(gateway.get("WEB.example:80", "/two/x?y=z").contains("\r\n\r\ntwo GET /two/x?y=z HTTP/1.1"));
    for (host, path) in [("web.example", "/other"), ("other.example", "/")] {
        assert_eq!(code(&gateway.get(host, path)), 404, "{host}{path}");
    }
}

#[test]
fn requests_have_the_headers_of_a_proxy() {
    let mut gateway = http();
    gateway.service("one", &[named("one")]);
    gateway.simple("http", "web", &[], &["one"]);
    let answer = gateway.get("web.example", "/").to_lowercase();
    for line in ["host: web.example", "x-forwarded-for: 127.0.0.1", "x-forwarded-port: 80", "x-forwarded-proto: http"] {
        assert!(answer.lines().any(|one| one == line), "{line}: {answer}");
    }
    assert!(answer.lines().any(|line| line.starts_with("date: ")), "{answer}");
}

#[test]
fn the_most_specific_listener_alone_serves_a_host() {
    let listeners = [None, Some("*.example"), Some("a.example")].map(|host| {
        let name = host.unwrap_or("any").replace(['*', '.'], "");
        listener(&name, ListenerProtocol::Http, host)
    });
    let mut gateway = TestGateway::new(&listeners);
    for name in ["any", "example", "aexample"] {
        gateway.service(name, &[named(name)]);
        gateway.route(
            name,
            name,
            &[],
            vec![rule(&json!({"matches": [{"path": {"value": format!("/{name}")}}], "backends": [{"name": name}]}))],
        );
    }
    for (host, serves) in [("a.example", "aexample"), ("b.example", "example"), ("example", "any"), ("x", "any")] {
        for name in ["any", "example", "aexample"] {
            let expected = if name == serves { 200 } else { 404 };
            assert_eq!(code(&gateway.get(host, &format!("/{name}"))), expected, "{host}/{name}");
        }
    }
}

#[test]
fn invalid_backends_are_500_and_those_without_endpoints_503() {
    let mut gateway = http();
    gateway.service("empty", &[]);
    gateway.service("refusing", &[unused_address()]);
    for (host, backends) in [
        ("none", json!([])),
        ("invalid", json!([{"name": "invalid"}])),
        ("zero", json!([{"name": "empty", "weight": 0}])),
        ("empty", json!([{"name": "empty"}])),
        ("refusing", json!([{"name": "refusing"}])),
    ] {
        gateway.route("http", host, &[host], vec![rule(&json!({"backends": backends}))]);
    }
    let broken = Rule { broken: Some("a filter is unknown".into()), ..rule(&json!({"backends": [{"name": "empty"}]})) };
    gateway.route("http", "broken", &["broken"], vec![broken]);
    for (host, expected) in
        [("none", 500), ("invalid", 500), ("zero", 500), ("broken", 500), ("empty", 503), ("refusing", 502)]
    {
        assert_eq!(code(&gateway.get(host, "/")), expected, "{host}");
    }
}

#[test]
fn requests_are_divided_by_weight() {
    let mut gateway = http();
    for name in ["one", "two"] {
        gateway.service(name, &[named(name)]);
    }
    let backends = json!([{"name": "one", "weight": 70}, {"name": "two", "weight": 20}, {"name": "invalid", "weight": 10}]);
    gateway.route("http", "web", &[], vec![rule(&json!({"backends": backends}))]);
    let mut stream = gateway.connect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..500 {
        use std::io::Write as _;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        let (head, body) = crate::tests::next_answer(&mut stream);
        let who = if code(&head) == 500 { "500" } else { &body[..3] };
        *counts.entry(who.to_owned()).or_default() += 1;
    }
    let expected = [("500", 50), ("one", 350), ("two", 100)].map(|(who, count)| (who.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn failed_grpc_calls_have_a_grpc_status() {
    let mut gateway = http();
    gateway.service("empty", &[]);
    gateway.route("http", "web", &["empty"], vec![rule(&json!({"backends": [{"name": "empty"}]}))]);
    gateway.route("http", "bad", &["invalid"], vec![rule(&json!({"backends": [{"name": "invalid"}]}))]);
    let address = gateway.address;
    gateway.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        for (host, expected) in [("unknown", "12"), ("empty", "14"), ("invalid", "14")] {
            let request = ::http::Request::post(format!("http://{host}/echo.Echo/Say"))
                .header("content-type", "application/grpc")
                .body(Full::new(Bytes::new()))
                .expect("a request");
            let answer = sender.send_request(request).await.expect("an answer");
            assert_eq!((answer.status().as_u16(), &answer.headers()["grpc-status"]), (200, &HeaderValue::from_static(expected)), "{host}");
            assert_eq!(answer.headers()["content-type"], "application/grpc");
        }
    });
}

#[test]
fn requests_are_counted_per_route() {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;
    let mut gateway = http();
    gateway.service("one", &[named("one")]);
    gateway.service("refusing", &[unused_address()]);
    gateway.simple("http", "web", &["web"], &["one"]);
    gateway.simple("http", "bad", &["bad"], &["refusing"]);
    let _ = (gateway.get("web", "/"), gateway.get("web", "/"), gateway.get("bad", "/"));
    let (mut registry, mut shown) = (Registry::default(), String::new());
    registry.register_collector(Box::new(gateway.metrics.clone()));
    text::encode(&mut shown, &registry).expect("a text");
    for line in [
        "waypost_gateway_route_requests_total{gateway=\"shop/public\",route=\"HTTPRoute/shop/web\",code=\"2xx\"} 2",
        "waypost_gateway_route_requests_total{gateway=\"shop/public\",route=\"HTTPRoute/shop/bad\",code=\"5xx\"} 1",
        "waypost_gateway_backend_failures_total{service=\"shop/refusing\",port=\"80\"} 1",
    ] {
        assert!(shown.lines().any(|one| one == line), "{line} is no line of\n{shown}");
    }
    assert!(shown.contains("waypost_gateway_route_seconds_total{gateway=\"shop/public\",route=\"HTTPRoute/shop/web\"}"));
}
