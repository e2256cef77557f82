use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::kind::Kind;
use api::kinds::{endpointslice, pod, service};
use api::value::ValueExt as _;
use http::Response;
use hyper::service::service_fn;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use store::{Embedded, Op, Options, Txn};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::pki::scratch::Scratch;
use crate::registry::key;

const WITHIN: Duration = Duration::from_secs(5);

/// A webhook on this machine.
struct Server {
    address: SocketAddr,
    ca_pem: String,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers by path: `/ok`, `/redirect`, `/large`, `/never`, `/close`; whatever else is not found.
    async fn start() -> Self {
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![certified.cert.der().clone()];
        let config = config.with_no_client_auth().with_single_cert(chain, key.into()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(answer);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { address, ca_pem: certified.cert.pem(), connections }
    }

    fn target(&self, path: &str) -> Target {
        self.named("localhost", path)
    }

    fn named(&self, name: &str, path: &str) -> Target {
        let port = self.address.port();
        let place = Backend::Host { name: name.to_owned(), port, shown: format!("{name}:{port}") };
        Target { place, path: path.to_owned(), authorities: self.ca_pem.clone().into_bytes() }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let whole = |body: Bytes| Response::new(Full::new(body));
    Ok(match parts.uri.path() {
        "/ok" => {
            let told =
                |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            let seen = json!({"uri": parts.uri.to_string(), "host": told("host"), "agent": told("user-agent"),
                "type": told("content-type"), "body": String::from_utf8_lossy(&body)});
            whole(seen.to_string().into())
        }
        "/redirect" => {
            let mut response = whole(Bytes::new());
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert(header::LOCATION, header::HeaderValue::from_static("/ok"));
            response
        }
        "/large" => whole(vec![b'x'; MAX_ANSWER + 1].into()),
        "/never" => std::future::pending().await,
        "/close" => {
            let mut response = whole(Bytes::from_static(b"{}"));
            response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            response
        }
        _ => {
            let mut response = whole(Bytes::from_static(b"404 page not found"));
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            response
        }
    })
}

/// A client of a server that listens at these addresses.
fn client(listening: &[&str]) -> (WebhookClient, Arc<dyn Store>, Scratch) {
    let scratch = Scratch::new();
    let index = |_: &str, _: &[u8]| api::facts::Facts::default();
    let store = Embedded::open(scratch.path().join("store"), index, Options::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().unwrap()], ports: 30000..=32767 };
    let listening = listening.iter().map(|at| at.parse().unwrap()).collect();
    let dial = Arc::new(DialPolicy::new(listening, None));
    (WebhookClient::new(store.clone(), ranges, dial), store, scratch)
}

async fn post(client: &WebhookClient, target: &Target) -> Result<Bytes, String> {
    client.post(target, Bytes::from_static(b"{\"a\": 1}"), WITHIN).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_review_is_posted_and_the_connection_kept() {
    let server = Server::start().await;
    let (client, ..) = client(&["127.0.0.1:6443"]);
    for _ in 0..3 {
        let answer = post(&client, &server.target("/ok")).await.unwrap();
        let seen: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((seen.text("uri"), seen.text("body")), ("/ok?timeout=5s", "{\"a\": 1}"));
        assert_eq!((seen.text("agent"), seen.text("type")), ("kube-apiserver-admission", "application/json"));
        assert_eq!(seen.text("host"), format!("localhost:{}", server.address.port()));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    post(&client, &server.target("/close")).await.unwrap();
    post(&client, &server.target("/ok")).await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 2, "what the webhook closed is not used again");
}

#[tokio::test]
async fn failed_responses_are_errors() {
    let server = Server::start().await;
    let (client, ..) = client(&["127.0.0.1:6443"]);
    let told = |path: &'static str| async { post(&client, &server.target(path)).await.unwrap_err() };
    assert_eq!(told("/none").await, "failed to call webhook: the server could not find the requested resource");
    assert_eq!(
        told("/redirect").await,
        "failed to call webhook: the server responded with the status code 302 but did not return more information"
    );
    let port = server.address.port();
    assert!(told("/large").await.starts_with(&format!(
        "failed to call webhook: Post \"https://localhost:{port}/large?timeout=5s\": unexpected error when reading"
    )));
    let late = client.post(&server.target("/never"), Bytes::new(), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        format!(
            "failed to call webhook: Post \"https://localhost:{port}/never?timeout=1s\": context deadline exceeded"
        )
    );
}

#[tokio::test]
async fn only_the_configured_ca_is_trusted() {
    let (server, other) = (Server::start().await, Server::start().await);
    let (client, ..) = client(&["127.0.0.1:6443"]);
    let mut target = server.target("/ok");
    target.authorities = other.ca_pem.into_bytes();
    let told = post(&client, &target).await.unwrap_err();
    assert!(
        told.ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{told}"
    );
    target.authorities = b"no PEM".to_vec();
    assert_eq!(
        post(&client, &target).await.unwrap_err(),
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    );
    let told = post(&client, &server.named("127.0.0.1", "/ok")).await.unwrap_err();
    assert!(told.contains("tls: failed to verify certificate: x509: "), "another name: {told}");
}

#[tokio::test]
async fn some_addresses_are_not_dialed() {
    let server = Server::start().await;
    let (public, ..) = client(&["192.0.2.10:6443"]);
    let told = post(&public, &server.named("127.0.0.1", "/ok")).await.unwrap_err();
    let port = server.address.port();
    assert!(told.contains(&format!("dial tcp 127.0.0.1:{port}: not allowed: ")), "{told}");
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    let (local, ..) = client(&[&server.address.to_string()]);
    let told = post(&local, &server.named("127.0.0.1", "/ok")).await.unwrap_err();
    assert!(told.ends_with("the API listens there"), "{told}");
}

async fn put(store: &dyn Store, kind: &'static Kind, object: Value) {
    let key = key(kind, "n", object.text("metadata.name"));
    let (value, facts) = (api::object::encode(&object), Arc::new(kind.facts(&object)));
    store.commit(Txn { compares: Vec::new(), ops: vec![Op::Put { key, value, facts, ttl: None }] }).await.unwrap();
}

async fn resolve(client: &WebhookClient, target: &Target) -> Result<Vec<SocketAddr>, String> {
    client.resolve(target).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_service_is_reached_at_its_ready_pods() {
    let (client, store, _scratch) = client(&["127.0.0.1:6443"]);
    let place = Backend::Service { namespace: "n".to_owned(), name: "web".to_owned(), port: 443 };
    let target = Target { place, path: String::new(), authorities: Vec::new() };
    assert_eq!(resolve(&client, &target).await, Err("service \"web\" not found".to_owned()));
    put(
        &*store,
        &service::KIND,
        json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "https", "port": 8443}]}}),
    )
    .await;
    assert_eq!(resolve(&client, &target).await, Err("no service port 443 found for service \"web\"".to_owned()));
    put(
        &*store,
        &service::KIND,
        json!({"metadata": {"name": "web"}, "spec": {"ports": [{"name": "https", "port": 443}]}}),
    )
    .await;
    assert_eq!(resolve(&client, &target).await, Err("no endpoints available for service \"web\"".to_owned()));
    put(&*store, &pod::KIND, json!({"metadata": {"name": "p"}, "status": {"podIPs": [{"ip": "10.244.0.7"}]}})).await;
    let endpoint = |address: &str, pod: &str, ready: bool| json!({"addresses": [address], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": pod}});
    let slice = json!({"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "https", "port": 9443}], "endpoints": [
            endpoint("10.244.0.7", "p", true), endpoint("10.244.0.8", "p", true), endpoint("10.244.0.7", "q", true)]});
    put(&*store, &endpointslice::KIND, slice).await;
    let found = client.resolve(&target).await.unwrap();
    assert_eq!(found, ["10.244.0.7:9443".parse().unwrap()], "only what its Pod has");
}
