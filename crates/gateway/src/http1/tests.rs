use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use proptest::prelude::*;

use super::chunked::{BodyDecoder, Decoded};
use super::head::{BodyLength, may_be_complete, read, write};
use super::{Connection, RequestError, put_trailers};
use crate::body::RequestBody;
use crate::headers::Client;
use crate::tests::TIMEOUT;

const CLIENT: &str = "x-forwarded-for: 192.0.2.7\r\nx-forwarded-port: 80\r\nx-forwarded-proto: http\r\n";

fn client() -> Client {
    let value = HeaderValue::from_static;
    Client { ip: value("192.0.2.7"), port: value("80"), proto: value("http") }
}

fn bytes(text: &str) -> BytesMut {
    BytesMut::from(text)
}

/// Body framing of a response, persistence of its connection, and its remaining length and encoding headers.
fn framed(head: &str, method: &Method) -> Result<(BodyLength, bool, usize), &'static str> {
    let head = read(&mut bytes(head), method)?.expect("a whole head");
    Ok((head.body_length, head.keep_alive, head.headers.get_all(CONTENT_LENGTH).iter().count()))
}

#[test]
fn response_framing_is_determined_by_the_head() {
    use BodyLength::{Chunked, Length, UntilClose};
    let response = |rest: &str| framed(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n"), &Method::GET);
    assert_eq!(response("Content-Length: 5\r\n"), Ok((Length(5), true, 1)));
    assert_eq!(response("Content-Length: 5\r\nConnection: x, Close\r\n"), Ok((Length(5), false, 1)));
    assert_eq!(response("Content-Length: 5, 5\r\nContent-Length: 5\r\n"), Ok((Length(5), true, 1)));
    assert_eq!(response("Transfer-Encoding: Chunked\r\n"), Ok((Chunked, true, 0)));
    assert_eq!(
        response("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        Ok((Chunked, false, 0)),
        "one of them counts"
    );
    assert_eq!(response(""), Ok((UntilClose, false, 0)));
    for status in ["204 None", "304 As before"] {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(framed(&head, &Method::GET), Ok((Length(0), true, 1)), "{status}");
    }
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(framed(head, &Method::HEAD), Ok((Length(0), true, 0)));
    let old = |rest: &str| framed(&format!("HTTP/1.0 200 OK\r\n{rest}\r\n"), &Method::GET);
    assert_eq!(old("Content-Length: 5\r\n"), Ok((Length(5), false, 1)));
    assert_eq!(old("Content-Length: 5\r\nConnection: keep-alive\r\n"), Ok((Length(5), true, 1)));
    assert_eq!(old("Transfer-Encoding: chunked\r\n").ok(), None);
}

#[test]
fn ambiguous_responses_are_rejected() {
    let refused = |rest: &str| framed(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n"), &Method::GET).err().is_some();
    for bad in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Name : value\r\n",
        "Folded: one\r\n two\r\n",
    ] {
        assert!(refused(bad), "{bad:?}");
    }
    assert!(refused(&"X: y\r\n".repeat(101)) && !refused(&"X: y\r\n".repeat(100)));
    assert!(read(&mut bytes("HTTP/2.0 200 OK\r\n\r\n"), &Method::GET).is_err());
    assert!(read(&mut bytes("HTTP/1.1 099 OK\r\n\r\n"), &Method::GET).is_err());
    assert!(read(&mut bytes(&format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(300_000))), &Method::GET).is_err());
}

#[test]
fn request_framing_is_written_by_the_gateway() {
    let response = |body: Option<BodyLength>| {
        let mut request = Request::new(());
        *request.uri_mut() = "/a?b=c".parse().expect("a path");
        for (name, value) in [(HOST, "shop"), (CONTENT_LENGTH, "7"), (TRANSFER_ENCODING, "gzip"), (CONTENT_LENGTH, "8")]
        {
            request.headers_mut().append(name, HeaderValue::from_static(value));
        }
        let mut text = Vec::new();
        write(&request, body, &client(), &mut text);
        String::from_utf8(text).expect("text")
    };
    let head = |end: &str| format!("GET /a?b=c HTTP/1.1\r\nhost: shop\r\n{CLIENT}{end}\r\n\r\n");
    assert_eq!(response(None), head("content-length: 0"));
    assert_eq!(response(Some(BodyLength::Length(3))), head("content-length: 3"));
    assert_eq!(response(Some(BodyLength::Chunked)), head("transfer-encoding: chunked"));
}

/// Decoded elements of bytes split into pieces, and whether the body is complete.
fn decoded(text: &[u8], cuts: &[usize], body_length: BodyLength) -> Result<(Vec<u8>, Vec<String>, bool), &'static str> {
    let (mut decoder, mut buffer, mut body, mut trailers) =
        (BodyDecoder::new(body_length), BytesMut::new(), Vec::new(), Vec::new());
    let mut from = 0;
    let ends = cuts.iter().map(|fragmented| fragmented % (text.len() + 1)).chain([text.len()]);
    for end in ends {
        buffer.extend_from_slice(&text[from..end.max(from)]);
        from = end.max(from);
        loop {
            match decoder.next(&mut buffer)? {
                Decoded::Data(piece) => body.extend_from_slice(&piece),
                Decoded::Trailers(fields) => trailers.extend(fields.keys().map(ToString::to_string)),
                Decoded::Incomplete | Decoded::Done => break,
            }
        }
    }
    Ok((body, trailers, decoder.is_done()))
}

#[test]
fn chunked_bodies_are_decoded() {
    let whole = |text: &str| {
        decoded(text.as_bytes(), &[], BodyLength::Chunked)
            .map(|(body, trailers, is_done)| (String::from_utf8(body).expect("text"), trailers, is_done))
    };
    let yes = |body: &str, trailers: &[&str]| {
        Ok((body.to_owned(), trailers.iter().map(|&name| name.to_owned()).collect::<Vec<String>>(), true))
    };
    assert_eq!(whole("3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"), yes("abc0123456789", &[]));
    assert_eq!(whole("1 \r\na\r\n00\r\nX-Sum: 1\r\n\r\n"), yes("a", &["x-sum"]));
    assert_eq!(whole("3\r\nabc\r\n0\r\n"), Ok(("abc".to_owned(), vec![], false)));
    for bad in [
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "0x1\r\na\r\n",
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\rx\r\nabc\r\n",
        "3 4\r\nabc\r\n",
        "11111111111111111\r\n",
        "0\r\nno field\r\n\r\n",
    ] {
        assert!(whole(bad).is_err(), "{bad:?}");
    }
    assert!(whole(&format!("1;{}", "x".repeat(5000))).is_err(), "a line has an end");
    assert!(
        whole(&format!("1;{}\r\na\r\n", "x".repeat(3000)).repeat(6)).is_err(),
        "and so has what chunks say of themselves"
    );
    assert!(whole(&format!("0\r\nX: {}", "y".repeat(20_000))).is_err());
}

proptest! {
    #[test]
    fn a_body_decodes_the_same_for_any_fragmentation(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        has_trailer in any::<bool>(),
    ) {
        let mut cuts = cuts;
        let plain = parts.concat();
        let mut text: Vec<u8> = parts.iter().flat_map(|part| [format!("{:X}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()).collect();
        text.extend_from_slice(if has_trailer { b"0\r\nx-sum: 1\r\n\r\n" } else { b"0\r\n\r\n" });
        cuts.iter_mut().for_each(|fragmented| *fragmented %= text.len() + 1);
        cuts.sort_unstable();
        let trailers = if has_trailer { vec!["x-sum".to_owned()] } else { vec![] };
        prop_assert_eq!(decoded(&text, &cuts, BodyLength::Chunked), Ok((plain.clone(), trailers, true)));
        let more = [&plain[..], b"HTTP/1.1 200 OK"].concat();
        prop_assert_eq!(decoded(&more, &cuts, BodyLength::Length(plain.len() as u64)), Ok((plain.clone(), vec![], true)));
        let mut open = BodyDecoder::new(BodyLength::Length(plain.len() as u64 + 1));
        prop_assert!(open.end().is_err());
    }

    #[test]
    fn a_head_is_parsed_for_any_fragmentation(fragmented in 1_usize..60) {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Pod: one\r\n\r\nab";
        let mut buffer = bytes(&text[..fragmented.min(text.len())]);
        let early = read(&mut buffer, &Method::GET).expect("good so far");
        let seen = buffer.len();
        if early.is_none() {
            buffer.extend_from_slice(&text.as_bytes()[seen..]);
            prop_assert!(may_be_complete(&buffer, seen));
            let head = read(&mut buffer, &Method::GET).expect("good").expect("whole");
            prop_assert_eq!((head.status, head.body_length), (StatusCode::OK, BodyLength::Length(2)));
            prop_assert_eq!(&buffer[..], b"ab");
        }
    }
}

#[test]
fn only_announced_and_allowed_trailers_are_sent() {
    let fields = ["x-sum", "x-other", "authorization", "x-forwarded-for", "content-length", "connection"];
    let fields = fields.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")));
    let announced = HeaderValue::from_static("X-Sum, Authorization, X-Forwarded-For, Content-Length, Connection");
    let mut text = Vec::new();
    put_trailers(fields.into_iter().collect(), Some(&announced), &mut text);
    assert_eq!(String::from_utf8_lossy(&text), "x-sum: 1\r\n");
}

/// Pod that reads `count` bytes, responds, and then reads until the end; returns what it read.
fn pod(reads: usize, sends: &'static str) -> (std::net::SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let received = std::thread::spawn(move || {
        let mut stream: TcpStream = listener.accept().expect("a connection").0;
        let mut received = vec![0; reads];
        stream.read_exact(&mut received).expect("a request");
        stream.write_all(sends.as_bytes()).expect("response");
        stream.read_to_end(&mut received).expect("the rest");
        received
    });
    (address, received)
}

async fn connection(address: std::net::SocketAddr) -> Box<Connection> {
    Connection::new(tokio::net::TcpStream::connect(address).await.expect("a connection"))
}

#[tokio::test]
async fn interim_responses_are_skipped() {
    let sends =
        "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let (address, received) = pod(4, sends);
    let mut connection = connection(address).await;
    assert!(connection.is_ready());
    let head = connection.send_request(&mut Request::new(RequestBody::default()), &client()).await.expect("an answer");
    let mut decoder = BodyDecoder::new(head.body_length);
    assert!(!connection.is_idle(), "there is a body");
    let mut body = RequestBody::default();
    let piece = std::future::poll_fn(|cx| connection.poll_body(cx, &mut body, &mut decoder)).await;
    assert_eq!(piece.expect("a piece").expect("good").into_data().ok(), Some(Bytes::from_static(b"ab")));
    assert!(decoder.is_done() && connection.is_ready());
    drop(connection);
    assert_eq!(String::from_utf8_lossy(&received.join().expect("a pod")), format!("GET / HTTP/1.1\r\n{CLIENT}\r\n"));
}

#[tokio::test]
async fn unsolicited_responses_are_discarded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut connection = connection(listener.local_addr().expect("an address")).await;
    let mut pod = listener.accept().expect("a connection").0;
    assert!(connection.is_ready());
    pod.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("response");
    let noticed = async {
        while connection.is_ready() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, noticed).await.expect("it is noticed");
}

#[tokio::test]
async fn a_closed_connection_reports_whether_the_request_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut connection = connection(listener.local_addr().expect("an address")).await;
    drop(listener.accept().expect("a connection"));
    let fault = connection
        .send_request(&mut Request::new(RequestBody::default()), &client())
        .await
        .expect_err("the pod is closed");
    assert!(matches!(fault, RequestError::ConnectionClosed(_)), "{fault}");
    assert!(connection.request_started(), "the kernel took it");
    assert!(!connection.is_ready());
}
