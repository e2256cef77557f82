//! Before readiness queries are held briefly and then fail with SERVFAIL; none gets NXDOMAIN or is forwarded.

use std::time::{Duration, Instant};

use dns::serve::Options;
use dns::wire::rcode;

use crate::server::{CLIENT, TestServer, question, summary};

const NOT_READY: Option<u16> = Some(14);
const SERVICE: &str = "svc1.testns.svc.cluster.local.";

fn holding(hold: Duration) -> Options {
    Options { readiness_timeout: hold, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_initial_lists_queries_fail() {
    let server = TestServer::unready(holding(Duration::from_millis(50))).await;
    for (name, qtype) in [
        (SERVICE, "A"),
        ("nope.testns.svc.cluster.local.", "A"),
        ("nope.testns.svc.cluster.local.", "SRV"),
        ("cluster.local.", "SOA"),
        ("foo.cluster.local.", "A"),
        ("8.8.8.8.in-addr.arpa.", "PTR"),
    ] {
        let start = Instant::now();
        let by_datagram = server.query(CLIENT, name, qtype);
        assert!(start.elapsed() >= Duration::from_millis(50), "{name} was not held");
        for reply in [by_datagram, server.query_tcp(name, qtype)] {
            assert_eq!((reply.rcode, reply.extended), (rcode::SERVFAIL, NOT_READY), "{name} {qtype}");
            assert!(reply.answers.is_empty(), "{name} {qtype}");
        }
    }
    assert_eq!(server.query(CLIENT, "example.net.", "A").answers, ["example.net. A 13.14.15.16"], "others know theirs");
    server.apply_fixture();
    assert_eq!(server.query(CLIENT, SERVICE, "A").answers, ["svc1.testns.svc.cluster.local. A 10.96.0.100"]);
    assert_eq!(server.query(CLIENT, "nope.testns.svc.cluster.local.", "A").rcode, rcode::NXDOMAIN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_queries_are_answered_at_readiness() {
    // Longer than the test runs: replies can only be due to readiness.
    let server = TestServer::unready(holding(Duration::from_secs(3600))).await;
    let socket = server.socket(CLIENT);
    let names = [SERVICE, "ext.testns.svc.cluster.local.", "nope.testns.svc.cluster.local.", "8.8.8.8.in-addr.arpa."];
    for (id, name) in (0..).zip(names) {
        let qtype = if name.ends_with("arpa.") { "PTR" } else { "A" };
        socket.send(&question(name, qtype, id)).expect("sent");
    }
    // The reply to another query shows that the thread has processed those before it.
    assert_eq!(server.query(CLIENT, "example.net.", "A").rcode, rcode::NOERROR);
    server.apply_fixture();
    let mut found = vec![None; names.len()];
    for _ in names {
        let mut buffer = vec![0; 4096];
        let length = socket.recv(&mut buffer).expect("an answer");
        let reply = summary(&buffer[..length]);
        found[usize::from(buffer[1])] = Some((reply.rcode, reply.answers.len()));
    }
    let wanted = [(rcode::NOERROR, 1), (rcode::NOERROR, 2), (rcode::NXDOMAIN, 0), (rcode::NOERROR, 1)];
    assert_eq!(found, wanted.map(Some));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_queries_are_bounded() {
    let server = TestServer::unready(Options { max_in_flight: 2, ..holding(Duration::from_secs(3600)) }).await;
    let socket = server.socket(CLIENT);
    for id in 0..5 {
        socket.send(&question(SERVICE, "A", id)).expect("sent");
    }
    let mut buffer = vec![0; 4096];
    for _ in 2..5 {
        let length = socket.recv(&mut buffer).expect("an answer");
        let reply = summary(&buffer[..length]);
        assert_eq!((reply.rcode, reply.extended, buffer[1] >= 2), (rcode::SERVFAIL, NOT_READY, true));
    }
    assert!(server.metrics.text(&server.snapshot).contains("waypost_dns_dropped_total 0\n"));
    server.apply_fixture();
    for _ in 0..2 {
        let length = socket.recv(&mut buffer).expect("an answer");
        assert_eq!((summary(&buffer[..length]).rcode, buffer[1] < 2), (rcode::NOERROR, true));
    }
}
