//! What rules demand beyond the Gateway API, from clients to backends.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;

use api::view::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use routing::policy::{
    BasicAuth, ConnectionLimit, PasswordFormat, PathRewrite, Pattern, Policy, RateKey, RateLimit, Redirect, Template,
};

use super::external_auth::{auth_server, auth_service, by_server};
use super::*;
use crate::tests::{eventually, next_answer, rest_of};

/// A Gateway with one route with this policy to a pod.
pub(super) fn guarded_by(policy: Policy, pod: SocketAddr) -> TestGateway {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    gateway.service("one", &[pod]);
    guard(&mut gateway, policy);
    gateway
}

pub(super) fn guard(gateway: &mut TestGateway, policy: Policy) {
    gateway.route("http", "web", &[], vec![with(policy, &json!({"backends": [{"name": "one"}]}))]);
}

pub(super) fn guarded(policy: Policy) -> TestGateway {
    guarded_by(policy, named("one"))
}

fn with(policy: Policy, given: &Value) -> Rule {
    Rule { policy: Some(Arc::new(policy)), ..rule(given) }
}

/// Response to a GET with these header lines.
pub(super) fn get_with(gateway: &TestGateway, path: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    gateway.ask(&format!("GET {path} HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n{lines}\r\n"))
}

pub(super) fn has_line(answer: &str, line: &str) -> bool {
    answer.lines().any(|one| one.eq_ignore_ascii_case(line))
}

fn nets(texts: &[&str]) -> Vec<ipnet::IpNet> {
    texts.iter().map(|text| text.parse().expect("a range")).collect()
}

fn shown(gateway: &TestGateway) -> String {
    let (mut registry, mut text) = (prometheus_client::registry::Registry::default(), String::new());
    registry.register_collector(Box::new(gateway.metrics.clone()));
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a text");
    text
}

/// Whether so many requests were refused for this reason.
#[track_caller]
pub(super) fn refused(gateway: &TestGateway, reason: &str, count: usize) {
    let line = format!(
        "waypost_gateway_route_refusals_total{{gateway=\"shop/public\",route=\"HTTPRoute/shop/web\",reason=\"{reason}\"}} {count}"
    );
    let text = shown(gateway);
    assert!(text.lines().any(|one| one == line), "{line} is no line of\n{text}");
}

#[test]
fn a_rule_that_requires_https_redirects_and_one_that_is_closed_refuses() {
    let gateway = guarded(Policy { require_https: Some(308), refuse: Some(503), ..Policy::default() });
    let answer = get_with(&gateway, "/a%20b?c=d", &[]);
    assert!(code(&answer) == 308 && has_line(&answer, "location: https://web.example/a%20b?c=d"), "{answer}");
    assert_eq!(code(&gateway.ask("GET / HTTP/1.0\r\n\r\n")), 400, "a request without host");
    let gateway = guarded(Policy { refuse: Some(503), ..Policy::default() });
    assert_eq!(code(&gateway.get("a", "/")), 503);
    refused(&gateway, "closed", 1);
}

#[test]
fn a_redirect_answers_every_request() {
    let location = Template::url("https://other.example$request_uri").expect("a template");
    let gateway = guarded(Policy { redirect: Some(Redirect { status: 302, location }), ..Policy::default() });
    let answer = get_with(&gateway, "/x?y", &[]);
    assert!(code(&answer) == 302 && has_line(&answer, "location: https://other.example/x?y"), "{answer}");
}

#[test]
fn address_ranges_admit_and_deny() {
    for (allow, deny, expected) in [
        (&["127.0.0.0/8"][..], &[][..], 200),
        (&["192.0.2.0/24"], &[], 403),
        (&["127.0.0.0/8"], &["127.0.0.1/32"], 403),
        (&[], &["192.0.2.0/24"], 200),
    ] {
        let gateway = guarded(Policy { allow: nets(allow), deny: nets(deny), ..Policy::default() });
        let answer = get_with(&gateway, "/", &["X-Forwarded-For: 192.0.2.1", "X-Real-IP: 192.0.2.1"]);
        assert_eq!(code(&answer), expected, "{allow:?} {deny:?}");
        if expected == 403 {
            refused(&gateway, "source", 1);
        }
    }
}

fn rate(zone: &str, burst: u32, key: RateKey) -> RateLimit {
    // So slow that no request leaves its bucket within the test.
    let per = Duration::from_secs(100_000);
    RateLimit { zone: zone.into(), requests: 1, per, burst, key, exempt: Vec::new(), status: 429 }
}

#[test]
fn requests_beyond_a_rate_are_refused_and_a_changed_route_does_not_start_anew() {
    let policy = |burst| Policy { rate_limits: vec![rate("shop/web", burst, RateKey::Client)], ..Policy::default() };
    let mut gateway = guarded(policy(2));
    let codes: Vec<u16> = (0..5).map(|_| code(&gateway.get("a", "/"))).collect();
    assert_eq!(codes, [200, 200, 200, 429, 429]);
    guard(&mut gateway, policy(3));
    assert_eq!([code(&gateway.get("a", "/")), code(&gateway.get("a", "/"))], [200, 429]);
    refused(&gateway, "rate", 3);
    let mut exempt = policy(0);
    exempt.rate_limits[0].exempt = nets(&["127.0.0.0/8"]);
    guard(&mut gateway, exempt);
    assert_eq!(code(&gateway.get("a", "/")), 200);
}

#[test]
fn a_request_that_one_limit_refuses_counts_for_no_other() {
    let key = || RateKey::Header("X-Key".into());
    let policy = Policy { rate_limits: vec![rate("a", 1, RateKey::Client), rate("b", 0, key())], ..Policy::default() };
    let gateway = guarded(policy);
    let ask = |line: &str| code(&get_with(&gateway, "/", &[line]));
    assert_eq!(ask("X-Key: one"), 200);
    assert_eq!((ask("X-Key: one"), ask("x-key: one")), (429, 429));
    // The client has one request left, although two were refused.
    assert_eq!((ask("X-Key: two"), ask("X-Other: three")), (200, 429));
}

#[test]
fn requests_without_the_header_of_a_rate_are_counted_by_client() {
    let policy = Policy { rate_limits: vec![rate("a", 0, RateKey::Header("X-Key".into()))], ..Policy::default() };
    let gateway = guarded(policy);
    let ask = |lines: &[&str]| code(&get_with(&gateway, "/", lines));
    assert_eq!((ask(&[]), ask(&["X-Other: one"])), (200, 429));
    assert_eq!((ask(&["X-Key: one"]), ask(&["X-Key: two"]), ask(&["X-Key: one"])), (200, 200, 429));
    assert_eq!(ask(&["Connection: X-Key", "X-Key: three"]), 429, "the backend would not see the header");
}

#[test]
fn requests_in_progress_are_limited_until_their_responses_are_complete() {
    // The pod sends half of each response, and the rest after a signal on the channel.
    let (go, wait) = mpsc::channel::<()>();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let pod = server.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = server.accept() {
            let _ = next_answer(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
            if wait.recv().is_err() || stream.write_all(b"lf").is_err() {
                return;
            }
        }
    });
    let limit = ConnectionLimit { zone: "shop/web".into(), limit: 1, exempt: Vec::new(), status: 503 };
    let gateway = guarded_by(Policy { connection_limit: Some(limit), ..Policy::default() }, pod);
    let mut first = gateway.connect();
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut half = [0; 64];
    let count = first.read(&mut half).expect("a part");
    assert!(half[..count].starts_with(b"HTTP/1.1 200"));
    assert_eq!(code(&gateway.get("a", "/")), 503);
    go.send(()).expect("a pod");
    assert!(rest_of(first).ends_with("lf"));
    go.send(()).expect("a pod");
    eventually("the request has ended", || code(&gateway.get("a", "/")) == 200);
    // A client that leaves frees its place as well.
    let mut second = gateway.connect();
    second.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let _ = second.read(&mut half).expect("a part");
    drop(second);
    go.send(()).expect("a pod");
    go.send(()).expect("a pod");
    eventually("the client has left", || code(&gateway.get("a", "/")) == 200);
    assert!(shown(&gateway).contains("reason=\"concurrency\""));
}

#[test]
fn an_upgraded_connection_counts_until_it_is_closed() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let limit = ConnectionLimit { zone: "shop/web".into(), limit: 1, exempt: Vec::new(), status: 503 };
    let policy = Policy { connection_limit: Some(limit), ..Policy::default() };
    let gateway = guarded_by(policy, server.local_addr().expect("an address"));
    let mut client = gateway.connect();
    let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(upgrade).expect("sent");
    let (mut pod, _) = server.accept().expect("a connection");
    let _ = next_answer(&mut pod);
    pod.write_all(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").expect("sent");
    assert!(next_answer(&mut client).0.starts_with("http/1.1 101"));
    assert_eq!(code(&gateway.get("a", "/")), 503);
    drop((client, pod));
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = server.accept() {
            let _ = next_answer(&mut stream);
            let _ = stream.write_all(response(200, "again").as_bytes());
        }
    });
    eventually("the connection has ended", || code(&gateway.get("a", "/")) == 200);
}

fn secret(auth: &str) -> Secret {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "users"}, "data": {"auth": STANDARD.encode(auth)},
    }))
    .expect("a Secret")
}

fn basic(text: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(text))
}

fn by_password() -> Policy {
    let (realm, secret) = ("the shop".into(), "shop/users".into());
    Policy { basic_auth: Some(BasicAuth { realm, secret, format: PasswordFormat::File }), ..Policy::default() }
}

#[test]
fn passwords_are_required_and_follow_their_secret() {
    let mut gateway = guarded(by_password());
    let key: Arc<str> = "shop/users".into();
    let ask = |gateway: &TestGateway, text: &str| get_with(gateway, "/", &[&basic(text)]);
    assert_eq!(code(&ask(&gateway, "ann:secret")), 503, "without the Secret nobody may pass");
    gateway
        .trust
        .apply_secret(&key, Some(&secret("ann:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n")));
    let answer = gateway.get("a", "/");
    assert!(code(&answer) == 401 && has_line(&answer, "www-authenticate: Basic realm=\"the shop\""), "{answer}");
    for (text, expected) in [("ann:secret", 200), ("ann:wrong", 401), ("bob:secret", 401), ("ann:secret", 200)] {
        let answer = ask(&gateway, text);
        assert_eq!(code(&answer), expected, "{text}");
        assert!(!answer.to_lowercase().contains("authorization: "), "the backend does not see it: {answer}");
    }
    gateway.trust.apply_secret(&key, Some(&secret("ann:{PLAIN}changed")));
    assert_eq!((code(&ask(&gateway, "ann:secret")), code(&ask(&gateway, "ann:changed"))), (401, 200));
    gateway.trust.apply_secret(&key, None);
    assert_eq!(code(&ask(&gateway, "ann:changed")), 503);
    refused(&gateway, "auth-unavailable", 2);
    refused(&gateway, "password", 4);
}

#[test]
fn preflights_need_no_credentials_and_refusals_are_visible_to_scripts() {
    let mut gateway = guarded(by_password());
    gateway.trust.apply_secret(&"shop/users".into(), Some(&secret("ann:{PLAIN}secret")));
    let cors = json!([{"type": "CORS", "cors": {"allowOrigins": ["https://a.example"], "allowMethods": ["PUT"]}}]);
    let to = with(by_password(), &json!({"filters": cors, "backends": [{"name": "one"}]}));
    gateway.route("http", "web", &[], vec![to]);
    let ask = |method: &str| {
        gateway.ask(&format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nOrigin: https://a.example\r\n\
             Access-Control-Request-Method: PUT\r\n\r\n"
        ))
    };
    for (method, expected) in [("OPTIONS", 204), ("GET", 401)] {
        let answer = ask(method);
        assert_eq!(code(&answer), expected, "{answer}");
        assert!(has_line(&answer, "access-control-allow-origin: https://a.example"), "{answer}");
    }
}

#[test]
fn bodies_that_are_too_long_are_refused_and_the_response_arrives() {
    let gateway = guarded(Policy { body_limit: Some(10), ..Policy::default() });
    let ask = |framing: &str, body: &str| {
        gateway.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{framing}\r\n\r\n{body}"))
    };
    assert_eq!(code(&ask("Content-Length: 10", "0123456789")), 200);
    // More than the buffers of both ends hold: a connection closed with unread data would be reset.
    let long = "x".repeat(8 << 20);
    let answer = ask(&format!("Content-Length: {}", long.len()), &long);
    assert!(code(&answer) == 413 && has_line(&answer, "connection: close"), "{answer}");
    assert_eq!(code(&ask("Content-Length: 11", "01234567890")), 413);
    let waiting = ask("Content-Length: 99\r\nExpect: 100-continue", "");
    assert_eq!(code(&waiting), 413, "{waiting}");
    refused(&gateway, "body", 3);
}

#[test]
fn chunked_bodies_are_refused_when_they_become_too_long() {
    let gateway = guarded_by(Policy { body_limit: Some(10), ..Policy::default() }, chunk_reader());
    let ask = |chunks: &[&str]| {
        let chunks: String = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
        let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        gateway.ask(&format!("{head}{chunks}0\r\n\r\n"))
    };
    assert_eq!(code(&ask(&["01234", "56789"])), 200);
    let long = "x".repeat(1 << 20);
    let answer = ask(&["01234", "567890", &long, &long, &long]);
    assert!(code(&answer) == 413 && has_line(&answer, "connection: close"), "{answer}");
    refused(&gateway, "body", 1);
}

/// Pod that answers when it has read the last chunk of a request.
fn chunk_reader() -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in server.incoming().flatten() {
            let (mut all, mut byte) = (Vec::new(), [0]);
            while stream.read_exact(&mut byte).is_ok() {
                all.push(byte[0]);
                if all.ends_with(b"0\r\n\r\n") {
                    let _ = stream.write_all(response(200, "read").as_bytes());
                    break;
                }
            }
        }
    });
    address
}

#[test]
fn paths_are_rewritten_after_the_filters_of_the_rule() {
    let rewrite = PathRewrite {
        pattern: Pattern::new("^/new(/|$)(.*)").expect("an expression"),
        target: Template::parse("/$2").expect("a template"),
    };
    let policy = Policy { rewrite: Some(rewrite), ..Policy::default() };
    let mut gateway = guarded(policy.clone());
    assert!(gateway.get("a", "/new/x?y=z").contains("\r\n\r\none GET /x?y=z HTTP/1.1"));
    assert!(gateway.get("a", "/other").contains("\r\n\r\none GET /other HTTP/1.1"));
    let path = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"});
    let filters = json!([{"type": "URLRewrite", "urlRewrite": {"path": path}}]);
    let matches = json!([{"path": {"type": "PathPrefix", "value": "/old"}}]);
    let given = json!({"matches": matches, "filters": filters, "backends": [{"name": "one"}]});
    gateway.route("http", "web", &[], vec![with(policy, &given)]);
    assert!(gateway.get("a", "/old/x").contains("\r\n\r\none GET /x HTTP/1.1"));
}

#[test]
fn silence_of_a_backend_ends_in_504() {
    let silent = scripted(|_| String::new());
    let gateway = guarded_by(Policy { read_timeout: Some(millis(50)), ..Policy::default() }, silent);
    assert_eq!(code(&gateway.get("a", "/")), 504);
    // A backend that reads nothing: more than the buffers hold is waiting for it.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let policy = Policy { read_timeout: Some(TIMEOUT), send_timeout: Some(millis(50)), ..Policy::default() };
    let gateway = guarded_by(policy, deaf.local_addr().expect("an address"));
    let mut stream = gateway.connect();
    let mut writer = stream.try_clone().expect("a stream");
    std::thread::spawn(move || {
        let _ = writer.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        while writer.write_all(&piece).is_ok() {}
    });
    let mut start = [0; 12];
    stream.read_exact(&mut start).expect("a response");
    assert_eq!(&start, b"HTTP/1.1 504");
}

#[test]
fn calls_that_are_refused_have_a_grpc_status() {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    gateway.service("one", &[named("one")]);
    let (server, _) = auth_server();
    auth_service(&mut gateway, server);
    gateway.trust.apply_secret(&"shop/users".into(), Some(&secret("ann:{PLAIN}secret")));
    let limit = ConnectionLimit { zone: "z".into(), limit: 0, exempt: Vec::new(), status: 503 };
    let mut full = rate("z", 0, RateKey::Client);
    full.status = 503;
    let rates = Policy { rate_limits: vec![full], ..Policy::default() };
    let cases = [
        ("source", Policy { deny: nets(&["127.0.0.0/8"]), ..Policy::default() }, "/a/b", "7"),
        ("rate", rates, "/a/b", "8"),
        ("concurrency", Policy { connection_limit: Some(limit), ..Policy::default() }, "/a/b", "8"),
        ("password", by_password(), "/a/b", "16"),
        ("login", Policy { external_auth: Some(by_server()), ..Policy::default() }, "/a/401", "16"),
        ("denied", Policy { external_auth: Some(by_server()), ..Policy::default() }, "/a/403", "7"),
        ("closed", Policy { refuse: Some(503), ..Policy::default() }, "/a/b", "14"),
        ("body", Policy { body_limit: Some(3), ..Policy::default() }, "/a/b", "8"),
    ];
    for (host, policy, ..) in &cases {
        gateway.route("http", host, &[host], vec![with(policy.clone(), &json!({"backends": [{"name": "one"}]}))]);
    }
    assert_eq!(code(&gateway.get("rate", "/")), 200, "the only request of the client");
    let address = gateway.address;
    gateway.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        for (host, _, path, expected) in &cases {
            let request = ::http::Request::post(format!("http://{host}{path}"))
                .header("content-type", "application/grpc")
                .body(Full::new(Bytes::from_static(b"hello")))
                .expect("a request");
            let answer = sender.send_request(request).await.expect("an answer");
            assert_eq!(answer.headers()["grpc-status"], *expected, "{host}");
            assert_eq!(answer.status().as_u16(), 200, "{host}");
        }
    });
}
