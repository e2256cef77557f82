//! Timeouts, retries, HTTP/2 and upgrades towards backends, TLS towards them.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use routing::model::Retry;

use super::*;
use crate::tests::next_answer;

fn with_rule(rule: Rule, pods: &[SocketAddr]) -> TestGateway {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    gateway.service("one", pods);
    gateway.route("http", "web", &[], vec![rule]);
    gateway
}

fn to_one() -> Rule {
    rule(&json!({"backends": [{"name": "one"}]}))
}

/// Pod that answers nothing.
fn silent() -> SocketAddr {
    scripted(|_| String::new())
}

#[test]
fn time_limits_end_in_504() {
    for limits in [(Some(millis(50)), None), (None, Some(millis(50))), (Some(millis(60)), Some(millis(50)))] {
        let limited = Rule { request_timeout: limits.0, backend_timeout: limits.1, ..to_one() };
        let gateway = with_rule(limited, &[silent()]);
        let start = Instant::now();
        assert_eq!(code(&gateway.get("a", "/")), 504, "{limits:?}");
        assert!(start.elapsed() >= millis(50) && start.elapsed() < TIMEOUT, "{limits:?}: {:?}", start.elapsed());
    }
    let unlimited = Rule { request_timeout: Some(millis(0)), ..to_one() };
    assert_eq!(code(&with_rule(unlimited, &[named("one")]).get("a", "/")), 200);
}

#[test]
fn a_response_that_takes_too_long_is_broken_off() {
    let slow = scripted(|_| "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_owned());
    let gateway = with_rule(Rule { request_timeout: Some(millis(50)), ..to_one() }, &[slow]);
    let answer = gateway.get("a", "/");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nabc"), "{answer}");
}

/// Pod that fails with this code so many times, and then answers; and how many requests it got.
fn failing(times: usize, status: u16) -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let address = scripted(move |request| match seen.fetch_add(1, Relaxed) < times {
        true => response(status, "no"),
        false => response(200, request),
    });
    (address, count)
}

fn retry(attempts: u32) -> Rule {
    Rule { retry: Some(Retry { codes: vec![500, 503], attempts, backoff: Some(millis(1)) }), ..to_one() }
}

#[test]
fn responses_with_listed_codes_are_retried() {
    for (times, status, attempts, expected, requests) in
        [(2, 503, 2, 200, 3), (3, 503, 2, 503, 3), (1, 502, 2, 502, 1), (1, 500, 0, 500, 1)]
    {
        let (pod, count) = failing(times, status);
        let gateway = with_rule(retry(attempts), &[pod]);
        let answer = gateway.ask("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!((code(&answer), count.load(Relaxed)), (expected, requests), "{times} {status} {attempts}: {answer}");
        assert!(expected != 200 || answer.ends_with("hello"), "the body is sent again: {answer}");
    }
}

#[test]
fn a_body_too_large_to_keep_is_sent_once() {
    let (pod, count) = failing(1, 503);
    let gateway = with_rule(retry(3), &[pod]);
    let body = "x".repeat(100_000);
    let answer =
        gateway.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n{body}"));
    assert_eq!((code(&answer), count.load(Relaxed)), (503, 1));
}

#[test]
fn a_retry_goes_to_another_endpoint() {
    let ((bad, count), good) = (failing(usize::MAX, 503), named("good"));
    let gateway = with_rule(retry(1), &[bad, good]);
    for _ in 0..6 {
        assert_eq!(code(&gateway.get("a", "/")), 200);
    }
    assert!(count.load(Relaxed) > 0, "the bad one was tried");
}

#[test]
fn refused_connections_are_retried() {
    let patient = Rule { retry: Some(Retry { codes: Vec::new(), attempts: 2, backoff: Some(millis(40)) }), ..to_one() };
    let gateway = with_rule(patient, &[unused_address()]);
    let start = Instant::now();
    assert_eq!(code(&gateway.get("a", "/")), 502);
    // Two pauses, of half their length at least.
    assert!(start.elapsed() >= millis(20 + 40), "{:?}", start.elapsed());
}

#[test]
fn the_time_limit_of_an_attempt_leads_to_a_retry() {
    let silent_once = Arc::new(AtomicUsize::new(0));
    let pod = scripted(move |_| match silent_once.fetch_add(1, Relaxed) {
        0 => String::new(),
        _ => response(200, "second"),
    });
    let gateway = with_rule(Rule { backend_timeout: Some(millis(50)), ..retry(1) }, &[pod]);
    assert!(gateway.get("a", "/").ends_with("second"));
}

#[test]
fn websockets_pass_in_both_directions() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gateway = with_rule(Rule { request_timeout: Some(TIMEOUT), ..to_one() }, &[server.local_addr().expect("one")]);
    let mut client = gateway.connect();
    client
        .write_all(b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .expect("sent");
    let (mut pod, _) = server.accept().expect("a connection");
    let (head, _) = next_answer(&mut pod);
    assert!(head.contains("upgrade: websocket"), "{head}");
    pod.write_all(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").expect("sent");
    assert!(next_answer(&mut client).0.starts_with("http/1.1 101"));
    let mut word = [0; 5];
    client.write_all(b"there").expect("sent");
    pod.read_exact(&mut word).expect("received");
    assert_eq!(&word, b"there");
    pod.write_all(b"again").expect("sent");
    client.read_exact(&mut word).expect("received");
    assert_eq!(&word, b"again");
}

#[test]
fn h2c_backends_get_http_2() {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    let pod = gateway.runtime.block_on(async {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = server.accept().await {
                let service = hyper::service::service_fn(|request: ::http::Request<hyper::body::Incoming>| async move {
                    let shown = format!("{:?} {}", request.version(), request.uri());
                    Ok::<_, std::convert::Infallible>(::http::Response::new(http_body_util::Full::new(bytes::Bytes::from(shown))))
                });
                let serving = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
                tokio::spawn(serving.serve_connection(hyper_util::rt::TokioIo::new(stream), service));
            }
        });
        address
    });
    gateway.service("one", &[pod]);
    let mut h2c = to_one();
    h2c.backends[0].target = Target::Service(target_by("one", BackendProtocol::Http2, None));
    gateway.route("http", "web", &[], vec![h2c]);
    let answer = gateway.get("web.example", "/x?y");
    assert!(answer.ends_with("HTTP/2.0 http://web.example/x?y"), "{answer}");
}
