//! Which connections get a slot, and how long.

use super::*;

fn connections(total: usize, per_source: usize) -> Arc<Connections> {
    let (handshakes, handshakes_per_source) = (total, per_source);
    let limits =
        ConnectionLimits { total, per_source, handshakes, handshakes_per_source, ..ConnectionLimits::default() };
    Connections::new(limits, Metrics::new(Box::new(String::new), None))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn refusal(connections: &Arc<Connections>, from: &str) -> Option<Refusal> {
    connections.admit(ip(from)).err()
}

#[test]
fn connections_are_limited_per_source() {
    let connections = connections(100, 3);
    let held: Vec<Slot> = (0..3).map(|_| connections.admit(ip("192.0.2.1")).ok().unwrap()).collect();
    assert_eq!(refusal(&connections, "192.0.2.1"), Some(Refusal::Source));
    assert_eq!(refusal(&connections, "::ffff:192.0.2.1"), Some(Refusal::Source), "the same address");
    assert_eq!(refusal(&connections, "192.0.2.2"), None);
    drop(held);
    assert_eq!(refusal(&connections, "192.0.2.1"), None);
    assert!(connections.counts.lock().open.of.is_empty(), "sources that are gone take no memory");

    // A client may use all addresses of a /64.
    let held: Vec<Slot> = (1..=3).map(|n| connections.admit(ip(&format!("2001:db8::{n}"))).ok().unwrap()).collect();
    assert_eq!(refusal(&connections, "2001:db8::ffff"), Some(Refusal::Source));
    assert_eq!(refusal(&connections, "2001:db8:0:1::1"), None);
    drop(held);
}

#[test]
fn loopback_and_others_have_reserved_slots() {
    let connections = connections(20, 100);
    let others: Vec<Slot> = (0..18).map(|_| connections.admit(ip("192.0.2.1")).ok().unwrap()).collect();
    assert_eq!(refusal(&connections, "192.0.2.2"), Some(Refusal::Total));
    assert_eq!(refusal(&connections, "127.0.0.1"), None, "a tenth is for loopback");
    drop(others);
    let local: Vec<Slot> =
        (0..10).map(|n| connections.admit(ip(&format!("127.0.0.{}", n + 1))).ok().unwrap()).collect();
    assert_eq!(refusal(&connections, "127.0.0.1"), Some(Refusal::Source), "loopback may have half");
    assert_eq!(refusal(&connections, "192.0.2.1"), None);
    drop(local);
}

#[test]
fn handshakes_are_counted_until_they_are_over() {
    let limits = ConnectionLimits { handshakes: 10, handshakes_per_source: 2, ..ConnectionLimits::default() };
    let connections = Connections::new(limits, Metrics::new(Box::new(String::new), None));
    let mut held: Vec<Slot> = (0..2).map(|_| connections.admit(ip("192.0.2.1")).ok().unwrap()).collect();
    assert_eq!(refusal(&connections, "192.0.2.1"), Some(Refusal::SourceHandshakes));
    held[0].secured();
    held[0].secured();
    held.push(connections.admit(ip("192.0.2.1")).ok().unwrap());
    held.extend((2..9).map(|n| connections.admit(ip(&format!("192.0.2.{n}"))).ok().unwrap()));
    assert_eq!(refusal(&connections, "192.0.2.77"), Some(Refusal::Handshakes));
    drop(held);
    let counts = connections.counts.lock();
    assert_eq!((counts.open.total, counts.handshakes.total), (0, 0));
}

#[test]
fn refusals_are_counted_and_rarely_logged() {
    let connections = connections(100, 1);
    let held = connections.admit(ip("192.0.2.1")).ok().unwrap();
    for _ in 0..1000 {
        assert_eq!(refusal(&connections, "192.0.2.1"), Some(Refusal::Source));
    }
    let text = connections.metrics.text();
    assert!(text.contains("waypost_apiserver_connections 1\n"), "{text}");
    assert!(text.contains("waypost_apiserver_connections_refused_total{reason=\"source\"} 1000\n"), "{text}");
    assert_eq!(connections.counts.lock().unlogged, 999, "one line was written, the next says how many there were");
    drop(held);
}
