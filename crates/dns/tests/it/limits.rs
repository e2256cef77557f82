//! Listeners under load: slow upstreams, too many connections, idle clients.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dns::forward::{BoxFuture, ClientAddr, Forwarder, Lookup, NoForwarder, Request};
use dns::metrics::Metrics;
use dns::serve::{ConnectionLimits, Options, Server};
use dns::snapshot::ZoneSnapshot;
use dns::zone::Quirks;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::corpus::{config, file, message, snapshot};

pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Forwarder that refuses when released.
pub(crate) struct Slow(pub(crate) Semaphore);

impl Forwarder for Slow {
    fn cached(&self, _request: &Request<'_>, _now: Instant, _out: &mut Vec<u8>) -> bool {
        false
    }

    fn resolve<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Vec<u8>> {
        Box::pin(async move {
            self.0.acquire().await.expect("open").forget();
            NoForwarder.resolve(request).await
        })
    }

    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, from: ClientAddr) -> BoxFuture<'a, Lookup> {
        NoForwarder.lookup(name, qtype, from)
    }
}

pub(crate) struct Running {
    pub(crate) slow: Arc<Slow>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshot: Arc<ZoneSnapshot>,
    server: Server,
}

impl Running {
    pub(crate) async fn start(change: impl FnOnce(&mut Options)) -> Self {
        let config = config("base", &file("cases.json")["profiles"]["base"], Quirks::None);
        let (snapshot, slow) = (snapshot(config), Arc::new(Slow(Semaphore::new(0))));
        let metrics = Metrics::new(&snapshot.zones, "dns://:53");
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let mut options = Options { listen, threads: Some(1), ..Options::default() };
        change(&mut options);
        let server =
            Server::start(snapshot.clone(), slow.clone(), metrics.clone(), &options).await.expect("it listens");
        Self { slow, metrics, snapshot, server }
    }

    pub(crate) fn to(&self) -> SocketAddr {
        self.server.addresses()[0]
    }
}

pub(crate) fn question(name: &str, id: u16) -> Vec<u8> {
    message(&json!({"qname": name, "qtype": "A"}), id).0
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).expect("short").to_be_bytes(), message].concat()
}

pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
    stream
}

fn read_id(stream: &mut TcpStream) -> u16 {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("a frame");
    let mut frame = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut frame).expect("all of it");
    u16::from_be_bytes([frame[0], frame[1]])
}

/// Whether the peer closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 10]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

pub(crate) const OURS: &str = "kubernetes.default.svc.cluster.local.";
pub(crate) const THEIRS: &str = "example.net.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_query_does_not_delay_the_next_one() {
    let running = Running::start(|_| {}).await;
    let mut stream = connect(running.to());
    stream.write_all(&[framed(&question(THEIRS, 1)), framed(&question(OURS, 2))].concat()).expect("sent");
    assert_eq!(read_id(&mut stream), 2, "ours is known");
    running.slow.0.add_permits(1);
    assert_eq!(read_id(&mut stream), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excess_forwarded_queries_are_dropped_while_cluster_names_are_answered() {
    let running = Running::start(|options| options.max_in_flight = 1).await;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
    socket.connect(running.to()).expect("a way there");
    for (name, id) in [(THEIRS, 1), (THEIRS, 2), (THEIRS, 3), (OURS, 4)] {
        socket.send(&question(name, id)).expect("sent");
    }
    let mut buffer = [0; 512];
    let mut next = || {
        socket.recv(&mut buffer).expect("a reply");
        u16::from_be_bytes([buffer[0], buffer[1]])
    };
    assert_eq!(next(), 4);
    assert!(running.metrics.text(&running.snapshot).contains("waypost_dns_dropped_total 2\n"));
    running.slow.0.add_permits(1);
    assert_eq!(next(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_limited() {
    let first = Duration::from_secs(60);
    let running = Running::start(|options| {
        options.connections =
            ConnectionLimits { per_client: 2, first_query_timeout: first, idle_timeout: first, ..options.connections };
    })
    .await;
    let (silent, mut used) = (connect(running.to()), connect(running.to()));
    used.write_all(&framed(&question(OURS, 7))).expect("sent");
    assert_eq!(read_id(&mut used), 7, "both are taken");
    assert!(is_closed(&mut connect(running.to())), "one too many");
    assert!(running.metrics.text(&running.snapshot).contains("waypost_dns_connections_refused_total 1\n"));
    drop(silent);
    used.write_all(&framed(&question(OURS, 8))).expect("sent");
    assert_eq!(read_id(&mut used), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_closed() {
    let (first, idle) = (Duration::from_millis(100), Duration::from_millis(100));
    let running = Running::start(|options| {
        options.connections =
            ConnectionLimits { first_query_timeout: first, idle_timeout: idle, ..options.connections };
    })
    .await;
    let mut silent = connect(running.to());
    assert!(is_closed(&mut silent), "it said nothing");
    let mut half = connect(running.to());
    half.write_all(&[0, 40, 1, 2, 3]).expect("the beginning of a question");
    assert!(is_closed(&mut half), "it did not go on");
}
