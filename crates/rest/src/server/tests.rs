//! Connections without a request, from the side of the client: which are closed, and when.

use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::audit::{LogOptions, Mode, Policy};
use crate::auth::objects;
use crate::auth::service_account::ServiceAccounts;
use crate::auth::token_file::TokenFile;
use crate::pki::rotation::{self, Target};
use crate::pki::scratch::Scratch;
use crate::pki::{Pki, ServingNames, load_or_create};

const SHORT: Duration = Duration::from_millis(300);
/// Upper bound for anything that a test awaits.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server with limits of its own, until it is dropped.
struct Fixture {
    address: SocketAddr,
    pki: Arc<Pki>,
    identity: Live,
    scratch_names: ServingNames,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
    scratch: Scratch,
}

impl Fixture {
    async fn start(connections: ConnectionLimits) -> Self {
        Self::start_with(connections, None).await
    }

    async fn start_with(connections: ConnectionLimits, audit: Option<Audit>) -> Self {
        let scratch = Scratch::new();
        let names = ServingNames { ips: vec![[127, 0, 0, 1].into()], dns: Vec::new() };
        let pki = load_or_create(&scratch.path().join("pki"), &names, Timestamp::now()).unwrap();
        let identity = Live::new(pki);
        let pki = identity.get();
        let index = |_: &str, _: &[u8]| api::facts::Facts::default();
        let store = store::Embedded::open(scratch.path().join("store"), index, store::Options::default()).unwrap();
        let store: Arc<dyn store::Store> = Arc::new(store);
        let accounts = ServiceAccounts::new(pki.signing_key(), "cluster.local").unwrap();
        let server = Server::bind(Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            beside: Vec::new(),
            local: None,
            identity: identity.clone(),
            clients: Arc::default(),
            authn: Authenticator::new(TokenFile::default(), accounts, objects::stored(store.clone())),
            store,
            agents: false,
            local_node: None,
            plugins: Plugins::default(),
            allocates_pod_cidrs: false,
            ranges: store::allocation::Ranges {
                addresses: vec!["10.96.0.0/16".parse().unwrap()],
                ports: 30000..=32767,
            },
            ingresses: ServedIngresses::default(),
            connections,
            max_in_flight: 100,
            request_timeout: TIMEOUT,
            audit,
            extra_metrics: Box::new(String::new),
        });
        let server = server.await.unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, pki, identity, scratch_names: names, stop, ended, scratch }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection of the administrator, after its handshake.
    async fn tls(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        self.try_tls(protocol).await.unwrap()
    }

    async fn try_tls(&self, protocol: &[u8]) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.pki.ca_der().clone()).unwrap();
        let admin = self.pki.admin();
        let chain = vec![CertificateDer::from_pem_slice(admin.certificate_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(admin.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.unwrap().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::IpAddress(self.address.ip().into());
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp().await).await
    }

    /// A connection for one request, and its end.
    async fn http1(&self) -> (http1::SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>) {
        let (sender, connection) = http1::handshake(TokioIo::new(self.tls(b"http/1.1").await)).await.unwrap();
        (sender, tokio::spawn(connection))
    }
}

/// Idle connections end soon.
fn short() -> ConnectionLimits {
    ConnectionLimits {
        handshake_timeout: SHORT,
        first_request_timeout: SHORT,
        idle_timeout: SHORT,
        close_timeout: SHORT,
        ..ConnectionLimits::default()
    }
}

/// Reads to the end of a connection, whichever way it ends.
async fn end(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut read = Vec::new();
    let _ = within("the end of a connection", stream.read_to_end(&mut read)).await;
    read
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("timed out: {what}"))
}

fn request(method: &str, path: &str, body: &'static str) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(path).header("host", "127.0.0.1");
    builder.header("content-type", "application/json").body(Full::from(body)).unwrap()
}

#[tokio::test]
async fn connections_without_a_request_are_closed() {
    let fixture = Fixture::start(short()).await;
    assert_eq!(end(fixture.tcp().await).await, b"", "no handshake");
    let begun = Instant::now();
    assert_eq!(end(fixture.tls(b"http/1.1").await).await, b"", "no request");
    assert!(begun.elapsed() >= SHORT, "it had its time");
    let mut half = fixture.tls(b"http/1.1").await;
    half.write_all(b"GET /heal").await.unwrap();
    let said = end(half).await;
    assert!(!said.starts_with(b"HTTP/1.1 200"), "{said:?}");
}

#[tokio::test]
async fn an_http2_client_that_acknowledges_nothing_is_cut_off() {
    let fixture = Fixture::start(short()).await;
    let mut silent = fixture.tls(b"h2").await;
    // The preface and empty SETTINGS, and then nothing whatever the server sends.
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let said = end(silent).await;
    let goaway = |frame: &[u8]| frame[3] == 7;
    let mut rest = &said[..];
    let mut seen = false;
    while let [a, b, c, ..] = *rest {
        seen |= goaway(rest);
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    assert!(seen, "the end was announced: {said:02x?}");
}

#[tokio::test]
async fn connections_are_closed_some_time_after_their_last_request() {
    let fixture = Fixture::start(ConnectionLimits { first_request_timeout: TIMEOUT, ..short() }).await;
    let (mut one, ended) = fixture.http1().await;
    assert_eq!(one.send_request(request("GET", "/healthz", "")).await.unwrap().status(), 200);
    within("the end of HTTP/1.1", ended).await.unwrap().unwrap();

    let stream = TokioIo::new(fixture.tls(b"h2").await);
    let (mut two, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let ended = tokio::spawn(connection);
    let answer = two.send_request(request("GET", "https://127.0.0.1/healthz", "")).await.unwrap();
    assert_eq!(answer.status(), 200);
    within("the end of HTTP/2", ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_stay_open_between_requests() {
    let fixture = Fixture::start(ConnectionLimits::default()).await;
    let (mut one, _) = fixture.http1().await;
    for _ in 0..3 {
        one.ready().await.unwrap();
        let answer = one.send_request(request("GET", "/healthz", "")).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        // Go keeps an unused connection for this long.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(90)).await;
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_watch_without_events_is_not_idle() {
    let fixture = Fixture::start(ConnectionLimits { first_request_timeout: TIMEOUT, ..short() }).await;
    let (mut sender, _) = fixture.http1().await;
    let watch = sender.send_request(request("GET", "/api/v1/namespaces?watch=true", "")).await.unwrap();
    assert_eq!(watch.status(), 200);
    // Other connections send one request and are closed for being idle: the watch exceeds their idle timeout.
    for _ in 0..3 {
        let (mut other, ended) = fixture.http1().await;
        assert_eq!(other.send_request(request("GET", "/healthz", "")).await.unwrap().status(), 200);
        within("the end of an idle connection", ended).await.unwrap().unwrap();
    }
    let (mut writer, _) = fixture.http1().await;
    let made = writer.send_request(request("POST", "/api/v1/namespaces", r#"{"metadata": {"name": "new"}}"#)).await;
    assert_eq!(made.unwrap().status(), 201);
    let event = within("an event", watch.into_body().frame()).await.unwrap().unwrap();
    assert!(event.into_data().unwrap().starts_with(br#"{"type":"ADDED""#));
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_before_the_handshake() {
    let hour = Duration::from_hours(1);
    let limits = ConnectionLimits { total: 4, handshake_timeout: hour, first_request_timeout: hour, ..short() };
    let fixture = Fixture::start(limits).await;
    let (first, second) = (fixture.tls(b"http/1.1").await, fixture.tls(b"http/1.1").await);
    assert_eq!(end(fixture.tcp().await).await, b"", "loopback may have half, and has it");
    assert!(fixture.try_tls(b"http/1.1").await.is_err());
    drop(first);
    // The slot is free when the server has read the end of the connection.
    let third = async { while fixture.try_tls(b"http/1.1").await.is_err() {} };
    within("room for another", third).await;
    drop(second);
}

#[tokio::test]
async fn requests_are_in_the_audit_log_with_the_id_of_their_response() {
    let scratch = Scratch::new();
    let path = scratch.path().join("audit.log");
    let rules = "rules: [{level: None, nonResourceURLs: [/healthz]}, {level: Metadata}]";
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n{rules}");
    let (policy, _) = Policy::parse(policy.as_bytes()).unwrap();
    let log = LogOptions { path: Some(path.clone()), max_size: 1, max_backups: 1, max_age_days: 1, compress: false };
    let audit = Audit::open(policy, &log, Mode::BlockingStrict).unwrap();
    let fixture = Fixture::start_with(ConnectionLimits::default(), Some(audit)).await;
    let (mut sender, _) = fixture.http1().await;
    let mut ids = Vec::new();
    for (method, path, body, id) in [
        ("GET", "/healthz", "", "health"),
        ("POST", "/api/v1/namespaces", r#"{"metadata": {"name": "new"}}"#, "own-id"),
        ("GET", "/api/v1/namespaces/missing?pretty=true", "", "bad id"),
        ("GET", "/api/v1/namespaces?watch=true&timeoutSeconds=1", "", "watch"),
    ] {
        let mut request = request(method, path, body);
        request.headers_mut().insert("audit-id", id.parse().unwrap());
        let response = sender.send_request(request).await.unwrap();
        ids.push(response.headers()["audit-id"].to_str().unwrap().to_owned());
        within("the whole response", response.into_body().collect()).await.unwrap();
    }
    assert_eq!([&*ids[0], &*ids[1], &*ids[3]], ["health", "own-id", "watch"]);
    assert_eq!(ids[2].len(), 36, "{ids:?}");
    drop(sender);
    let _ = fixture.stop.send(());
    within("the end of the server", fixture.ended).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<String> = events
        .iter()
        .map(|event| {
            format!("{} {} {}", event["auditID"], event["stage"], event["responseStatus"]["code"]).replace('"', "")
        })
        .collect();
    let missing = format!("{} ResponseComplete 404", ids[2]);
    assert_eq!(
        told,
        ["own-id ResponseComplete 201", &missing, "watch ResponseStarted 200", "watch ResponseComplete 200"]
    );
    let created = &events[0];
    assert_eq!(created["sourceIPs"], serde_json::json!(["127.0.0.1"]));
    assert_eq!(created["user"]["groups"], serde_json::json!(["system:masters", "system:authenticated"]));
    assert_eq!(created["objectRef"], serde_json::json!({"resource": "namespaces", "name": "new", "apiVersion": "v1"}));
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(events[1]["responseStatus"]["reason"], "NotFound");
}

#[tokio::test]
async fn a_connection_is_closed_when_its_client_ca_is_distrusted() {
    let fixture = Fixture::start(ConnectionLimits::default()).await;
    let dir = fixture.scratch.path().join("pki");
    let reload = || fixture.identity.replace(load_or_create(&dir, &fixture.scratch_names, Timestamp::now()).unwrap());
    let get = || Request::get("/version").header("host", "x").body(Full::<Bytes>::default()).unwrap();
    let (mut old, old_ended) = fixture.http1().await;
    assert_eq!(old.send_request(get()).await.unwrap().status(), 200);
    rotation::rotate(&dir, &[Target::Ca, Target::Serving], Timestamp::now()).unwrap();
    assert!(reload());
    assert_eq!(old.send_request(get()).await.unwrap().status(), 200, "the connection goes on");
    let (mut next, _next_ended) = fixture.http1().await;
    assert_eq!(next.send_request(get()).await.unwrap().status(), 200, "the old certificate and CA are good");
    rotation::finish(&dir, &[Target::Ca]).unwrap();
    assert!(reload());
    let ended = tokio::time::timeout(TIMEOUT, old_ended).await.expect("the connection ends");
    drop(ended);
    assert!(old.send_request(get()).await.is_err());
    assert!(fixture.try_tls(b"http/1.1").await.is_err(), "the old CA does not know the server");
}
