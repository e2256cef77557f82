//! Clients of many kinds: WebSockets, gRPC, the slow, the sly, and those who are not wanted.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use testbed::net::{Family, Protocol, eventually};

use super::pods::{self, next_head};
use super::stage::{Stage, TARGET, vip};

/// Far more than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn connect(stage: &Stage) -> TcpStream {
    let at = SocketAddr::new(vip(Family::V4), 80);
    let stream = stage.outside.in_namespace(|| TcpStream::connect(at)).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

/// Sends bytes as they are, and returns the response until the other side closes.
fn say(stage: &Stage, text: &str) -> String {
    let mut stream = connect(stage);
    stream.write_all(text.as_bytes()).expect("sent");
    let mut all = Vec::new();
    // A reset gives no more information than an end.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// A stage whose Service serves HTTP without a certificate, after the first response of its
/// pod.
pub(super) fn stage(annotations: &[(&str, &str)]) -> (Stage, testbed::net::Pod, pods::Heard) {
    let stage = Stage::new();
    let pod = stage.node.pod("web");
    let heard = pods::serve(&pod, TARGET, None);
    stage.publish(&[&[("backend-protocol", "http")], annotations].concat(), &[&pod]);
    let _ = stage.page(Family::V4, &["http://web.example/"]);
    heard.lock().clear();
    (stage, pod, heard)
}

#[test]
fn s48_websockets_pass() {
    let (stage, _pod, heard) = stage(&[]);
    let mut stream = connect(&stage);
    let ask = "GET /chat HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
               Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("sent");
    let head = next_head(&mut stream);
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: websocket"), "{head}");
    // A frame with the text `hi`, masked as clients must, is echoed unchanged.
    let frame = [0x81, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
    for _ in 0..3 {
        stream.write_all(&frame).expect("sent");
        let mut back = [0; 8];
        stream.read_exact(&mut back).expect("it comes back");
        assert_eq!(back, frame);
    }
    let heard = heard.lock().clone();
    assert!(heard[0].contains(&format!("x-forwarded-for: {}", stage.client(Family::V4))), "{heard:?}");
}

#[test]
fn s48_grpc_passes_with_its_trailers() {
    let stage = Stage::new();
    let pod = stage.node.pod("grpc");
    pods::serve_h2(&pod, TARGET);
    stage.publish(&[("backend-protocol", "http")], &[&pod]);
    let call = ["--http2-prior-knowledge", "--header", "content-type: application/grpc", "--header", "te: trailers"];
    let said = ["--data-binary", "a message", "http://web.example/echo.Echo/Say"];
    let page = stage.page(Family::V4, &[&call[..], &said].concat());
    assert!(page.starts_with("http/2 200") && page.contains("a message"), "{page}");
    assert!(page.contains("grpc-status: 0"), "the trailers come, too: {page}");
    assert!(page.contains("x-heard: http/2.0 post /echo.echo/say"), "the pod is spoken to by HTTP/2: {page}");
}

#[test]
fn s48_no_request_is_smuggled_past_the_gateway() {
    let (stage, _pod, heard) = stage(&[]);
    let evil = "GET /evil HTTP/1.1\r\nHost: web.example\r\n\r\n";
    let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: web.example\r\n{headers}\r\n0\r\n\r\n{evil}");
    for text in [
        post("Content-Length: 5\r\nContent-Length: 60\r\n"),
        post("Transfer-Encoding: chunked, identity\r\n"),
        post("Transfer-Encoding : chunked\r\n"),
        post("Transfer-Encoding:\r\n chunked\r\n"),
        format!("POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{evil}"),
    ] {
        let answer = say(&stage, &text);
        assert!(!answer.contains(" 200 "), "{text:?}: {answer}");
    }
    assert!(heard.lock().iter().all(|head| !head.contains("/evil")), "{:?}", heard.lock());
    let page = stage.page(Family::V4, &["http://web.example/"]);
    assert!(page.contains("get / http/1.1"), "others are served as ever: {page}");
}

#[test]
fn slow_clients_are_cut_off() {
    let (stage, _pod, heard) = stage(&[("connection-idle-timeout", "2")]);
    let begun = Instant::now();
    let answer = say(&stage, "GET / HTTP/1.1\r\nHost: web.example\r\nX-Slow: ");
    assert!(!answer.contains(" 200 "), "{answer}");
    let passed = begun.elapsed();
    assert!(passed >= Duration::from_secs(1) && passed < TIMEOUT, "{passed:?}");
    assert!(heard.lock().is_empty());
}

#[test]
fn source_ranges_hold_for_the_listener_too() {
    let (stage, pod, _heard) = stage(&[]);
    let stranger = stage.served.cluster().outside("stranger");
    stranger.route("203.0.113.0/24", &stage.node);
    let near = format!("{}/32", stage.outside.v4());
    let service = Stage::service(&[("backend-protocol", "http")]).source_range(&near).source_range("2001:db8::/32");
    stage.served.put(&service.json());
    stage.served.settle();
    eventually("the other is kept out", || {
        stranger.caller().timeout(Duration::from_millis(250)).ask(Protocol::Tcp, vip(Family::V4), 80).is_err()
    });
    let page = stage.page(Family::V4, &["http://web.example/"]);
    assert!(page.contains(&format!("x-forwarded-for: {}\r\n", stage.client(Family::V4))), "{page}");
    // The listener itself, past all rules: its port is what connections of the node come to.
    let listening = stage.node.run("ss --no-header --listening --tcp --numeric").success();
    let own = stage.node.v4().to_string();
    let ports: Vec<u16> = listening
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3)?.strip_prefix(&format!("{own}:"))?.parse().ok())
        .collect();
    assert!(!ports.is_empty(), "{listening}");
    for port in ports {
        let answer = stranger.run(&*format!("curl --silent --max-time 20 http://{own}:{port}/"));
        assert!(!answer.ok, "{answer:?}");
    }
    drop(pod);
}

#[test]
fn pages_say_what_is_missing_and_where_to_look() {
    let (stage, pod, _heard) = stage(&[]);
    stage.publish(&[("backend-protocol", "http")], &[]);
    let url = "http://web.example/";
    let mut page = String::new();
    eventually("nobody is there", || {
        page = stage.curl("web", Family::V4, &["--include", url]).out;
        page.contains(" 503 ")
    });
    assert!(page.contains("The Service my-service in the namespace default has no ready pod"), "{page}");
    assert!(page.contains("kubectl -n default get endpointslices -l kubernetes.io/service-name=my-service"), "{page}");
    stage.publish(&[("backend-protocol", "http")], &[&pod]);
    let _ = stage.page(Family::V4, &[url]);
}
