//! Malicious clients: request smuggling, endless heads, floods of connections.

use std::time::Duration;

use super::pods::{Behaviour, Pod};
use super::*;
use crate::source_ranges::SourceRanges;

const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn s48_requests_cannot_be_smuggled() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let post = |headers: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}");
    let refused = [
        post("Content-Length: 4\r\nContent-Length: 30\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Content-Length: 4, 30\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Content-Length: +4\r\n", &format!("abcd{EVIL}")),
        post("Transfer-Encoding: xchunked\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Transfer-Encoding: chunked, identity\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Transfer-Encoding: gzip, chunked\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Transfer-Encoding : chunked\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("Transfer-Encoding:\r\n chunked\r\n", &format!("0\r\n\r\n{EVIL}")),
        post("X-Folded: a\r\n b\r\n", ""),
        post("Bad Name: x\r\n", ""),
        post("Host: b\r\n", ""),
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n".to_owned(),
    ];
    for text in &refused {
        let answer = port_under_test.send_raw(text);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{text:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count().max(1), 1, "one answer at most: {text:?}: {answer}");
        assert_eq!(pod.requests().len(), 0, "{text:?}");
    }
}

#[test]
fn s48_conflicting_content_length_and_chunked_reach_the_pod_as_one() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    for headers in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"]
    {
        // By Content-Length the body is `0\r\n\r\nG`, by its chunks it is empty.
        let answer = port_under_test
            .send_raw(&format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n0\r\n\r\nG"));
        // Unread input may cause a reset before the response is read.
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 200"),
            "{answer}"
        );
    }
    eventually("the pod reads both", || pod.requests().len() == 2);
    for head in pod.requests() {
        let head = head.to_lowercase();
        assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "nothing behind it: {head:?}");
    }
}

#[test]
fn invalid_chunks_are_rejected() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    for body in ["zz\r\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n"] {
        let answer = port_under_test
            .send_raw(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{EVIL}"));
        assert!(!answer.starts_with("HTTP/1.1 200"), "{body:?}: {answer}");
    }
    assert!(pod.requests().iter().all(|head| !head.contains("evil")), "{:?}", pod.requests());
}

#[test]
fn heads_are_bounded() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200));
    for text in [long, many] {
        let answer = port_under_test.send_raw(&text);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{}", &answer[..answer.len().min(80)]);
    }
    assert_eq!(pod.requests().len(), 0);
}

#[test]
fn slow_clients_are_disconnected() {
    let pod = Pod::new(Behaviour::Good);
    let impatient = Port { idle: Some(Duration::from_secs(1)), ..port(Mode::Http) };
    let port_under_test = TestPort::new(impatient, &[pod.address]);
    let start = Instant::now();
    for begin in [
        "",
        "G",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
    ] {
        let answer = port_under_test.send_raw(begin);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    assert!(pod.requests().is_empty());
    eventually("their places are free", || port_under_test.port_config.open() == 0);
}

#[test]
fn connections_are_limited_per_port() {
    let pod = Pod::new(Behaviour::Good);
    let limits = Limits { connections: 2, ..Limits::default() };
    let port_under_test = TestPort::with(port(Mode::Http), &[pod.address], limits);
    let held: Vec<TcpStream> = (0..2).map(|_| port_under_test.connect()).collect();
    eventually("both are in", || port_under_test.port_config.open() == 2);
    let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(rest_of(port_under_test.connect()), "", "the third is hung up on");
    drop(held);
    eventually("there is room again", || port_under_test.send_raw(get).starts_with("HTTP/1.1 200"));
}

#[test]
fn clients_outside_the_source_ranges_are_disconnected() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let ask_from = |ip: [u8; 4]| {
        let mut stream = port_under_test.connect_from(ip.into());
        let _ = stream.write_all(get.as_bytes());
        rest_of(stream)
    };
    port_under_test.port_config.sources.store(Arc::new(SourceRanges::of(&["192.0.2.0/24".into()])));
    assert_eq!(ask_from([127, 0, 0, 2]), "");
    assert!(ask_from([127, 0, 0, 1]).starts_with("HTTP/1.1 200"), "the machine itself, by the address of the listener");
    port_under_test.port_config.sources.store(Arc::new(SourceRanges::of(&["127.0.0.0/8".into()])));
    assert!(ask_from([127, 0, 0, 2]).starts_with("HTTP/1.1 200"));
}

#[test]
fn requests_in_flight_are_answered_when_the_listener_closes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut port_under_test = TestPort::new(port(Mode::Http), &[listener.local_addr().expect("an address")]);
    let mut client = port_under_test.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let (mut pod, _) = listener.accept().expect("a connection");
    let _ = next_answer(&mut pod);
    let idle = port_under_test.connect();
    eventually("both are in", || port_under_test.port_config.open() == 2);
    port_under_test.port_listener = None;
    port_under_test.port_config.close();
    assert_eq!(rest_of(idle), "", "one that waits for nothing is ended");
    pod.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("sent");
    let answer = rest_of(client);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    // It is closed by the accepting thread, which may be busy.
    eventually("nobody listens", || TcpStream::connect(port_under_test.address).is_err());
    eventually("all have ended", || port_under_test.port_config.open() == 0);
}
