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
        let mut buffer = vec![0; 65_536];
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

#[test]
fn the_longest_datagrams_pass_in_both_directions() {
    let mut gateway = TestGateway::new(&[listener("udp", ListenerProtocol::Udp, None)]);
    gateway.service("one", &[udp("one")]);
    gateway.stream("udp", RouteKind::Udp, "dns", &[], &[json!({"name": "one"})]);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    client.connect(gateway.address).expect("an address");
    // The longest that IPv4 has, and the empty one.
    for length in [65_507 - "one".len(), 0, 1] {
        client.send(&vec![b'x'; length]).expect("sent");
        let mut buffer = vec![0; 65_536];
        let received = client.recv(&mut buffer).expect("an answer");
        assert_eq!(&buffer[..received], [&b"one"[..], &vec![b'x'; length]].concat(), "{length}");
    }
}

#[test]
fn datagrams_of_clients_that_a_policy_denies_are_dropped() {
    let mut gateway = TestGateway::new(&[listener("udp", ListenerProtocol::Udp, None)]);
    gateway.service("one", &[udp("one")]);
    let mut denies = |range: &str| {
        let policy = Policy { deny: vec![range.parse().expect("a range")], ..Policy::default() };
        let policy = Some(Arc::new(policy));
        gateway.stream_with("udp", (RouteKind::Udp, "dns"), &[], &[json!({"name": "one"})], policy);
        gateway.address
    };
    let at = denies("127.0.0.1/32");
    let [client, other] = ["127.0.0.1:0", "127.0.0.2:0"].map(|from| {
        let socket = UdpSocket::bind(from).expect("a port");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket.connect(at).expect("an address");
        socket
    });
    let answer = |socket: &UdpSocket, word: &str| {
        socket.send(word.as_bytes()).expect("sent");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("an answer");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    client.send(b"denied").expect("sent");
    // Datagrams are taken in order: this one after that of the other client.
    assert_eq!(answer(&other, "a"), "onea");
    denies("127.0.0.2/32");
    assert_eq!(answer(&client, "b"), "oneb", "the first answer");
    assert_eq!(answer(&other, "c"), "onec", "flows that exist are kept");
}
