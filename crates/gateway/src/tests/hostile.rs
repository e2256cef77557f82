//! Clients who mean ill: requests that are two, heads that never end, connections without end.

use std::time::Duration;

use super::pods::{Manner, Pod};
use super::*;
use crate::sources::Sources;

const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn s48_no_request_is_smuggled_in_another() {
    let pod = Pod::new(Manner::Good);
    let bed = Bed::new(port(Mode::Http), &[pod.address]);
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
        let answer = bed.say(text);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{text:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count().max(1), 1, "one answer at most: {text:?}: {answer}");
        assert_eq!(pod.heard().len(), 0, "{text:?}");
    }
}

#[test]
fn s48_where_length_and_pieces_disagree_the_pod_hears_one_of_them() {
    let pod = Pod::new(Manner::Good);
    let bed = Bed::new(port(Mode::Http), &[pod.address]);
    for headers in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"]
    {
        // By its length the body is `0\r\n\r\nG`, by its pieces it is empty.
        let answer = bed.say(&format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n0\r\n\r\nG"));
        // What was behind it is not read, so the connection may be reset before the answer is.
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 200"),
            "{answer}"
        );
    }
    eventually("the pod hears both", || pod.heard().len() == 2);
    for head in pod.heard() {
        let head = head.to_lowercase();
        assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "nothing behind it: {head:?}");
    }
}

#[test]
fn pieces_that_are_none_end_the_request() {
    let pod = Pod::new(Manner::Good);
    let bed = Bed::new(port(Mode::Http), &[pod.address]);
    for body in ["zz\r\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "-1\r\n\r\n", "fffffffffffffffff\r\n"] {
        let answer = bed.say(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{EVIL}"));
        assert!(!answer.starts_with("HTTP/1.1 200"), "{body:?}: {answer}");
    }
    assert!(pod.heard().iter().all(|head| !head.contains("evil")), "{:?}", pod.heard());
}

#[test]
fn heads_are_bounded() {
    let pod = Pod::new(Manner::Good);
    let bed = Bed::new(port(Mode::Http), &[pod.address]);
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200));
    for text in [long, many] {
        let answer = bed.say(&text);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{}", &answer[..answer.len().min(80)]);
    }
    assert_eq!(pod.heard().len(), 0);
}

#[test]
fn slow_clients_are_cut_off() {
    let pod = Pod::new(Manner::Good);
    let impatient = Port { idle: Some(Duration::from_secs(1)), ..port(Mode::Http) };
    let bed = Bed::new(impatient, &[pod.address]);
    let begun = Instant::now();
    for begin in [
        "",
        "G",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
    ] {
        let answer = bed.say(begin);
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(pod.heard().is_empty());
    eventually("their places are free", || bed.lane.open() == 0);
}

#[test]
fn there_is_an_end_of_connections() {
    let pod = Pod::new(Manner::Good);
    let limits = Limits { connections: 2, ..Limits::default() };
    let bed = Bed::with(port(Mode::Http), &[pod.address], limits);
    let held: Vec<TcpStream> = (0..2).map(|_| bed.connect()).collect();
    eventually("both are in", || bed.lane.open() == 2);
    let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(rest_of(bed.connect()), "", "the third is hung up on");
    drop(held);
    eventually("there is room again", || bed.say(get).starts_with("HTTP/1.1 200"));
}

#[test]
fn whoever_is_not_in_the_ranges_is_hung_up_on() {
    let pod = Pod::new(Manner::Good);
    let bed = Bed::new(port(Mode::Http), &[pod.address]);
    let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let ask_from = |ip: [u8; 4]| {
        let mut stream = bed.connect_from(ip.into());
        let _ = stream.write_all(get.as_bytes());
        rest_of(stream)
    };
    bed.lane.sources.store(Arc::new(Sources::of(&["192.0.2.0/24".into()])));
    assert_eq!(ask_from([127, 0, 0, 2]), "");
    assert!(ask_from([127, 0, 0, 1]).starts_with("HTTP/1.1 200"), "the machine itself, by the address of the listener");
    bed.lane.sources.store(Arc::new(Sources::of(&["127.0.0.0/8".into()])));
    assert!(ask_from([127, 0, 0, 2]).starts_with("HTTP/1.1 200"));
}

#[test]
fn requests_under_way_are_answered_when_the_listener_goes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut bed = Bed::new(port(Mode::Http), &[listener.local_addr().expect("an address")]);
    let mut client = bed.connect();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let (mut pod, _) = listener.accept().expect("a connection");
    let _ = next_answer(&mut pod);
    let idle = bed.connect();
    eventually("both are in", || bed.lane.open() == 2);
    bed.door = None;
    bed.lane.close();
    assert_eq!(rest_of(idle), "", "one that waits for nothing is ended");
    pod.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("sent");
    let answer = rest_of(client);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    // It is closed by the thread that heard of connections, which may be busy.
    eventually("nobody listens", || TcpStream::connect(bed.address).is_err());
    eventually("all have ended", || bed.lane.open() == 0);
}
