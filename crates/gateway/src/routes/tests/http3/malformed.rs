//! Streams that no client of the library would send.

use quinn::{RecvStream, SendStream};

use super::*;
use crate::tests::eventually;

/// Frames of request streams.
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// A variable-length integer of eight bytes.
fn varint(value: u64) -> [u8; 8] {
    (value | 0xc000_0000_0000_0000).to_be_bytes()
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &varint(payload.len() as u64), payload].concat()
}

/// A HEADERS frame of a POST to `web.example` with these headers, by the static table of QPACK (RFC 9204, appendix A).
fn post(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let short = |text: &str| u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text");
    // No dynamic table; `:method: POST`, `:scheme: https`; `:authority` and `:path` with values.
    let mut block = vec![0, 0, 0xc0 | 20, 0xc0 | 23];
    for (name, value) in [(0_u8, "web.example"), (1, path)] {
        block.extend([&[0x50 | name, short(value)][..], value.as_bytes()].concat());
    }
    for (name, value) in headers {
        // A literal name, whose length has a prefix of three bits.
        block.extend([0x27, short(name).checked_sub(7).expect("a name of more than seven bytes")]);
        block.extend_from_slice(name.as_bytes());
        block.push(short(value));
        block.extend_from_slice(value.as_bytes());
    }
    frame(HEADERS, &block)
}

/// A request stream of a connection without an HTTP/3 client.
async fn stream(session: &Session, bytes: &[u8]) -> (SendStream, RecvStream) {
    let (mut send, recv) = session.connection.open_bi().await.expect("a stream");
    // The server may have broken the stream off.
    let _ = send.write_all(bytes).await;
    (send, recv)
}

/// What is received of a stream, or why it was broken off.
async fn received(mut recv: RecvStream) -> Result<Vec<u8>, quinn::ReadToEndError> {
    timeout(TIMEOUT, recv.read_to_end(1 << 20)).await.expect("an end")
}

/// A Gateway whose pod says how many bytes of a body it has received.
fn counting(ca: &Ca) -> (QuicGateway, Arc<parking_lot::Mutex<Vec<String>>>) {
    let mut gateway = QuicGateway::simple(ca, |_| {});
    let seen = Arc::<parking_lot::Mutex<Vec<String>>>::default();
    let into = Arc::clone(&seen);
    let pod = scripted(move |request| {
        into.lock().push(request.to_owned());
        response(200, "counted")
    });
    gateway.inner.service("one", &[pod]);
    (gateway, seen)
}

#[test]
fn bodies_that_are_not_as_declared_do_not_reach_a_pod_as_complete() {
    let ca = Ca::new();
    let (gateway, seen) = counting(&ca);
    let client = Client::new(&ca);
    let session = client.connect(&gateway, "web.example").expect("a connection");
    let five = post("/declared", &[("content-length", "5")]);
    let cut = [&[DATA][..], &varint(5), b"abc"].concat();
    for (what, body) in [
        ("longer than declared", frame(DATA, b"hello GET /smuggled HTTP/1.1\r\n\r\n")),
        ("shorter than declared", frame(DATA, b"abc")),
        ("ends within a frame", cut),
        (
            "ends within a frame after an empty one",
            [frame(DATA, b""), [&[DATA][..], &varint(9), b"abc"].concat()].concat(),
        ),
    ] {
        let result = client.runtime.block_on(async {
            let (mut send, recv) = stream(&session, &[&five[..], &body].concat()).await;
            let _ = send.finish();
            received(recv).await
        });
        let text = result.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        assert!(!text.contains("counted"), "{what}: {text}");
    }
    // Empty frames and frames of unknown types mean nothing.
    let fine = [five, frame(DATA, b""), frame(DATA, b"hel"), frame(0x21, b"grease"), frame(DATA, b"lo")].concat();
    let result = client.runtime.block_on(async {
        let (mut send, recv) = stream(&session, &fine).await;
        send.finish().expect("the end of a request");
        received(recv).await
    });
    assert!(String::from_utf8_lossy(&result.expect("an answer")).contains("counted"));
    assert_eq!(session.connection.close_reason(), None, "the connection is kept");
    let seen = seen.lock();
    assert!(seen.len() == 1 && seen[0].ends_with("\r\n\r\nhello"), "{seen:?}");
}

#[test]
fn headers_have_a_limit_which_counts_each_of_them() {
    let ca = Ca::new();
    let (gateway, seen) = counting(&ca);
    let client = Client::new(&ca);
    let mut session = client.connect(&gateway, "web.example").expect("a connection");
    // Less than the limit in compressed form, more in memory.
    let names: Vec<String> = (1000..2500).map(|index| format!("x-header-{index}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "a")).collect();
    let result = client.runtime.block_on(async {
        let (mut send, recv) = stream(&session, &post("/", &headers)).await;
        let _ = send.finish();
        received(recv).await
    });
    assert!(result.is_ok_and(|bytes| !bytes.is_empty()), "there is a response");
    assert!(seen.lock().is_empty());
    assert_eq!(gateway.limited("headers"), 1);
    assert_eq!(client.get(&mut session, "https://web.example/").status, 200, "the connection is kept");
}

#[test]
fn frames_that_would_be_buffered_are_bounded() {
    let ca = Ca::new();
    let (gateway, seen) = counting(&ca);
    let client = Client::new(&ca);
    let session = client.connect(&gateway, "web.example").expect("a connection");
    let huge = [&[HEADERS][..], &varint(1 << 40)].concat();
    let result = client.runtime.block_on(async {
        let (_send, recv) = stream(&session, &huge).await;
        received(recv).await
    });
    assert!(result.is_err() || result.is_ok_and(|bytes| bytes.is_empty()), "it is broken off at once");
    // Many requests that are not complete, each below the limit.
    let part = [&[HEADERS][..], &varint(60_000), &[0; 50_000]].concat();
    let streams = client.runtime.block_on(async {
        let mut streams = Vec::new();
        for _ in 0..32 {
            streams.push(stream(&session, &part).await);
        }
        streams
    });
    let refused = client.runtime.block_on(async {
        let mut refused = 0;
        for (send, _) in &streams {
            refused += usize::from(timeout(millis(2000), send.stopped()).await.is_ok());
        }
        refused
    });
    assert!(refused >= 16, "{refused} of 32 were refused");
    drop(streams);
    assert!(seen.lock().is_empty());
    assert!(gateway.limited("headers") >= 17);
    let mut after = client.connect(&gateway, "web.example").expect("a connection");
    assert_eq!(client.get(&mut after, "https://web.example/").status, 200);
}

#[test]
fn requests_with_headers_of_connections_are_malformed() {
    let ca = Ca::new();
    let (gateway, seen) = counting(&ca);
    let client = Client::new(&ca);
    let session = client.connect(&gateway, "web.example").expect("a connection");
    for request in [
        post("/", &[("transfer-encoding", "chunked")]),
        post("/", &[("connection", "close")]),
        post("/", &[("content-length", "5"), ("content-length", "6")]),
        post("/", &[("content-length", "+5")]),
        post("relative", &[]),
    ] {
        let result = client.runtime.block_on(async {
            let (mut send, recv) = stream(&session, &request).await;
            let _ = send.finish();
            received(recv).await
        });
        let is_reset = matches!(result, Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(_))));
        assert!(is_reset, "{result:?} for {}", String::from_utf8_lossy(&request));
    }
    eventually("they are over", || seen.lock().is_empty());
    assert_eq!(session.connection.close_reason(), None, "the connection is kept");
}
