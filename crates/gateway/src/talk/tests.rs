use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use proptest::prelude::*;

use super::head::{Measure, may_be_whole, read, write};
use super::pieces::{Next, Pieces};
use super::{Fault, Talk, put_trailers};
use crate::body::Upload;
use crate::headers::Client;
use crate::tests::PATIENCE;

const CLIENT: &str = "x-forwarded-for: 192.0.2.7\r\nx-forwarded-port: 80\r\nx-forwarded-proto: http\r\n";

fn client() -> Client {
    let value = HeaderValue::from_static;
    Client { ip: value("192.0.2.7"), port: value("80"), proto: value("http") }
}

fn bytes(text: &str) -> BytesMut {
    BytesMut::from(text)
}

/// How the body of this answer comes, whether its connection is kept, and which lengths and codings its headers have left.
fn framed(head: &str, method: &Method) -> Result<(Measure, bool, usize), &'static str> {
    let head = read(&mut bytes(head), method)?.expect("a whole head");
    Ok((head.measure, head.keeps, head.headers.get_all(CONTENT_LENGTH).iter().count()))
}

#[test]
fn where_an_answer_ends_is_known_from_its_head() {
    use Measure::{Chunks, End, Length};
    let said = |rest: &str| framed(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n"), &Method::GET);
    assert_eq!(said("Content-Length: 5\r\n"), Ok((Length(5), true, 1)));
    assert_eq!(said("Content-Length: 5\r\nConnection: x, Close\r\n"), Ok((Length(5), false, 1)));
    assert_eq!(said("Content-Length: 5, 5\r\nContent-Length: 5\r\n"), Ok((Length(5), true, 1)));
    assert_eq!(said("Transfer-Encoding: Chunked\r\n"), Ok((Chunks, true, 0)));
    assert_eq!(
        said("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        Ok((Chunks, false, 0)),
        "one of them counts"
    );
    assert_eq!(said(""), Ok((End, false, 0)));
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
fn answers_that_can_be_read_in_two_ways_are_refused() {
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
fn where_a_request_ends_is_said_by_us() {
    let said = |body: Option<Measure>| {
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
    assert_eq!(said(None), head("content-length: 0"));
    assert_eq!(said(Some(Measure::Length(3))), head("content-length: 3"));
    assert_eq!(said(Some(Measure::Chunks)), head("transfer-encoding: chunked"));
}

/// All that comes out of these bytes when they come in such pieces, and whether that was all.
fn decoded(text: &[u8], cuts: &[usize], measure: Measure) -> Result<(Vec<u8>, Vec<String>, bool), &'static str> {
    let (mut pieces, mut buffer, mut body, mut behind) =
        (Pieces::new(measure), BytesMut::new(), Vec::new(), Vec::new());
    let mut from = 0;
    let ends = cuts.iter().map(|cut| cut % (text.len() + 1)).chain([text.len()]);
    for end in ends {
        buffer.extend_from_slice(&text[from..end.max(from)]);
        from = end.max(from);
        loop {
            match pieces.next(&mut buffer)? {
                Next::Piece(piece) => body.extend_from_slice(&piece),
                Next::Trailers(fields) => behind.extend(fields.keys().map(ToString::to_string)),
                Next::More | Next::Over => break,
            }
        }
    }
    Ok((body, behind, pieces.is_over()))
}

#[test]
fn chunks_become_a_body() {
    let whole = |text: &str| {
        decoded(text.as_bytes(), &[], Measure::Chunks)
            .map(|(body, behind, is_over)| (String::from_utf8(body).expect("text"), behind, is_over))
    };
    let yes = |body: &str, behind: &[&str]| {
        Ok((body.to_owned(), behind.iter().map(|&name| name.to_owned()).collect::<Vec<String>>(), true))
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
    fn a_body_is_the_same_however_it_is_cut(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        has_trailer in any::<bool>(),
    ) {
        let mut cuts = cuts;
        let plain = parts.concat();
        let mut text: Vec<u8> = parts.iter().flat_map(|part| [format!("{:X}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat()).collect();
        text.extend_from_slice(if has_trailer { b"0\r\nx-sum: 1\r\n\r\n" } else { b"0\r\n\r\n" });
        cuts.iter_mut().for_each(|cut| *cut %= text.len() + 1);
        cuts.sort_unstable();
        let behind = if has_trailer { vec!["x-sum".to_owned()] } else { vec![] };
        prop_assert_eq!(decoded(&text, &cuts, Measure::Chunks), Ok((plain.clone(), behind, true)));
        let more = [&plain[..], b"HTTP/1.1 200 OK"].concat();
        prop_assert_eq!(decoded(&more, &cuts, Measure::Length(plain.len() as u64)), Ok((plain.clone(), vec![], true)));
        let mut open = Pieces::new(Measure::Length(plain.len() as u64 + 1));
        prop_assert!(open.end().is_err());
    }

    #[test]
    fn a_head_is_found_however_it_comes(cut in 1_usize..60) {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Pod: one\r\n\r\nab";
        let mut buffer = bytes(&text[..cut.min(text.len())]);
        let early = read(&mut buffer, &Method::GET).expect("good so far");
        let seen = buffer.len();
        if early.is_none() {
            buffer.extend_from_slice(&text.as_bytes()[seen..]);
            prop_assert!(may_be_whole(&buffer, seen));
            let head = read(&mut buffer, &Method::GET).expect("good").expect("whole");
            prop_assert_eq!((head.status, head.measure), (StatusCode::OK, Measure::Length(2)));
            prop_assert_eq!(&buffer[..], b"ab");
        }
    }
}

#[test]
fn behind_a_request_comes_what_was_announced_and_harmless() {
    let fields = ["x-sum", "x-other", "authorization", "x-forwarded-for", "content-length", "connection"];
    let fields = fields.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")));
    let announced = HeaderValue::from_static("X-Sum, Authorization, X-Forwarded-For, Content-Length, Connection");
    let mut text = Vec::new();
    put_trailers(fields.into_iter().collect(), Some(&announced), &mut text);
    assert_eq!(String::from_utf8_lossy(&text), "x-sum: 1\r\n");
}

/// A pod that hears so many bytes, says this, and then hears until the end. What it heard is told.
fn pod(hears: usize, says: &'static str) -> (std::net::SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = std::thread::spawn(move || {
        let mut stream: TcpStream = listener.accept().expect("a connection").0;
        let mut heard = vec![0; hears];
        stream.read_exact(&mut heard).expect("a request");
        stream.write_all(says.as_bytes()).expect("said");
        stream.read_to_end(&mut heard).expect("the rest");
        heard
    });
    (address, heard)
}

async fn talk(address: std::net::SocketAddr) -> Box<Talk> {
    Talk::new(tokio::net::TcpStream::connect(address).await.expect("a connection"))
}

#[tokio::test]
async fn interim_answers_are_passed_over_and_the_connection_is_kept() {
    let says =
        "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let (address, heard) = pod(4, says);
    let mut talk = talk(address).await;
    assert!(talk.is_ready());
    let head = talk.ask(&mut Request::new(Upload::default()), &client()).await.expect("an answer");
    let mut pieces = Pieces::new(head.measure);
    assert!(!talk.is_settled(), "there is a body");
    let mut body = Upload::default();
    let piece = std::future::poll_fn(|cx| talk.poll_piece(cx, &mut body, &mut pieces)).await;
    assert_eq!(piece.expect("a piece").expect("good").into_data().ok(), Some(Bytes::from_static(b"ab")));
    assert!(pieces.is_over() && talk.is_ready());
    drop(talk);
    assert_eq!(String::from_utf8_lossy(&heard.join().expect("a pod")), format!("GET / HTTP/1.1\r\n{CLIENT}\r\n"));
}

#[tokio::test]
async fn what_a_pod_says_unasked_is_nobodys_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut talk = talk(listener.local_addr().expect("an address")).await;
    let mut pod = listener.accept().expect("a connection").0;
    assert!(talk.is_ready());
    pod.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("said");
    let noticed = async {
        while talk.is_ready() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, noticed).await.expect("it is noticed");
}

#[tokio::test]
async fn a_pod_that_hangs_up_has_heard_the_request_or_has_not() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut talk = talk(listener.local_addr().expect("an address")).await;
    drop(listener.accept().expect("a connection"));
    let fault = talk.ask(&mut Request::new(Upload::default()), &client()).await.expect_err("nobody is there");
    assert!(matches!(fault, Fault::Ended(_)), "{fault}");
    assert!(talk.has_begun(), "the kernel took it");
    assert!(!talk.is_ready());
}
