//! The account with slow requests: bodies that stop half way, watches that are not read, and clients of large lists that read nothing.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use client::http::{Client, Method};
use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::{CONFIG_MAPS, JSON, SERVICES, Scenario};
use crate::wire::certificates;

/// Requests whose bodies stop half way, as streams of this number of connections.
const BODIES: usize = 1400;
const BODY_CONNECTIONS: usize = 7;
/// Watches, each with a connection: every fourth of a collection that changes all the time, the others of one that does not.
const WATCHES: usize = 600;
/// Readers that read nothing of a large list, each with a connection.
const READERS: usize = 100;
/// Connections that are opened at once.
const TOGETHER: usize = 32;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const REVIEW: &str = r#"{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}"#;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A response of which only the headers were read, and its connection.
type Unread = (Client, Response<Incoming>);

/// Slow requests that are open.
pub(super) struct Held {
    /// Set to true, the bodies arrive.
    finish: watch::Sender<bool>,
    /// The status codes of requests with slow bodies.
    bodies: JoinSet<u16>,
    watches: Vec<Unread>,
    pub(super) readers: Vec<Unread>,
    pub(super) readers_rejected: usize,
}

/// Opens all of them.
pub(super) async fn open(scenario: &Scenario) -> Held {
    let (finish, is_finished) = watch::channel(false);
    let mut bodies = JoinSet::new();
    for _ in 0..BODY_CONNECTIONS {
        open_bodies(scenario, &is_finished, &mut bodies).await;
    }
    let quiet =
        format!("{SERVICES}?watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let changing = quiet.replace(SERVICES, CONFIG_MAPS);
    let watched = (0..WATCHES).map(|number| if number % 4 == 0 { changing.clone() } else { quiet.clone() });
    let watches = open_all(scenario, watched).await;
    assert!(watches.iter().all(|(_, response)| response.status() == 200), "a watch was refused");
    let mut readers = open_all(scenario, (0..READERS).map(|_| CONFIG_MAPS.to_owned())).await;
    readers.retain(|(_, response)| response.status() != 429);
    assert!(readers.iter().all(|(_, response)| response.status() == 200), "a list was refused");
    let readers_rejected = READERS - readers.len();
    Held { finish, bodies, watches, readers, readers_rejected }
}

impl Held {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.bodies.len() + self.watches.len() + self.readers.len()
    }

    /// Sends the rest of the bodies: all requests must be answered, though not all at once.
    pub(super) async fn finish(mut self) {
        self.finish.send(true).expect("bodies that wait");
        while let Some(code) = self.bodies.join_next().await {
            let code = code.expect("an answer to a slow request");
            assert!(matches!(code, 201 | 429), "a slow request was answered with {code}");
        }
    }
}

/// Opens requests and reads the headers of their responses.
async fn open_all(scenario: &Scenario, paths: impl Iterator<Item = String>) -> Vec<Unread> {
    let client = scenario.client(&scenario.slow);
    let opening = paths.map(|path| {
        let mut client = client.another();
        async move {
            let response =
                client.open(Method::GET, &path, None, Bytes::new()).await.expect("the headers of a response");
            (client, response)
        }
    });
    stream::iter(opening).buffer_unordered(TOGETHER).collect().await
}

/// Opens the slow bodies of one connection; returns once the server has the headers of all.
async fn open_bodies(scenario: &Scenario, is_finished: &watch::Receiver<bool>, bodies: &mut JoinSet<u16>) {
    let mut sender = connect(scenario).await;
    let address = scenario.admin.server();
    let bearer = format!("Bearer {}", scenario.slow);
    let request = |method: Method, path: &str, body: Body| {
        let request = Request::builder().method(method).uri(format!("{address}{path}"));
        request.header("authorization", &bearer).header("content-type", JSON).body(body).expect("a request")
    };
    for _ in 0..BODIES / BODY_CONNECTIONS {
        sender.ready().await.expect("a connection");
        let answer = sender.send_request(request(Method::POST, REVIEWS, body(is_finished.clone())));
        bodies.spawn(async move { answer.await.expect("a response").status().as_u16() });
    }
    // Headers arrive in the order in which they were sent: when this is answered, the server has those of the others.
    let empty = StreamBody::new(stream::empty()).boxed_unsync();
    let answer = sender.send_request(request(Method::GET, "/version", empty)).await.expect("a response");
    assert_eq!(answer.status(), 200);
}

/// Half of a review, and the rest when it may.
fn body(mut is_finished: watch::Receiver<bool>) -> Body {
    let (first, rest) = REVIEW.split_at(REVIEW.len() / 2);
    let rest = async move {
        let _ = is_finished.wait_for(|is_finished| *is_finished).await;
        rest
    };
    let pieces = stream::once(ready(first)).chain(stream::once(rest));
    StreamBody::new(pieces.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))).boxed_unsync()
}

/// A connection for HTTP/2.
async fn connect(scenario: &Scenario) -> SendRequest<Body> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(&scenario.home, "ca.crt") {
        roots.add(certificate).expect("an authority");
    }
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let server = scenario.admin.server();
    let address = server.strip_prefix("https://").expect("an address");
    let stream = TcpStream::connect(address).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("an HTTP/2 connection");
    tokio::spawn(connection);
    sender
}
