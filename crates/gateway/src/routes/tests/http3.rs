//! HTTP/3: a client of quinn and h3, a QUIC listener, and pods over loopback.

mod limits;
mod malformed;
mod objects;

use std::future::poll_fn;

use ::http::{HeaderMap, Request, StatusCode};
use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use h3::error::Code;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, Endpoint, VarInt};
use routing::policy::Policy;
use rustls::ClientConfig;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::tls::{Ca, ask as tcp_ask, client as tcp_client, secret};
use super::*;
use crate::access_log::AccessLogFormat;
use crate::access_log::tests::Lines;
use crate::http3::QuicListener;
use crate::tests::requests::h2_pod;

/// A Gateway whose HTTPS listeners are served over QUIC.
struct QuicGateway {
    inner: TestGateway,
    address: SocketAddr,
    listener: Option<QuicListener>,
}

/// A client with a socket of its own.
struct Client {
    runtime: Runtime,
    endpoint: Endpoint,
    config: quinn::ClientConfig,
}

/// A connection of a client.
struct Session {
    connection: quinn::Connection,
    requests: SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<h3::error::ConnectionError>,
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl QuicGateway {
    fn new(listeners: &[ListenerConfig], trust: Trust) -> Self {
        Self::configured(listeners, trust, |_| {})
    }

    fn configured(listeners: &[ListenerConfig], trust: Trust, configure: impl FnOnce(&mut PortConfig)) -> Self {
        let inner = TestGateway::configured(listeners, trust, configure);
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = QuicListener::open(here, &inner.port_config, &inner.workers).expect("a port");
        Self { address: listener.address, listener: Some(listener), inner }
    }

    /// One listener for all hosts with one route to a pod that answers with its name and the request.
    fn simple(ca: &Ca, configure: impl FnOnce(&mut PortConfig)) -> Self {
        let mut trust = Trust::default();
        secret(&mut trust, "https", &ca.sign(&["web.example"]));
        let mut gateway = Self::configured(&[https(None)], trust, configure);
        gateway.inner.service("one", &[named("one")]);
        gateway.inner.simple("https", "web", &[], &["one"]);
        gateway
    }

    /// How often a limit was reached.
    fn limited(&self, limit: &str) -> u64 {
        let mut counts = self.inner.port_config.metrics.quic.counts();
        counts.find(|(name, _)| *name == limit).expect("a limit").1
    }
}

fn https(hostname: Option<&str>) -> ListenerConfig {
    listener("https", ListenerProtocol::Https, hostname)
}

impl Client {
    fn new(ca: &Ca) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let mut tls = builder.expect("a version").with_root_certificates(ca.roots()).with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let inside = runtime.enter();
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        drop(inside);
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a configuration")));
        endpoint.set_default_client_config(config.clone());
        Self { runtime, endpoint, config }
    }

    /// With this time without packets after which connections are lost.
    fn impatient(ca: &Ca, patience: Duration) -> Self {
        let mut new = Self::new(ca);
        new.transport(|transport| {
            transport.max_idle_timeout(Some(patience.try_into().expect("a time")));
        });
        new
    }

    /// With other settings of QUIC.
    fn transport(&mut self, configure: impl FnOnce(&mut quinn::TransportConfig)) {
        let mut transport = quinn::TransportConfig::default();
        configure(&mut transport);
        self.config.transport_config(Arc::new(transport));
        self.endpoint.set_default_client_config(self.config.clone());
    }

    async fn open(&self, to: SocketAddr, server_name: &str) -> Result<Session, ConnectionError> {
        let connecting = self.endpoint.connect(to, server_name).expect("a server name");
        let connection = connecting.await?;
        let built = h3::client::builder().build(h3_quinn::Connection::new(connection.clone())).await;
        let (mut http, requests) = built.map_err(|_| connection.close_reason().expect("a reason"))?;
        let driver = tokio::spawn(async move { poll_fn(|cx| http.poll_close(cx)).await });
        Ok(Session { connection, requests, driver })
    }

    fn connect(&self, gateway: &QuicGateway, server_name: &str) -> Result<Session, ConnectionError> {
        self.runtime.block_on(self.open(gateway.address, server_name))
    }

    #[track_caller]
    fn ask(&self, session: &mut Session, request: Request<()>, body: Option<Bytes>) -> Answer {
        self.runtime.block_on(session.ask(request, body)).expect("an answer")
    }

    #[track_caller]
    fn get(&self, session: &mut Session, url: &str) -> Answer {
        self.ask(session, Request::get(url).body(()).expect("a request"), None)
    }

    /// Why a connection was closed.
    fn closed(&self, session: &Session) -> ConnectionError {
        let closed = self.runtime.block_on(async { timeout(TIMEOUT, session.connection.closed()).await });
        closed.expect("a connection that is closed")
    }
}

impl Session {
    async fn ask(&mut self, request: Request<()>, body: Option<Bytes>) -> Result<Answer, Failed> {
        let mut stream = self.requests.send_request(request).await?;
        if let Some(body) = body {
            stream.send_data(body).await?;
        }
        stream.finish().await?;
        let head = stream.recv_response().await?;
        let mut all = Vec::new();
        while let Some(mut piece) = stream.recv_data().await? {
            all.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        let trailers = stream.recv_trailers().await?;
        Ok(Answer { status: head.status(), headers: head.headers().clone(), body: all, trailers })
    }
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Whether a connection was closed with this error of HTTP/3.
fn is_closed_with(error: &ConnectionError, code: Code) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(close)
        if Ok(close.error_code) == VarInt::from_u64(code.value()))
}

#[test]
fn requests_and_bodies_are_proxied_as_over_tcp() {
    let ca = Ca::new();
    let (log, lines) = Lines::log(AccessLogFormat::Json);
    let gateway = QuicGateway::simple(&ca, |port| port.access_log = Some(log));
    let client = Client::new(&ca);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    let body = Bytes::from("0123456789".repeat(100_000));
    let request = Request::post("https://web.example/path?query=1")
        .header("content-length", body.len())
        .header("cookie", "a=b")
        .header("cookie", "c=d")
        .body(())
        .expect("a request");
    let answer = client.ask(&mut session, request, Some(body.clone()));
    let text = answer.text();
    assert_eq!(answer.status, 200, "{answer:?}");
    let (head, echo) = text.split_once("\r\n\r\n").expect("a request");
    assert!(head.starts_with("one POST /path?query=1 HTTP/1.1\r\n"), "{head}");
    assert!(echo.as_bytes() == &body[..], "{} bytes of the body", echo.len());
    let head = head.to_lowercase();
    for line in [
        "host: web.example",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-port: 443",
        "x-forwarded-proto: https",
        "cookie: a=b; c=d",
        "content-length: 1000000",
    ] {
        assert!(head.lines().any(|one| one == line), "{line} is no line of {head}");
    }
    assert_eq!(answer.header("content-length"), Some(text.len().to_string().as_str()));
    assert!(answer.header("date").is_some_and(|date| date.ends_with(" GMT")), "{answer:?}");
    let line = lines.wait_json(1).remove(0);
    for (field, expected) in [
        ("protocol", json!("HTTP/3.0")),
        ("status", json!(200)),
        ("scheme", json!("https")),
        ("host", json!("web.example")),
        ("tlsVersion", json!("TLSv1.3")),
        ("serverName", json!("web.example")),
        ("requestBytes", json!(body.len())),
        ("responseBytes", json!(text.len())),
    ] {
        assert_eq!(line[field], expected, "{field} of {line}");
    }
    // Without a body, and without a length that says so.
    let answer = client.get(&mut session, "https://web.example/");
    assert!(!answer.text().to_lowercase().contains("transfer-encoding"), "{}", answer.text());
    let head = Request::head("https://web.example/").body(()).expect("a request");
    let answer = client.ask(&mut session, head, None);
    assert!(answer.status == 200 && answer.body.is_empty(), "{answer:?}");
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200, "the connection is kept");
}

#[test]
fn grpc_calls_have_their_trailers() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    secret(&mut trust, "https", &ca.sign(&["web.example"]));
    let mut gateway = QuicGateway::new(&[https(None)], trust);
    let pod = h2_pod(&gateway.inner.runtime);
    gateway.inner.service("calls", &[pod]);
    gateway.inner.simple("https", "web", &[], &["calls"]);
    let client = Client::new(&ca);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    let call = Request::post("https://web.example/echo.Echo/Say").header("content-type", "application/grpc");
    let call = call.header("te", "trailers").body(()).expect("a request");
    let answer = client.ask(&mut session, call, Some(Bytes::from_static(b"\0\0\0\0\x02hi")));
    assert_eq!(answer.body, b"\0\0\0\0\x02hi", "{answer:?}");
    assert!(answer.header("x-shown").is_some_and(|shown| shown.contains("te=Some(\"trailers\")")), "{answer:?}");
    let status = answer.trailers.and_then(|trailers| trailers.get("grpc-status").cloned());
    assert_eq!(status, Some(HeaderValue::from_static("0")));
}

#[test]
fn the_server_name_selects_certificate_and_listener_and_other_hosts_are_421() {
    let (ca, mut trust) = (Ca::new(), Trust::default());
    for name in ["one", "two"] {
        secret(&mut trust, name, &ca.sign(&[&format!("{name}.example")]));
    }
    let at = |name: &str| listener(name, ListenerProtocol::Https, Some(&format!("{name}.example")));
    let pass = listener("pass", ListenerProtocol::TlsPassthrough, Some("pass.example"));
    let mut gateway = QuicGateway::new(&[at("one"), at("two"), pass], trust);
    for name in ["one", "two"] {
        gateway.inner.service(name, &[named(if name == "one" { "one" } else { "two" })]);
        gateway.inner.simple(name, name, &[], &[name]);
    }
    let client = Client::new(&ca);
    for name in ["one", "two"] {
        let mut session = client.connect(&gateway, &format!("{name}.example")).expect("a connection");
        let answer = client.get(&mut session, &format!("https://{name}.example/"));
        assert!(answer.text().starts_with(name), "{answer:?}");
        let other = if name == "one" { "two" } else { "one" };
        assert_eq!(client.get(&mut session, &format!("https://{other}.example/")).status, 421);
        assert_eq!(client.get(&mut session, "https://unknown.example/").status, 404);
    }
    for name in ["unknown.example", "pass.example"] {
        let error = client.connect(&gateway, name).err().expect("no listener");
        assert!(matches!(error, ConnectionError::ConnectionClosed(_)), "{name}: {error:?}");
    }
}

#[test]
fn policies_hold_for_requests_and_source_ranges_for_connections() {
    let ca = Ca::new();
    let mut gateway = QuicGateway::simple(&ca, |_| {});
    let policy = Policy { body_limit: Some(10), ..Policy::default() };
    let limited = Rule { policy: Some(Arc::new(policy)), ..rule(&json!({"backends": [{"name": "one"}]})) };
    gateway.inner.route("https", "web", &["limited.example"], vec![limited]);
    let policy = Policy { deny: vec!["127.0.0.0/8".parse().expect("a range")], ..Policy::default() };
    let denied = Rule { policy: Some(Arc::new(policy)), ..rule(&json!({"backends": [{"name": "one"}]})) };
    gateway.inner.route("https", "denied", &["denied.example"], vec![denied]);
    let client = Client::impatient(&ca, millis(500));
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    assert_eq!(client.get(&mut session, "https://denied.example/").status, 403);
    for (length, expected) in [(10, 200), (11, 413)] {
        for is_declared in [true, false] {
            let mut request = Request::post("https://limited.example/");
            if is_declared {
                request = request.header("content-length", length);
            }
            let body = Bytes::from(vec![b'x'; length]);
            // The pod of this test reads only what has a length.
            if is_declared || expected == 413 {
                let answer = client.ask(&mut session, request.body(()).expect("a request"), Some(body));
                assert_eq!(answer.status, expected, "{length} bytes, declared: {is_declared}");
            }
        }
    }
    // The listener's own address is always allowed: the client needs another.
    let elsewhere = std::net::UdpSocket::bind("127.0.0.2:0").expect("an address of loopback");
    let inside = client.runtime.enter();
    client.endpoint.rebind(elsewhere).expect("a socket");
    drop(inside);
    assert!(client.connect(&gateway, "web.example").is_ok(), "without source ranges");
    let sources = crate::source_ranges::SourceRanges::of(&["192.0.2.0/24".into()]);
    gateway.inner.port_config.sources.store(Arc::new(sources));
    let error = client.connect(&gateway, "web.example").err();
    assert!(matches!(error, Some(ConnectionError::TimedOut)), "no datagram is answered: {error:?}");
}

#[test]
fn responses_announce_http3_unless_something_else_says_where_it_is() {
    let ca = Ca::new();
    let mut gateway = QuicGateway::simple(&ca, |_| {});
    let set = json!({"type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": "Alt-Svc", "value": "clear"}]}});
    let rule = rule(&json!({"filters": [set], "backends": [{"name": "one"}]}));
    gateway.inner.route("https", "set", &["set.example"], vec![rule]);
    let over_tcp = |host: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = tcp_ask(tcp_client(&gateway.inner, &ca, "web.example", None), &request).expect("an answer");
        answer.to_lowercase().lines().find_map(|line| line.strip_prefix("alt-svc: ").map(str::to_owned))
    };
    assert_eq!(over_tcp("web.example"), None, "it is not served over QUIC");
    let Serving::Routes(port) = &gateway.inner.port_config.serving else { panic!("a port of a Gateway") };
    port.advertise_http3(Some(443));
    assert_eq!(over_tcp("web.example").as_deref(), Some("h3=\":443\"; ma=3600"));
    assert_eq!(over_tcp("set.example").as_deref(), Some("clear"));
    let client = Client::new(&ca);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    let answer = client.get(&mut session, "https://web.example/");
    assert_eq!(answer.header("alt-svc"), Some("h3=\":443\"; ma=3600"));
}

#[test]
fn changes_of_certificates_and_routes_fail_no_request_and_close_no_connection() {
    let ca = Ca::new();
    let mut gateway = QuicGateway::simple(&ca, |_| {});
    let client = Client::new(&ca);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    let requests = client.runtime.spawn(async move {
        let mut count = 0;
        while !*stopped.borrow() {
            let request = Request::get("https://web.example/").body(()).expect("a request");
            let answer = session.ask(request, None).await.expect("an answer");
            assert_eq!(answer.status, 200, "{answer:?}");
            count += 1;
        }
        count
    });
    let mut seen = std::collections::HashSet::new();
    for change in 0..30 {
        secret(&mut gateway.inner.trust, "https", &ca.sign(&["web.example"]));
        gateway.inner.reload(&[https(None)]);
        gateway.inner.simple("https", &format!("other-{change}"), &["other.example"], &["one"]);
        let mut new = client.connect(&gateway, "web.example").expect("a connection");
        assert_eq!(client.get(&mut new, "https://web.example/").status, 200);
        let shown = new.connection.peer_identity().expect("certificates");
        let shown = shown.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().expect("certificates");
        seen.insert(shown[0].to_vec());
        new.driver.abort();
    }
    assert_eq!(seen.len(), 30, "each connection has the certificate of its time");
    stop.send_replace(true);
    let answered = client.runtime.block_on(requests).expect("no failed request and no closed connection");
    assert!(answered > 0, "requests flowed meanwhile");
}
