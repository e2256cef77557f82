//! Lines of the access log for requests and connections to a Gateway.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use routing::policy::{BasicAuth, PasswordFormat, Policy};

use super::stream::tcp;
use super::tls::{Ca, ask, client, secret, tls_server};
use super::*;
use crate::access_log::AccessLogFormat;
use crate::access_log::tests::Lines;
use crate::tests::requests::h2_pod;
use crate::tests::{next_answer, rest_of};

fn logged(listeners: &[ListenerConfig], trust: Trust) -> (TestGateway, Lines) {
    let (log, lines) = Lines::log(AccessLogFormat::Json);
    (TestGateway::configured(listeners, trust, |port| port.access_log = Some(log)), lines)
}

fn http() -> (TestGateway, Lines) {
    logged(&[listener("http", ListenerProtocol::Http, None)], Trust::default())
}

/// A rule of the route `web` to this backend.
fn rule_to(service: &str) -> Rule {
    Rule { route: route_id("web"), ..rule(&json!({"backends": [{"name": service}]})) }
}

/// The only line, without the fields that differ each time.
#[track_caller]
fn only(lines: &Lines) -> Value {
    let mut line = lines.wait_json(1).remove(0);
    let fields = line.as_object_mut().expect("an object");
    assert!(fields.remove("time").is_some_and(|time| time.as_str().is_some_and(|time| time.ends_with('Z'))));
    assert!(fields.remove("durationMs").is_some_and(|time| time.as_f64().is_some_and(|time| time >= 0.0)));
    assert!(fields.remove("clientPort").is_some_and(|port| port.as_u64().is_some_and(|port| port > 0)));
    line
}

#[test]
fn a_request_is_logged_with_what_became_of_it_and_without_credentials() {
    let (mut gateway, lines) = http();
    let pod = scripted(|_| response(201, "made"));
    gateway.service("one", &[pod]);
    gateway.route("http", "web", &[], vec![Rule { index: 3, ..rule_to("one") }]);
    let answer = gateway.ask(
        "POST /a\"b?c=d HTTP/1.1\r\nHost: web.example\r\nUser-Agent: x\"\\é\r\nX-Request-ID: id-1\r\n\
         Referer: https://ann:secret@other.example/?q\r\nAuthorization: Bearer secret\r\nCookie: id=secret\r\n\
         Connection: close\r\nContent-Length: 5\r\n\r\nhello",
    );
    assert_eq!(code(&answer), 201, "{answer}");
    let expected = json!({
        "client": "127.0.0.1", "method": "POST", "scheme": "http", "host": "web.example", "path": "/a\"b?c=d",
        "protocol": "HTTP/1.1", "status": 201, "requestBytes": 5, "responseBytes": 4, "gateway": "shop/public",
        "listener": "http", "port": 80, "route": "HTTPRoute/shop/web", "rule": "3", "service": "shop/one",
        "endpoint": pod.to_string(), "userAgent": "x\"\\é", "referer": "https://other.example/?q", "requestId": "id-1",
    });
    assert_eq!(only(&lines), expected);
}

#[test]
fn credentials_in_a_host_are_rejected_and_not_logged() {
    let (gateway, lines) = http();
    let answer = gateway.ask("GET / HTTP/1.1\r\nHost: ann:secret@web.example\r\nConnection: close\r\n\r\n");
    assert_eq!(code(&answer), 400, "{answer}");
    let line = lines.next_json();
    assert_eq!(
        (&line["status"], &line["host"], &line["reason"]),
        (&json!(400), &json!("web.example"), &json!("rejected"))
    );
    assert!(!line.to_string().contains("secret"), "{line}");
}

#[test]
fn answers_of_the_gateway_have_a_reason() {
    let (mut gateway, lines) = http();
    gateway.service("one", &[named("one")]);
    gateway.service("empty", &[]);
    gateway.service("refusing", &[unused_address()]);
    gateway.route("http", "one", &["one"], vec![rule_to("one")]);
    gateway.route("http", "empty", &["empty"], vec![rule_to("empty")]);
    gateway.route("http", "refusing", &["refusing"], vec![rule_to("refusing")]);
    gateway.route("http", "invalid", &["invalid"], vec![rule_to("invalid")]);
    let redirect = json!([{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]);
    gateway.route("http", "redirect", &["redirect"], vec![rule(&json!({"filters": redirect}))]);
    for (request, status, reason) in [
        ("GET / HTTP/1.1\r\nHost: one", 200, None),
        ("HEAD / HTTP/1.1\r\nHost: one", 200, None),
        ("HEAD / HTTP/1.1\r\nHost: unknown", 404, Some("no-route")),
        ("GET / HTTP/1.1\r\nHost: unknown", 404, Some("no-route")),
        ("GET / HTTP/1.1\r\nHost: empty", 503, Some("no-endpoints")),
        ("GET / HTTP/1.1\r\nHost: refusing", 502, Some("connect-failed")),
        ("GET / HTTP/1.1\r\nHost: invalid", 500, Some("invalid-rule")),
        ("GET / HTTP/1.1\r\nHost: redirect", 302, Some("redirect")),
        ("GET / HTTP/1.1\r\nHost: one\r\nHost: two", 400, Some("rejected")),
    ] {
        assert_eq!(code(&gateway.ask(&format!("{request}\r\nConnection: close\r\n\r\n"))), status, "{request}");
        // Lines come in the order of connections, because each is closed before the next.
        let line = lines.next_json();
        assert_eq!((&line["status"], &line["reason"]), (&json!(status), &json!(reason)), "{request}: {line}");
        assert_eq!(line.get("aborted"), None, "{request}: {line}");
        assert_eq!(line["gateway"], "shop/public");
    }
}

#[test]
fn the_user_of_a_right_password_is_logged() {
    let (mut gateway, lines) = http();
    gateway.service("one", &[named("one")]);
    let auth = BasicAuth { realm: "shop".into(), secret: "shop/users".into(), format: PasswordFormat::File };
    let policy = Policy { basic_auth: Some(auth), ..Policy::default() };
    gateway.route("http", "web", &[], vec![Rule { policy: Some(Arc::new(policy)), ..rule_to("one") }]);
    let secret = json!({
        "metadata": {"namespace": "shop", "name": "users"}, "data": {"auth": STANDARD.encode("ann:{PLAIN}secret")},
    });
    let secret = serde_json::from_value(secret).expect("a Secret");
    gateway.trust.apply_secret(&"shop/users".into(), Some(&secret));
    for (password, status, reason, user) in
        [("secret", 200, json!(null), json!("ann")), ("wrong", 401, json!("password"), json!(null))]
    {
        let credentials = STANDARD.encode(format!("ann:{password}"));
        let answer = gateway.ask(&format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Basic {credentials}\r\n\r\n"
        ));
        assert_eq!(code(&answer), status);
        let line = lines.next_json();
        assert_eq!((&line["status"], &line["reason"], &line["user"]), (&json!(status), &reason, &user), "{line}");
    }
}

#[test]
fn a_client_that_goes_away_is_seen_before_and_within_the_response() {
    let (mut gateway, lines) = http();
    let (asked, asks) = mpsc::channel();
    let asked = parking_lot::Mutex::new(asked);
    let pod = scripted(move |request| {
        let _ = asked.lock().send(());
        let part = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
        if request.starts_with("GET /part") { part.to_owned() } else { String::new() }
    });
    gateway.service("one", &[pod]);
    gateway.route("http", "web", &[], vec![rule_to("one")]);
    let mut stream = gateway.connect();
    stream.write_all(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    asks.recv_timeout(TIMEOUT).expect("the request arrives");
    drop(stream);
    let line = lines.next_json();
    assert_eq!((&line["status"], &line["aborted"]), (&json!(499), &json!(true)), "{line}");
    assert_eq!((&line["route"], &line["endpoint"]), (&json!("HTTPRoute/shop/web"), &json!(pod.to_string())), "{line}");
    let mut stream = gateway.connect();
    stream.write_all(b"GET /part HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\nabc") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("more");
        seen.push(byte[0]);
    }
    drop(stream);
    let line = lines.next_json();
    assert_eq!(
        (&line["status"], &line["aborted"], &line["responseBytes"], &line["reason"]),
        (&json!(200), &json!(true), &json!(3), &json!(null)),
        "{line}"
    );
}

#[test]
fn a_response_that_the_backend_breaks_off_is_not_the_fault_of_the_client() {
    let (mut gateway, lines) = http();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    gateway.service("one", &[server.local_addr().expect("an address")]);
    gateway.route("http", "web", &[], vec![rule_to("one")]);
    let mut stream = gateway.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let (mut pod, _) = server.accept().expect("a connection");
    next_answer(&mut pod);
    pod.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").expect("sent");
    drop(pod);
    rest_of(stream);
    let line = only(&lines);
    assert_eq!((&line["status"], &line["reason"]), (&json!(200), &json!("response-incomplete")), "{line}");
    assert_eq!(line.get("aborted"), None, "{line}");
}

#[test]
fn an_upgraded_connection_is_logged_when_it_is_closed() {
    let (mut gateway, lines) = http();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    gateway.service("one", &[server.local_addr().expect("an address")]);
    gateway.route("http", "web", &[], vec![rule_to("one")]);
    let mut client = gateway.connect();
    let request = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(request).expect("sent");
    let (mut pod, _) = server.accept().expect("a connection");
    next_answer(&mut pod);
    pod.write_all(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").expect("sent");
    next_answer(&mut client);
    client.write_all(b"there").expect("sent");
    pod.read_exact(&mut [0; 5]).expect("received");
    pod.write_all(b"again!").expect("sent");
    drop(pod);
    assert_eq!(rest_of(client), "again!");
    let line = only(&lines);
    assert_eq!(
        (&line["status"], &line["requestBytes"], &line["responseBytes"]),
        (&json!(101), &json!(5), &json!(6)),
        "{line}"
    );
    assert_eq!((line.get("aborted"), line.get("reason")), (None, None), "{line}");
}

#[test]
fn calls_have_their_grpc_status() {
    let (mut gateway, lines) = http();
    let pod = h2_pod(&gateway.runtime);
    gateway.service("one", &[pod]);
    gateway.route("http", "web", &["one"], vec![rule_to("one")]);
    let address = gateway.address;
    gateway.runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        for host in ["one", "unknown"] {
            let request = ::http::Request::post(format!("http://{host}/echo.Echo/Say"))
                .header("content-type", "application/grpc")
                .body(Full::new(Bytes::from_static(b"\0\0\0\0\x02hi")))
                .expect("a request");
            let answer = sender.send_request(request).await.expect("an answer");
            answer.into_body().collect().await.expect("a body");
        }
    });
    let mut all = lines.wait_json(2);
    all.sort_by_key(|line| line["host"].to_string());
    let fields = ["host", "protocol", "status", "grpcStatus", "reason", "requestBytes", "responseBytes", "aborted"];
    let shown = |line: &Value| fields.map(|field| line[field].clone());
    let served = [json!("one"), json!("HTTP/2.0"), json!(200), json!(0), json!(null), json!(7), json!(7), json!(null)];
    assert_eq!(shown(&all[0]), served);
    let unknown = [
        json!("unknown"),
        json!("HTTP/2.0"),
        json!(200),
        json!(12),
        json!("no-route"),
        json!(0),
        json!(0),
        json!(null),
    ];
    assert_eq!(shown(&all[1]), unknown);
}

#[test]
fn connections_are_logged_when_they_are_closed() {
    let (mut gateway, lines) = logged(&[listener("tcp", ListenerProtocol::Tcp, None)], Trust::default());
    assert_eq!(rest_of(gateway.connect()), "");
    let line = only(&lines);
    assert_eq!((&line["status"], &line["reason"]), (&json!(502), &json!("no-route")), "{line}");
    let pod = tcp("one");
    gateway.service("one", &[pod]);
    gateway.stream("tcp", RouteKind::Tcp, "db", &[], &[json!({"name": "one"})]);
    let mut stream = gateway.connect();
    stream.write_all(b"hello").expect("sent");
    assert_eq!(rest_of(stream), "onehello");
    let line = lines.wait_json(2).remove(1);
    for (field, expected) in [
        ("protocol", json!("TCP")),
        ("status", json!(200)),
        ("requestBytes", json!(5)),
        ("responseBytes", json!(8)),
        ("gateway", json!("shop/public")),
        ("listener", json!("tcp")),
        ("route", json!("TCPRoute/shop/db")),
        ("service", json!("shop/one")),
        ("endpoint", json!(pod.to_string())),
        ("method", json!(null)),
        ("reason", json!(null)),
    ] {
        assert_eq!(line[field], expected, "{field}: {line}");
    }
}

#[test]
fn lines_have_the_server_name_and_the_version_of_tls() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    secret(&mut trust, "end", &ca.sign(&["end.example"]));
    secret(&mut trust, "https", &ca.sign(&["web.example"]));
    let listeners = [
        listener("pass", ListenerProtocol::TlsPassthrough, Some("pass.example")),
        listener("end", ListenerProtocol::TlsTerminate, Some("end.example")),
        listener("https", ListenerProtocol::Https, Some("web.example")),
    ];
    let (mut gateway, lines) = logged(&listeners, trust);
    gateway.service("secure", &[tls_server("secure", &ca.sign(&["pass.example"]), None)]);
    gateway.service("plain", &[scripted(|_| response(200, "plain"))]);
    gateway.service("empty", &[]);
    gateway.stream("pass", RouteKind::Tls, "pass", &["pass.example"], &[json!({"name": "secure"})]);
    gateway.stream("end", RouteKind::Tls, "end", &["end.example"], &[json!({"name": "empty"})]);
    gateway.route("https", "web", &[], vec![rule_to("plain")]);
    let request = "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n";
    for (name, fields) in [
        ("pass.example", json!(["TLS", "pass", "TLSRoute/shop/pass", null, 200, null])),
        ("end.example", json!(["TLS", "end", "TLSRoute/shop/end", "TLSv1.3", 502, "no-endpoints"])),
        ("web.example", json!(["HTTP/1.1", "https", "HTTPRoute/shop/web", "TLSv1.3", 200, null])),
    ] {
        let _ = ask(client(&gateway, &ca, name, None), request);
        let line = lines.next_json();
        let shown = ["protocol", "listener", "route", "tlsVersion", "status", "reason"].map(|field| &line[field]);
        assert_eq!((json!(shown), &line["serverName"]), (fields, &json!(name)), "{line}");
        assert_eq!(line["port"], 443);
    }
}
