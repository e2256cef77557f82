//! Before our names are known: questions are held for a moment and then fail; nothing is said to be missing, and nobody
//! else is asked.

use std::time::{Duration, Instant};

use dns::serve::Options;
use dns::wire::rcode;

use crate::whole::{ANYBODY, Whole, question, said};

const NOT_READY: Option<u16> = Some(14);
const SERVICE: &str = "svc1.testns.svc.cluster.local.";

fn holding(hold: Duration) -> Options {
    Options { hold, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_first_lists_names_fail() {
    let whole = Whole::unready(holding(Duration::from_millis(50))).await;
    for (name, qtype) in [
        (SERVICE, "A"),
        ("nope.testns.svc.cluster.local.", "A"),
        ("nope.testns.svc.cluster.local.", "SRV"),
        ("cluster.local.", "SOA"),
        ("foo.cluster.local.", "A"),
        ("8.8.8.8.in-addr.arpa.", "PTR"),
    ] {
        let start = Instant::now();
        let by_datagram = whole.ask(ANYBODY, name, qtype);
        assert!(start.elapsed() >= Duration::from_millis(50), "{name} was not held");
        for said in [by_datagram, whole.ask_stream(name, qtype)] {
            assert_eq!((said.rcode, said.extended), (rcode::SERVFAIL, NOT_READY), "{name} {qtype}");
            assert!(said.answers.is_empty(), "{name} {qtype}");
        }
    }
    assert_eq!(whole.ask(ANYBODY, "example.net.", "A").answers, ["example.net. A 13.14.15.16"], "others know theirs");
    whole.learn();
    assert_eq!(whole.ask(ANYBODY, SERVICE, "A").answers, ["svc1.testns.svc.cluster.local. A 10.96.0.100"]);
    assert_eq!(whole.ask(ANYBODY, "nope.testns.svc.cluster.local.", "A").rcode, rcode::NXDOMAIN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_answered_when_names_are_known() {
    // Longer than anybody waits here: whoever is answered is so because the names came.
    let whole = Whole::unready(holding(Duration::from_secs(3600))).await;
    let socket = whole.socket(ANYBODY);
    let names = [SERVICE, "ext.testns.svc.cluster.local.", "nope.testns.svc.cluster.local.", "8.8.8.8.in-addr.arpa."];
    for (id, name) in (0..).zip(names) {
        let qtype = if name.ends_with("arpa.") { "PTR" } else { "A" };
        socket.send(&question(name, qtype, id)).expect("sent");
    }
    // Another question that is answered shows that the thread has seen those before it.
    assert_eq!(whole.ask(ANYBODY, "example.net.", "A").rcode, rcode::NOERROR);
    whole.learn();
    let mut found = vec![None; names.len()];
    for _ in names {
        let mut buffer = vec![0; 4096];
        let length = socket.recv(&mut buffer).expect("an answer");
        let said = said(&buffer[..length]);
        found[usize::from(buffer[1])] = Some((said.rcode, said.answers.len()));
    }
    let wanted = [(rcode::NOERROR, 1), (rcode::NOERROR, 2), (rcode::NXDOMAIN, 0), (rcode::NOERROR, 1)];
    assert_eq!(found, wanted.map(Some));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_more_is_held_than_there_is_room_for() {
    let whole = Whole::unready(Options { waiting: 2, ..holding(Duration::from_secs(3600)) }).await;
    let socket = whole.socket(ANYBODY);
    for id in 0..5 {
        socket.send(&question(SERVICE, "A", id)).expect("sent");
    }
    let mut buffer = vec![0; 4096];
    for _ in 2..5 {
        let length = socket.recv(&mut buffer).expect("an answer");
        let said = said(&buffer[..length]);
        assert_eq!((said.rcode, said.extended, buffer[1] >= 2), (rcode::SERVFAIL, NOT_READY, true));
    }
    assert!(whole.metrics.text(&whole.book).contains("waypost_dns_dropped_total 0\n"));
    whole.learn();
    for _ in 0..2 {
        let length = socket.recv(&mut buffer).expect("an answer");
        assert_eq!((said(&buffer[..length]).rcode, buffer[1] < 2), (rcode::NOERROR, true));
    }
}
