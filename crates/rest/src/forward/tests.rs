use std::convert::Infallible;

use hyper::server;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;

/// The connections of a client and of a server, with a forwarder between them.
fn between() -> (DuplexStream, DuplexStream) {
    let (client, ours) = tokio::io::duplex(64 * 1024);
    let (inner, answering) = tokio::io::duplex(64 * 1024);
    let inner = Arc::new(parking_lot::Mutex::new(Some(inner)));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let io = inner.lock().take().expect("one request");
        let upgrade = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        async move {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            let backend = BackendRequest { method: &parts.method, path: &path, host: "pod", headers: &parts.headers };
            let reply = send(Box::new(io), &backend, ClientBody { body, upgrade, audit: None }).await;
            let failed = |error: ForwardError| Reply::bytes(503, "text/plain", error.to_string());
            Ok::<_, Infallible>(reply.unwrap_or_else(failed).into_response())
        }
    });
    tokio::spawn(server::conn::http1::Builder::new().serve_connection(TokioIo::new(ours), service).with_upgrades());
    (client, answering)
}

/// Reads until the text ends so.
async fn until(io: &mut DuplexStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        io.read_exact(&mut byte).await.expect("more");
        text.push(byte[0]);
    }
    String::from_utf8(text).expect("text")
}

#[tokio::test]
async fn after_an_upgrade_bytes_and_half_close_are_copied() {
    let (mut client, mut pod) = between();
    let ask = "GET /chat?room=1 HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(ask.as_bytes()).await.expect("sent");
    let heard = until(&mut pod, "\r\n\r\n").await.to_lowercase();
    assert!(heard.starts_with("get /chat?room=1 http/1.1\r\n"), "{heard}");
    assert!(
        heard.contains("upgrade: websocket") && heard.contains("host: pod") && !heard.contains("bearer"),
        "{heard}"
    );
    let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\nfirst";
    pod.write_all(answer.as_bytes()).await.expect("sent");
    let head = until(&mut client, "\r\n\r\n").await.to_lowercase();
    assert!(
        head.contains(" 101 ") && head.contains("sec-websocket-accept: y") && head.contains("upgrade: websocket"),
        "{head}"
    );
    assert_eq!(until(&mut client, "first").await, "first");
    client.write_all(b"question").await.expect("sent");
    client.shutdown().await.expect("finished");
    let mut heard = String::new();
    pod.read_to_string(&mut heard).await.expect("the end");
    assert_eq!(heard, "question");
    pod.write_all(b"answer").await.expect("sent");
    drop(pod);
    let mut said = String::new();
    client.read_to_string(&mut said).await.expect("the end");
    assert_eq!(said, "answer");
}

#[tokio::test]
async fn bodies_pass_as_they_come() {
    let (mut client, mut pod) = between();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        .await
        .expect("sent");
    assert!(until(&mut pod, "one\r\n").await.contains("transfer-encoding: chunked"));
    pod.write_all(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nuno\r\n",
    )
    .await
    .expect("sent");
    let head = until(&mut client, "uno\r\n").await.to_lowercase();
    assert_eq!(head.matches("set-cookie").count(), 2, "{head}");
    client.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.expect("sent");
    until(&mut pod, "two\r\n0\r\n\r\n").await;
    // The Pod dies in the middle of its response: the client must not see that as the end.
    drop(pod);
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.expect("the connection ends");
    assert!(!rest.contains("0\r\n\r\n"), "{rest:?}");
}

#[tokio::test]
async fn an_unrequested_upgrade_is_an_error() {
    let (mut client, mut pod) = between();
    client.write_all(b"GET / HTTP/1.1\r\nHost: s\r\n\r\n").await.expect("sent");
    until(&mut pod, "\r\n\r\n").await;
    pod.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        .await
        .expect("sent");
    assert!(until(&mut client, "\r\n").await.contains(" 503 "));
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

#[test]
fn hop_by_hop_headers_and_credentials_are_not_forwarded() {
    let from = headers(&[
        ("authorization", "Bearer secret"),
        ("connection", "x-hop, Upgrade"),
        ("x-hop", "1"),
        ("upgrade", "websocket"),
        ("host", "server"),
        ("impersonate-user", "root"),
        ("transfer-encoding", "chunked"),
        ("cookie", "kept"),
        ("sec-websocket-key", "kept"),
    ]);
    let mut to = HeaderMap::new();
    pass(&from, &mut to);
    let names: Vec<&str> = to.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["cookie", "sec-websocket-key"]);
}

#[test]
fn an_upgrade_needs_two_headers() {
    let protocol = |pairs| wanted(&headers(pairs)).map(|value| value.to_str().unwrap_or_default().to_owned());
    assert_eq!(
        protocol(&[("connection", "keep-alive, Upgrade"), ("upgrade", "SPDY/3.1")]).as_deref(),
        Some("SPDY/3.1")
    );
    assert_eq!(protocol(&[("upgrade", "SPDY/3.1")]), None);
    assert_eq!(protocol(&[("connection", "close"), ("upgrade", "SPDY/3.1")]), None);
}
