//! Responses of all kinds of HTTP/1.1 servers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;

/// Pod that reads a request head and then runs this, once per connection.
fn pod(script: impl Fn(&mut BufReader<TcpStream>, &TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("the same"));
            let mut line = String::new();
            while !line.ends_with("\r\n\r\n") && reader.read_line(&mut line).is_ok_and(|count| count > 0) {}
            script(&mut reader, &stream);
        }
    });
    address
}

/// Response that a client gets from a pod that sends this and closes.
fn answered(sends: &'static str) -> String {
    let pod = pod(move |_, mut stream| stream.write_all(sends.as_bytes()).expect("sent"));
    let answer =
        TestPort::new(port(Mode::Http), &[pod]).send_raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    answer.lines().filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn bodies_are_complete_for_every_framing() {
    let whole = |text: &str| text.starts_with("HTTP/1.1 200 OK\n") && text.ends_with("\nabcdef");
    let by_length = answered("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef");
    assert!(whole(&by_length) && by_length.contains("content-length: 6"), "{by_length}");
    let chunks = answered(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n3\r\ndef\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    assert!(chunks.contains("transfer-encoding: chunked") && chunks.contains("\n3\nabc\n3\ndef\n0\n"), "{chunks}");
    let open = answered("HTTP/1.0 200 OK\r\n\r\nabcdef");
    assert!(open.contains("transfer-encoding: chunked") && open.contains("\n6\nabcdef\n0\n"), "{open}");
    let none = answered("HTTP/1.1 204 Nothing\r\nX-Pod: 1\r\n\r\n");
    assert!(none.starts_with("HTTP/1.1 204 No Content\n") && none.contains("x-pod: 1"), "{none}");
    let delayed = answered("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef");
    assert!(whole(&delayed), "{delayed}");
}

#[test]
fn s48_responses_cannot_be_smuggled() {
    for (sends, why) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 6\r\n\r\nabcdef",
            "conflicting response Content-Length values",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "Transfer-Encoding other than chunked",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n", "not HTTP/1.1"),
        ("HTTP/1.1 200 OK\r\nContent-", "connection closed within the response head"),
        ("HTTP/1.1 101 Changed\r\nUpgrade: websocket\r\n\r\n", "unrequested protocol upgrade"),
    ] {
        let answer = answered(sends);
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(why), "{sends}: {answer}");
    }
    let both =
        answered("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert!(!both.contains("content-length") && both.contains("\n3\nabc\n0\n"), "{both}");
}

#[test]
fn excess_response_bytes_close_the_connection() {
    let sends = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let pod = pod(move |reader, mut stream| {
        stream.write_all(sends.as_bytes()).expect("sent");
        // The gateway closes.
        assert_eq!(reader.read(&mut [0]).unwrap_or(0), 0);
    });
    let port_under_test = TestPort::new(port(Mode::Http), &[pod]);
    let mut stream = port_under_test.connect();
    for _ in 0..3 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        assert_eq!(next_answer(&mut stream).1, "abc");
    }
}

#[test]
fn an_early_response_is_accepted() {
    let pod = pod(|_, mut stream| {
        stream.write_all(b"HTTP/1.1 413 Enough\r\nContent-Length: 6\r\nConnection: close\r\n\r\nenough").expect("sent");
    });
    let port_under_test = TestPort::new(port(Mode::Http), &[pod]);
    let mut stream = port_under_test.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nabc").expect("sent");
    let (head, body) = next_answer(&mut stream);
    assert!(head.starts_with("http/1.1 413 "), "{head}");
    assert_eq!(body, "enough");
}

#[test]
fn request_and_response_bodies_overlap() {
    let pod = pod(|reader, mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
        for line in reader.lines().map_while(Result::ok).filter(|line| line.starts_with("word")) {
            write!(stream, "{:x}\r\n{line}\r\n", line.len()).expect("sent");
        }
    });
    let port_under_test = TestPort::new(port(Mode::Http), &[pod]);
    let mut stream = port_under_test.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
    let mut answers = BufReader::new(stream.try_clone().expect("the same")).lines().map_while(Result::ok);
    for word in ["word one", "word two", "word three"] {
        write!(stream, "{:x}\r\n{word}\r\n\r\n", word.len() + 2).expect("sent");
        assert!(answers.any(|line| line == word), "it comes before the next is sent");
    }
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let much = vec![b'x'; 3_000_000];
    let pod = pod(|reader, mut stream| {
        let mut body = vec![0; 3_000_000];
        reader.read_exact(&mut body).expect("all of it");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n").expect("sent");
        stream.write_all(&body).expect("sent");
    });
    let port_under_test = TestPort::new(port(Mode::Http), &[pod]);
    let mut stream = port_under_test.connect();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n").expect("sent");
    stream.write_all(&much).expect("sent");
    assert!(next_answer(&mut stream).1.as_bytes() == much);
}
