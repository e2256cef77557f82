//! TCP and UDP: weights per connection and flow, the oldest route, no backend.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;

use super::*;
use crate::tests::rest_of;

/// Server that says its name, then echoes one line.
pub(super) fn tcp(name: &'static str) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in server.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.write_all(name.as_bytes());
                let mut word = [0; 5];
                let _ = stream.read_exact(&mut word).and_then(|()| stream.write_all(&word));
            });
        }
    });
    address
}

/// Server that answers each datagram with its name and the datagram.
fn udp(name: &'static str) -> SocketAddr {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&[name.as_bytes(), &buffer[..length]].concat(), from);
        }
    });
    address
}

#[test]
fn tcp_connections_are_divided_by_weight() {
    let mut gateway = TestGateway::new(&[listener("tcp", ListenerProtocol::Tcp, None)]);
    gateway.service("one", &[tcp("one")]);
    gateway.service("two", &[tcp("two")]);
    let backends =
        [json!({"name": "one", "weight": 3}), json!({"name": "two"}), json!({"name": "invalid", "weight": 1})];
    gateway.stream("tcp", RouteKind::Tcp, "web", &[], &backends);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..50 {
        let mut stream = gateway.connect();
        // An invalid backend resets.
        let _ = stream.write_all(b"hello");
        *counts.entry(rest_of(stream)).or_default() += 1;
    }
    let expected = [("", 10), ("onehello", 30), ("twohello", 10)].map(|(who, count)| (who.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn only_the_oldest_tcp_route_gets_connections() {
    let mut gateway = TestGateway::new(&[listener("tcp", ListenerProtocol::Tcp, None)]);
    gateway.service("one", &[tcp("one")]);
    gateway.service("two", &[tcp("two")]);
    gateway.stream("tcp", RouteKind::Tcp, "zz-older", &[], &[json!({"name": "one"})]);
    gateway.stream("tcp", RouteKind::Tcp, "aa-younger", &[], &[json!({"name": "two"})]);
    for _ in 0..4 {
        let mut stream = gateway.connect();
        stream.write_all(b"hello").expect("sent");
        assert_eq!(rest_of(stream), "onehello");
    }
}

#[test]
fn tcp_without_route_or_endpoint_is_reset() {
    let mut gateway = TestGateway::new(&[listener("tcp", ListenerProtocol::Tcp, None)]);
    assert_eq!(rest_of(gateway.connect()), "");
    gateway.service("empty", &[]);
    gateway.stream("tcp", RouteKind::Tcp, "web", &[], &[json!({"name": "empty"})]);
    let error = gateway.connect().read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(error, Err(std::io::ErrorKind::ConnectionReset));
}

#[test]
fn udp_flows_keep_their_backend_and_are_divided_by_weight() {
    let mut gateway = TestGateway::new(&[listener("udp", ListenerProtocol::Udp, None)]);
    gateway.service("one", &[udp("one")]);
    gateway.service("two", &[udp("two")]);
    gateway.stream("udp", RouteKind::Udp, "dns", &[], &[json!({"name": "one", "weight": 3}), json!({"name": "two"})]);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for flow in 0..20 {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        // Replies from other addresses are not received.
        client.connect(gateway.address).expect("an address");
        let mut answers = Vec::new();
        for word in ["a", "b", "c"] {
            client.send(word.as_bytes()).expect("sent");
            let mut buffer = [0; 64];
            let length = client.recv(&mut buffer).expect("an answer");
            answers.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        let who = answers[0][..3].to_owned();
        assert_eq!(answers, ["a", "b", "c"].map(|word| format!("{who}{word}")), "flow {flow}");
        *counts.entry(who).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("one".to_owned(), 15), ("two".to_owned(), 5)]));
}
