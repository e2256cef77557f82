//! One client floods the server; other clients and upstreams are not affected.
//!
//! Clients use loopback addresses, so the loopback exemption is off. The server has one thread, which answers in order:
//! a reply to the second client shows that the earlier flood was processed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use dns::serve::ClientLimits;
use dns::wire::rcode;

use crate::limits::{OURS, READ_TIMEOUT, Running, THEIRS, connect, framed, question};

const FLOODER: &str = "127.0.66.6:0";
const CLIENT: &str = "127.0.0.7:0";

/// Server with these limits.
async fn start(queries: u32, forwards: u32, in_flight: usize) -> Running {
    let clients = ClientLimits { queries, forwards, in_flight, exempt_loopback: false };
    Running::start(|options| options.clients = clients).await
}

fn socket(from: &str, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(from).expect("a socket");
    socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
    socket.connect(to).expect("a way there");
    socket
}

/// Sends a query and returns RCODE and number of answers.
fn query(socket: &UdpSocket, name: &str, id: u16) -> (u16, u8) {
    socket.send(&question(name, id)).expect("sent");
    let mut buffer = [0; 512];
    socket.recv(&mut buffer).unwrap_or_else(|error| panic!("query {id} has no answer: {error}"));
    assert_eq!(buffer[..2], id.to_be_bytes(), "the answer to another query");
    (u16::from(buffer[3] & 15), buffer[7])
}

/// RCODEs of all replies received.
fn arrived(socket: &UdpSocket) -> Vec<u16> {
    socket.set_nonblocking(true).expect("an option");
    let mut buffer = [0; 512];
    let codes = std::iter::from_fn(|| {
        socket.recv(&mut buffer).ok()?;
        // Either a complete answer or a refusal without records.
        assert_eq!(buffer[7], u8::from(buffer[3] & 15 == 0), "{buffer:?}");
        Some(u16::from(buffer[3] & 15))
    });
    let codes = codes.collect();
    socket.set_nonblocking(false).expect("an option");
    codes
}

impl Running {
    fn limited(&self, reason: &str, result: &str) -> usize {
        let text = self.metrics.text(&self.snapshot);
        let line = format!("waypost_dns_client_rate_limited_total{{reason=\"{reason}\",result=\"{result}\"}} ");
        let value = text.lines().find_map(|other| other.strip_prefix(&line)).expect("a figure");
        value.parse().expect("a number")
    }
}

/// Tokens of a rate since a time, including the burst.
fn most(rate: usize, since: Instant) -> usize {
    rate + rate * usize::try_from(since.elapsed().as_millis()).expect("short") / 1000 + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_floods_is_limited_and_another_gets_every_answer() {
    const RATE: usize = 100;
    const BURST: usize = 1000;
    let began = Instant::now();
    let running = start(100, 0, 0).await;
    let (flooder, client) = (socket(FLOODER, running.to()), socket(CLIENT, running.to()));
    let (flood, mut codes) = (question(OURS, 1), Vec::new());
    // A full burst of the client, each query after many of the flooder.
    for id in 0..100 {
        for _ in 0..BURST {
            flooder.send(&flood).expect("sent");
        }
        assert_eq!(query(&client, OURS, id), (rcode::NOERROR, 1));
        codes.extend(arrived(&flooder));
    }
    let most = most(RATE, began);
    let count = |wanted| codes.iter().filter(|code| **code == wanted).count();
    let (answered, refused) = (count(rcode::NOERROR), count(rcode::REFUSED));
    assert_eq!(answered + refused, codes.len(), "only answers and refusals");
    assert!((RATE..=most).contains(&answered), "{answered} answers, {most} at most");
    assert!((RATE..=most).contains(&refused), "{refused} refusals, {most} at most");
    assert_eq!(running.limited("queries", "refused"), refused);
    assert_eq!(running.limited("queries", "dropped"), 100 * BURST - answered - refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_floods_is_limited_and_closed() {
    let began = Instant::now();
    let running = start(10, 0, 0).await;
    let mut flooder = connect(running.to());
    // The server may close before everything is written.
    let _ = flooder.write_all(&framed(&question(OURS, 1)).repeat(10_000));
    let mut all = Vec::new();
    // Replies before the end count, however the connection ended.
    let _ = flooder.read_to_end(&mut all);
    let mut codes = Vec::new();
    while let [high, low, rest @ ..] = &all[..] {
        let (frame, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        codes.push(u16::from(frame[3] & 15));
        all = rest.to_vec();
    }
    let most = most(10, began);
    let count = |wanted| codes.iter().filter(|code| **code == wanted).count();
    assert!((10..=most).contains(&count(rcode::NOERROR)), "{codes:?}");
    assert!((10..=most).contains(&count(rcode::REFUSED)), "{codes:?}");
    assert_eq!(running.limited("queries", "dropped"), 1, "it was closed at the first");
    assert_eq!(query(&socket(CLIENT, running.to()), OURS, 3), (rcode::NOERROR, 1), "another client");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_occupy_all_in_flight_slots() {
    let clients = ClientLimits { queries: 0, forwards: 1000, in_flight: 4, exempt_loopback: false };
    let running = Running::start(|options| (options.clients, options.max_in_flight) = (clients, 8)).await;
    let (flooder, client) = (socket(FLOODER, running.to()), socket(CLIENT, running.to()));
    for id in 0..20 {
        flooder.send(&question(THEIRS, id)).expect("sent");
    }
    for id in 0..2 {
        client.send(&question(THEIRS, id)).expect("sent");
    }
    assert_eq!(query(&client, OURS, 9), (rcode::NOERROR, 1), "everything before was dealt with");
    assert_eq!(arrived(&flooder), [rcode::REFUSED; 16]);
    assert_eq!(running.limited("in_flight", "refused"), 16);
    running.slow.0.add_permits(6);
    let mut buffer = [0; 512];
    let mut ids: Vec<u8> = (0..2).map(|_| client.recv(&mut buffer).map(|_| buffer[1]).expect("its answer")).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1]);
    assert!(running.metrics.text(&running.snapshot).contains("waypost_dns_dropped_total 0\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cannot_occupy_all_in_flight_slots() {
    let running = start(0, 1000, 4).await;
    let mut flooder = connect(running.to());
    flooder.write_all(&framed(&question(THEIRS, 1)).repeat(20)).expect("sent");
    // None of these waits for others; the four in flight are unanswered.
    let mut refusals = vec![0; 16 * (framed(&question(THEIRS, 1)).len())];
    flooder.read_exact(&mut refusals).expect("refusals");
    assert_eq!(running.limited("in_flight", "refused"), 16);
    running.slow.0.add_permits(4);
    let mut rest = vec![0; refusals.len() / 4];
    flooder.read_exact(&mut rest).expect("the other four");
    assert_eq!(running.slow.0.available_permits(), 0, "which were let through");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_flood_upstreams() {
    let began = Instant::now();
    let running = start(0, 10, 10_000).await;
    running.slow.0.add_permits(10_000);
    let (flooder, client) = (socket(FLOODER, running.to()), socket(CLIENT, running.to()));
    for id in 0..1000 {
        flooder.send(&question(THEIRS, id)).expect("sent");
    }
    assert_eq!(query(&socket(FLOODER, running.to()), OURS, 1), (rcode::NOERROR, 1), "its own names stay answered");
    let refused = running.limited("forwards", "refused");
    assert!((1000 - most(10, began)..=990).contains(&refused), "{refused}");
    assert_eq!(query(&client, THEIRS, 2).0, rcode::REFUSED, "from upstream, for another client");
    assert_eq!(running.limited("forwards", "refused"), refused, "and not by a limit");
    let forwarded = 10_000 - running.slow.0.available_permits();
    assert!(forwarded <= 1000 - refused + 1, "{forwarded}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_is_exempt_by_default() {
    let clients = ClientLimits { queries: 10, forwards: 10, in_flight: 1, ..ClientLimits::default() };
    let running = Running::start(|options| options.clients = clients).await;
    let client = socket("127.0.0.1:0", running.to());
    for id in 0..1000 {
        assert_eq!(query(&client, OURS, id), (rcode::NOERROR, 1));
    }
    running.slow.0.add_permits(100);
    for id in 0..100 {
        assert_eq!(query(&client, THEIRS, id).0, rcode::REFUSED);
    }
    assert_eq!(running.slow.0.available_permits(), 0, "all went upstream");
}
