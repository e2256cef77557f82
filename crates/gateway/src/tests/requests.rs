//! Requests over HTTP/1.1 and HTTP/2, and failing pods.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::pods::{Behaviour, Pod};
use super::*;

const GET: &str = "GET /x HTTP/1.1\r\nHost: web.example\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n";
const LAST: &str = "GET /x HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n";

/// Port without a listener.
fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address")
}

#[test]
fn requests_of_one_client_connection_reuse_one_upstream_connection() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let mut stream = port_under_test.connect();
    for _ in 0..5 {
        stream.write_all(GET.as_bytes()).expect("sent");
        let (head, body) = next_answer(&mut stream);
        assert!(head.starts_with("http/1.1 200") && !head.contains("keep-alive"), "{head}");
        let body = body.to_lowercase();
        assert!(body.starts_with("get /x http/1.1\r\n") && body.contains("host: web.example"), "{body}");
        assert!(body.contains("x-forwarded-for: 198.51.100.1, 127.0.0.1\r\n"), "{body}");
        assert!(body.contains("x-forwarded-port: 80\r\n") && body.contains("x-forwarded-proto: http\r\n"), "{body}");
    }
    assert_eq!(*pod.connections.lock(), 1);
}

#[test]
fn requests_are_balanced_over_pods() {
    let pods: Vec<Pod> = (0..3).map(|_| Pod::new(Behaviour::Good)).collect();
    let port_under_test = TestPort::new(port(Mode::Http), &pods.iter().map(|pod| pod.address).collect::<Vec<_>>());
    let mut stream = port_under_test.connect();
    for _ in 0..9 {
        stream.write_all(GET.as_bytes()).expect("sent");
        let _ = next_answer(&mut stream);
    }
    assert_eq!(pods.iter().map(|pod| pod.requests().len()).collect::<Vec<_>>(), [3, 3, 3]);
}

#[test]
fn bodies_pass_chunked_and_with_content_length() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let _ =
        port_under_test.send_raw("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
    let pieces = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
    let _ = port_under_test.send_raw(pieces);
    let requests = pod.requests();
    assert_eq!(requests.len(), 2);
    for one in &requests {
        assert!(one.ends_with("\r\n\r\nhello"), "{one}");
    }
    assert!(requests[1].to_lowercase().contains("transfer-encoding: chunked"), "{}", requests[1]);
}

#[test]
fn a_response_to_head_has_no_body() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let response_text =
        port_under_test.send_raw("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").to_lowercase();
    let length: usize = response_text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a length")
        .parse()
        .expect("a number");
    assert!(length > 0 && response_text.ends_with("\r\n\r\n"), "{response_text}");
}

#[test]
fn an_unreachable_pod_is_skipped() {
    let pod = Pod::new(Behaviour::Good);
    let port_under_test = TestPort::new(port(Mode::Http), &[unused_address(), pod.address]);
    for _ in 0..4 {
        let answer = port_under_test.send_raw(&LAST.replace("GET", "POST"));
        assert!(answer.starts_with("HTTP/1.1 200"), "nothing was sent to the other: {answer}");
    }
}

#[test]
fn a_pooled_connection_closed_by_the_pod_is_replaced() {
    let pod = Pod::new(Behaviour::CloseAfterResponse);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let mut stream = port_under_test.connect();
    for _ in 0..20 {
        stream.write_all(GET.as_bytes()).expect("sent");
        let (head, _) = next_answer(&mut stream);
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    assert_eq!(pod.requests().len(), 20, "none came twice");
}

#[test]
fn non_idempotent_requests_are_not_retried() {
    let pod = Pod::new(Behaviour::CloseImmediately);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod.address]);
    let answer =
        port_under_test.send_raw("POST /pay HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("Service web in the namespace shop") && answer.contains("kubectl -n shop"), "{answer}");
    assert_eq!(pod.requests().len(), 1);
}

#[test]
fn error_pages_state_the_problem() {
    let port_under_test = TestPort::new(port(Mode::Http), &[]);
    let answer = port_under_test.send_raw(LAST);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("no ready pod"), "{answer}");
    assert!(answer.contains("kubectl -n shop get endpointslices -l kubernetes.io/service-name=web"), "{answer}");
    port_under_test.set_pods(&[unused_address()]);
    let answer = port_under_test.send_raw(LAST);
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("refused the connection"), "{answer}");
    let silent = Pod::new(Behaviour::Silent);
    let impatient = Port { idle: Some(Duration::from_secs(1)), ..port(Mode::Http) };
    let port_under_test = TestPort::new(impatient, &[silent.address]);
    let answer = port_under_test.send_raw(LAST);
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("did not respond within 1 s"), "{answer}");
}

#[test]
fn a_protocol_upgrade_is_proxied_in_both_directions() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port_under_test = TestPort::new(port(Mode::Http), &[listener.local_addr().expect("an address")]);
    let mut client = port_under_test.connect();
    let ask =
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    client.write_all(ask.as_bytes()).expect("sent");
    let (mut pod, _) = listener.accept().expect("a connection");
    let (head, _) = next_answer(&mut pod);
    assert!(head.contains("upgrade: websocket") && head.contains("connection: upgrade"), "{head}");
    assert!(head.contains("x-forwarded-for: 127.0.0.1"), "{head}");
    let yes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\nhello";
    pod.write_all(yes.as_bytes()).expect("sent");
    let (head, _) = next_answer(&mut client);
    assert!(head.starts_with("http/1.1 101") && head.contains("sec-websocket-accept: y"), "{head}");
    let mut word = [0; 5];
    client.read_exact(&mut word).expect("what came behind the head");
    assert_eq!(&word, b"hello");
    client.write_all(b"there").expect("sent");
    pod.read_exact(&mut word).expect("received");
    assert_eq!(&word, b"there");
    pod.write_all(b"again").expect("sent");
    client.read_exact(&mut word).expect("received");
    assert_eq!(&word, b"again");
    drop(pod);
    assert_eq!(rest_of(client), "");
}

/// HTTP/2 pod that echoes requests and sends a gRPC trailer.
pub(crate) fn h2_pod(runtime: &Runtime) -> SocketAddr {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(|request: http::Request<Incoming>| async move {
                let shown = format!(
                    "{:?} {} te={:?} xff={:?}",
                    request.version(),
                    request.uri(),
                    request.headers().get("te"),
                    request.headers().get("x-forwarded-for")
                );
                let body = request.into_body().collect().await?.to_bytes();
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                let frames = [Ok::<_, hyper::Error>(Frame::data(body)), Ok(Frame::trailers(trailers))];
                let answer = StreamBody::new(futures_util::stream::iter(frames));
                let answer = http::Response::builder().header("x-shown", shown).body(answer);
                Ok::<_, hyper::Error>(answer.expect("an answer"))
            });
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(serving.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

#[test]
fn grpc_is_proxied_with_trailers() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let pod = h2_pod(&runtime);
    let port_under_test = TestPort::new(port(Mode::Http), &[pod]);
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(port_under_test.address).await.expect("a connection");
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        for _ in 0..3 {
            let request = http::Request::post("http://web.example/echo.Echo/Say")
                .header("content-type", "application/grpc+proto")
                .header("te", "trailers")
                .body(Full::new(Bytes::from_static(b"\0\0\0\0\x02hi")))
                .expect("a request");
            let answer = sender.send_request(request).await.expect("an answer");
            let shown = answer.headers()["x-shown"].to_str().expect("text").to_owned();
            assert!(shown.contains("HTTP/2.0 http://web.example/echo.Echo/Say te=Some(\"trailers\")"), "{shown}");
            assert!(shown.contains("xff=Some(\"127.0.0.1\")"), "{shown}");
            let whole = answer.into_body().collect().await.expect("a body");
            assert_eq!(whole.trailers().expect("trailers")["grpc-status"], "0");
            assert_eq!(&whole.to_bytes()[..], b"\0\0\0\0\x02hi");
        }
    });
}

#[test]
fn tcp_is_proxied_with_half_close() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let told = Port { proxy_protocol: true, ..port(Mode::Tcp) };
    let port_under_test = TestPort::new(told, &[listener.local_addr().expect("an address")]);
    let mut client = port_under_test.connect();
    client.write_all(b"\0anything\r\n").expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("sent");
    let (pod, _) = listener.accept().expect("a connection");
    let mut writer = pod.try_clone().expect("a second handle");
    let from = client.local_addr().expect("an address").port();
    assert_eq!(rest_of(pod), format!("PROXY TCP4 127.0.0.1 127.0.0.1 {from} 80\r\n\0anything\r\n"));
    writer.write_all(b"answer").expect("sent");
    writer.shutdown(std::net::Shutdown::Write).expect("sent");
    assert_eq!(rest_of(client), "answer");
}
