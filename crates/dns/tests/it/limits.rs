//! Listeners under strain: slow others, too many connections, clients that say nothing.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dns::beyond::{Beyond, Ends, Later, Lookup, Nobody, Question};
use dns::book::Book;
use dns::metrics::Metrics;
use dns::serve::{Connections, Options, Server};
use dns::zone::Quirks;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::corpus::{book, config, file, message};

pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Somebody who answers when he is let, and then refuses.
pub(crate) struct Slow(pub(crate) Semaphore);

impl Beyond for Slow {
    fn cached(&self, _question: &Question<'_>, _now: Instant, _out: &mut Vec<u8>) -> bool {
        false
    }

    fn resolve<'a>(&'a self, question: Question<'a>) -> Later<'a, Vec<u8>> {
        Box::pin(async move {
            self.0.acquire().await.expect("open").forget();
            Nobody.resolve(question).await
        })
    }

    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, ends: Ends) -> Later<'a, Lookup> {
        Nobody.lookup(name, qtype, ends)
    }
}

pub(crate) struct Running {
    pub(crate) slow: Arc<Slow>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) book: Arc<Book>,
    server: Server,
}

impl Running {
    pub(crate) async fn start(change: impl FnOnce(&mut Options)) -> Self {
        let config = config("base", &file("cases.json")["profiles"]["base"], Quirks::None);
        let (book, slow) = (book(config), Arc::new(Slow(Semaphore::new(0))));
        let metrics = Metrics::new(&book.zones, "dns://:53");
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let mut options = Options { listen, threads: Some(1), ..Options::default() };
        change(&mut options);
        let server = Server::start(book.clone(), slow.clone(), metrics.clone(), &options).await.expect("it listens");
        Self { slow, metrics, book, server }
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

/// Whether the other side closed.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 10]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

pub(crate) const OURS: &str = "kubernetes.default.svc.cluster.local.";
pub(crate) const THEIRS: &str = "example.net.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_question_does_not_hold_up_the_next_one() {
    let running = Running::start(|_| {}).await;
    let mut stream = connect(running.to());
    stream.write_all(&[framed(&question(THEIRS, 1)), framed(&question(OURS, 2))].concat()).expect("sent");
    assert_eq!(read_id(&mut stream), 2, "ours is known");
    running.slow.0.add_permits(1);
    assert_eq!(read_id(&mut stream), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_has_time_for_is_lost_and_counted_while_ours_is_answered() {
    let running = Running::start(|options| options.waiting = 1).await;
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
    assert!(running.metrics.text(&running.book).contains("waypost_dns_dropped_total 2\n"));
    running.slow.0.add_permits(1);
    assert_eq!(next(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_limited() {
    let first = Duration::from_secs(60);
    let running = Running::start(|options| {
        options.connections = Connections { each: 2, first, idle: first, ..options.connections };
    })
    .await;
    let (silent, mut used) = (connect(running.to()), connect(running.to()));
    used.write_all(&framed(&question(OURS, 7))).expect("sent");
    assert_eq!(read_id(&mut used), 7, "both are taken");
    assert!(is_closed(&mut connect(running.to())), "one too many");
    assert!(running.metrics.text(&running.book).contains("waypost_dns_connections_refused_total 1\n"));
    drop(silent);
    used.write_all(&framed(&question(OURS, 8))).expect("sent");
    assert_eq!(read_id(&mut used), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_must_be_used() {
    let (first, idle) = (Duration::from_millis(100), Duration::from_millis(100));
    let running =
        Running::start(|options| options.connections = Connections { first, idle, ..options.connections }).await;
    let mut silent = connect(running.to());
    assert!(is_closed(&mut silent), "it said nothing");
    let mut half = connect(running.to());
    half.write_all(&[0, 40, 1, 2, 3]).expect("the beginning of a question");
    assert!(is_closed(&mut half), "it did not go on");
}
