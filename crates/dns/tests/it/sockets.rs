//! Every recorded query over UDP and TCP.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use dns::forward::{Forwarder, NoForwarder};
use dns::metrics::Metrics;
use dns::serve::{Options, Server};
use dns::zone::Quirks;
use serde_json::{Value, json};

use crate::compare::{Sent, compare};
use crate::corpus::{config, each, file, hex, message, size_limit, snapshot};
use crate::stub::Stub;

const READ_TIMEOUT: Duration = Duration::from_secs(20);

struct Running {
    server: Server,
    metrics: Arc<Metrics>,
    snapshot: Arc<dns::snapshot::ZoneSnapshot>,
}

async fn start(profile: &str, value: &Value) -> Running {
    let config = config(profile, value, Quirks::None);
    let forwarder: Arc<dyn Forwarder> =
        if config.recursion { Arc::new(Stub::new(&file("upstream.json"))) } else { Arc::new(NoForwarder) };
    let snapshot = snapshot(config);
    let metrics = Metrics::new(&snapshot.zones, "dns://:53");
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let options = Options { listen, threads: Some(2), ..Options::default() };
    let server = Server::start(snapshot.clone(), forwarder, metrics.clone(), &options).await.expect("it listens");
    Running { server, metrics, snapshot }
}

/// Query that is always answered; its reply comes after those of all earlier queries.
fn sentinel() -> Vec<u8> {
    message(&json!({"qname": "kubernetes.default.svc.cluster.local.", "qtype": "A"}), 0xfffe).0
}

/// Sends a query over UDP, and a second one that is always answered.
fn udp(to: SocketAddr, message: &[u8], may_drop: bool) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
    socket.connect(to).expect("a way there");
    socket.send(message).expect("sent");
    if may_drop {
        socket.send(&sentinel()).expect("sent");
    }
    let mut buffer = vec![0; 65536];
    let len = socket.recv(&mut buffer).expect("an answer");
    buffer.truncate(len);
    (!may_drop || buffer[..2] != [0xff, 0xfe]).then_some(buffer)
}

/// Sends chunks over one connection and reads all replies until it is closed.
fn tcp(to: SocketAddr, chunks: &[Vec<u8>], gap: Duration) -> Vec<Vec<u8>> {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
    stream.set_nodelay(true).expect("an option");
    for (number, chunk) in chunks.iter().enumerate() {
        if number > 0 && !gap.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the pause is the case")]
            std::thread::sleep(gap);
        }
        stream.write_all(chunk).expect("sent");
    }
    stream.shutdown(Shutdown::Write).expect("no more questions");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("until the end");
    let mut frames = Vec::new();
    while let [high, low, rest @ ..] = &all[..] {
        let (frame, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        frames.push(frame.to_vec());
        all = rest.to_vec();
    }
    frames
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).expect("short").to_be_bytes(), message].concat()
}

fn play(to: SocketAddr, case: &Value) -> Vec<String> {
    let (message, question) = message(case, 4711);
    let is_udp = case["proto"].as_str().unwrap_or("udp") == "udp";
    let may_drop = each(&case["expect"]).iter().any(|form| form["drop"] == json!(true));
    let reply = if is_udp {
        udp(to, &message, may_drop)
    } else {
        tcp(to, &[framed(&message)], Duration::ZERO).into_iter().next()
    };
    let udp_limit = is_udp.then(|| size_limit(case));
    let sent = Sent { message: &message, question: question.as_deref(), udp_limit };
    let forms = each(&case["expect"]).into_iter().map(|form| compare(form, reply.as_deref(), &sent));
    forms.min_by_key(Vec::len).expect("a form")
}

fn play_stream(to: SocketAddr, case: &Value) -> Vec<String> {
    let chunks: Vec<Vec<u8>> =
        case["stream"].as_array().expect("chunks").iter().map(|chunk| hex(chunk.as_str().expect("hex"))).collect();
    let got = tcp(to, &chunks, Duration::from_millis(case["gap_ms"].as_u64().unwrap_or(0)));
    let forms = each(&case["expect"]).into_iter().map(|form| {
        let mut problems = Vec::new();
        let mut wanted: Vec<&Value> = form["replies"].as_array().expect("replies").iter().collect();
        for wire in &got {
            let id = json!(u16::from_be_bytes([wire[0], wire[1]]));
            let Some(place) = wanted.iter().position(|want| want["id"] == id) else {
                problems.push(format!("unexpected reply {id}"));
                continue;
            };
            let want = wanted.remove(place);
            let question = want["question"].as_str().map(hex);
            let message = [&wire[..2], &[0; 10]].concat();
            let sent = Sent { message: &message, question: question.as_deref(), udp_limit: None };
            problems.extend(compare(want, Some(wire), &sent));
        }
        problems.extend(wanted.iter().map(|want| format!("reply {} is missing", want["id"])));
        problems
    });
    forms.min_by_key(Vec::len).expect("a form")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_every_recorded_query_is_answered_through_sockets() {
    let cases = file("cases.json");
    let mut failures = Vec::new();
    for (profile, value) in cases["profiles"].as_object().expect("profiles") {
        let running = start(profile, value).await;
        let to = running.server.addresses()[0];
        let own = cases["cases"].as_array().expect("cases").iter();
        let own: Vec<Value> =
            own.filter(|case| case["profile"].as_str().unwrap_or("base") == profile).cloned().collect();
        let count = own.len();
        let played = tokio::task::spawn_blocking(move || {
            let one = |case: &Value| {
                let problems = if case.get("stream").is_some() { play_stream(to, case) } else { play(to, case) };
                (!problems.is_empty()).then(|| format!("{} {}: {}", case["id"], case["title"], problems.join(" | ")))
            };
            own.iter().filter_map(one).collect::<Vec<_>>()
        });
        failures.extend(played.await.expect("played").into_iter().map(|text| format!("[{profile}] {text}")));
        check_counts(&running, count);
        running.server.stop();
    }
    assert!(failures.is_empty(), "{}\n{} failed", failures.join("\n"), failures.len());
}

/// Checks that the queries were counted.
fn check_counts(running: &Running, cases: usize) {
    let text = running.metrics.text(&running.snapshot);
    let sum = |name: &str| -> usize {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
    };
    let (queries, answered) = (sum("coredns_dns_requests_total"), sum("coredns_dns_responses_total"));
    assert!(queries + 30 >= cases && answered + 30 >= cases, "{queries} and {answered} of {cases} were counted");
}

/// Arbitrary input does not stop the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arbitrary_input_does_not_stop_the_server() {
    let running = start("base", &file("cases.json")["profiles"]["base"]).await;
    let to = running.server.addresses()[0];
    let noise = tokio::task::spawn_blocking(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a read timeout");
        socket.connect(to).expect("a way there");
        let mut random = fastrand::Rng::with_seed(7);
        let mut buffer = vec![0; 65536];
        for round in 0..20_000u32 {
            let mut bytes = sentinel();
            bytes.truncate(random.usize(0..=bytes.len()));
            for _ in 0..random.usize(0..4).min(bytes.len()) {
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
            }
            socket.send(&bytes).expect("sent");
            if round % 100 == 99 {
                // Replies are read up to the one of a valid query.
                let mut good = sentinel();
                good[..2].copy_from_slice(&[0xfd, 0xfd]);
                socket.send(&good).expect("sent");
                while socket.recv(&mut buffer).is_ok_and(|_| buffer[..2] != [0xfd, 0xfd]) {}
                assert_eq!(buffer[..2], [0xfd, 0xfd], "no answer after {round} packets");
            }
        }
    });
    noise.await.expect("still answered");
    assert!(running.metrics.text(&running.snapshot).contains("coredns_panics_total 0\n"));
}
