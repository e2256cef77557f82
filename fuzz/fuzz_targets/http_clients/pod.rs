//! The pod behind the Gateway: it answers requests of HTTP/1.1, in the way that the input chooses, and panics at one that two parsers could
//! understand differently, or that the Gateway did not make. The latter have no mark: they were hidden in another.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// The header by which the Gateway marks requests.
pub const MARK: (&str, &str) = ("x-mark", "81c7c5ab-cf4c-4e6f-8b83-0b6d0b0c6c1f");
/// Not a port of the machine's address, so that connections of other programs keep theirs.
const ADDRESS: &str = "127.77.0.1:0";

/// What no client may receive: it follows a response on the connection to the pod.
pub const HIDDEN: &str = "hidden-1f0a77c3";
/// Responses, and whether the pod closes after them. The first is the usual one; after 101 nothing would be a request.
const ANSWERS: [(&str, bool); 20] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        false,
    ),
    ("HTTP/1.1 204 No Content\r\n\r\n", false),
    ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        false,
    ),
    ("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbytes", true),
    ("HTTP/1.0 200 OK\r\n\r\nuntil the end", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", true),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", true),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", false),
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b=c\r\nContent-Length: 0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n", false),
    ("HTTP/1.1 200 OK\r\nX y: a\r\nContent-Length: 0\r\n\r\n", false),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nhidden-1f0a77c3",
        false,
    ),
    ("HTTP/1.1 204 No Content\r\nContent-Length: 15\r\n\r\nhidden-1f0a77c3", false),
    ("HTTP/2 200\r\n\r\n", false),
    ("", true),
];

/// How the pod answers, by its place in the table.
static ANSWER: AtomicUsize = AtomicUsize::new(0);

/// Chooses how the pod answers; others than the usual way are only for some numbers.
pub fn will_answer(number: u8) {
    let place = usize::from(number);
    ANSWER.store(if place < ANSWERS.len() { place } else { 0 }, Ordering::Relaxed);
}

/// Serves on the current runtime; where.
pub async fn serve() -> SocketAddr {
    let listener = TcpListener::bind(ADDRESS).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(BufStream::new(stream)));
        }
    });
    address
}

/// Answers requests until the Gateway closes, which it may do within one.
async fn answer(mut stream: BufStream<TcpStream>) -> Option<()> {
    loop {
        let head = head(&mut stream).await?;
        let (is_chunked, length) = framing(&head);
        if is_chunked {
            while chunk(&mut stream).await? {}
        } else {
            skip(&mut stream, length).await?;
        }
        let (mut answer, closes) = ANSWERS[ANSWER.load(Ordering::Relaxed)];
        if head.starts_with("HEAD ") {
            answer = answer.strip_suffix("\r\n\r\nhello").map_or(answer, |_| &answer[..answer.len() - "hello".len()]);
        }
        stream.write_all(answer.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        if closes {
            return None;
        }
    }
}

/// The lines of a head.
async fn head(stream: &mut BufStream<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_until(b'\n', &mut head).await.ok()? == 0 {
            return None;
        }
        assert!(head.ends_with(b"\r\n") || !head.ends_with(b"\n"), "a bare LF: {}", head.escape_ascii());
    }
    // Calls of gRPC are forwarded by HTTP/2, which this pod does not serve.
    if head == b"PRI * HTTP/2.0\r\n\r\n" {
        return None;
    }
    // Values may have bytes beyond ASCII.
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Checks a head; whether the body has chunks, and its length otherwise.
fn framing(head: &str) -> (bool, u64) {
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let first = lines.next().unwrap_or_default();
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else { panic!("a request line: {head:?}") };
    assert!(!method.is_empty() && method.bytes().all(is_token), "a method: {head:?}");
    let is_target = target.starts_with('/') || target == "*";
    assert!(
        is_target && !target.contains(|one: char| one.is_ascii_control() || one.is_whitespace()),
        "a target: {head:?}"
    );
    let headers: Vec<(String, &str)> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("a header without a colon: {head:?}"));
            assert!(!name.is_empty() && name.bytes().all(is_token), "the name of a header: {head:?}");
            assert!(!value.contains(|one: char| one != '\t' && one.is_ascii_control()), "a value: {head:?}");
            (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']))
        })
        .collect();
    let all = |wanted: &str| -> Vec<&str> {
        headers.iter().filter(|(name, _)| name == wanted).map(|(_, value)| *value).collect()
    };
    assert_eq!(all(MARK.0), [MARK.1], "the Gateway did not make it: {head:?}");
    assert_eq!(all("host").len(), 1, "Host: {head:?}");
    // What the client sent under this name comes first.
    let is_added = all("x-added").iter().any(|line| *line == "1" || line.ends_with(",1"));
    assert!(all("x-removed").is_empty() && is_added, "filters: {head:?}");
    assert_eq!(all("x-forwarded-proto"), ["http"], "X-Forwarded-Proto: {head:?}");
    match (&all("transfer-encoding")[..], &all("content-length")[..]) {
        ([], []) => (false, 0),
        (["chunked"], []) => (true, 0),
        ([], [length]) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            (false, length.parse().expect("a length"))
        }
        _ => panic!("the length of the body is ambiguous: {head:?}"),
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a chunk, or the trailers; whether another chunk follows.
async fn chunk(stream: &mut BufStream<TcpStream>) -> Option<bool> {
    let line = line(stream).await?;
    let length = u64::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("the length of a chunk: {line:?}"));
    if length > 0 {
        skip(stream, length).await?;
        assert_eq!(self::line(stream).await?, "", "the end of a chunk");
        return Some(true);
    }
    while !self::line(stream).await?.is_empty() {}
    Some(false)
}

async fn line(stream: &mut BufStream<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await.ok()?;
    // The Gateway closed within it.
    line.ends_with(b"\n").then_some(())?;
    assert!(line.ends_with(b"\r\n"), "a bare LF: {}", line.escape_ascii());
    Some(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
}

async fn skip(stream: &mut BufStream<TcpStream>, length: u64) -> Option<()> {
    let mut rest = stream.take(length);
    let skipped = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.ok()?;
    (skipped == length).then_some(())
}
