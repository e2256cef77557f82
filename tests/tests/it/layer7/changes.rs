//! Changes under load: requests on open connections and new ones, while routes and certificates change.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;
use testbed::net::eventually;

use super::stage::{ADDRESS, Over, Stage, listener, rule};

/// Changes of the route.
const CHANGES: usize = 1000;
/// Connections that stay open.
const CONNECTIONS: usize = 8;
/// Far more than a response takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Has the route lead to a Service, and tell the pod how often it was changed.
fn change(stage: &Stage, turn: usize) {
    let filter = json!({
        "type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-turn", "value": turn.to_string()}]},
    });
    let service = if turn.is_multiple_of(2) { "even" } else { "odd" };
    let rules = json!([{"filters": [filter], "backendRefs": [{"name": service, "port": 80}]}]);
    stage.route("web", "web.test", &rules);
}

/// The turn that the pod of a response was told.
fn turn(response: &str) -> Option<usize> {
    response.lines().find_map(|line| line.strip_prefix("x-turn: "))?.trim().parse().ok()
}

/// One request on an open connection; the response of the pod.
fn exchange(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")?;
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    assert!(head.starts_with("http/1.1 200"), "{head}\n{}", String::from_utf8_lossy(&body));
    Ok(String::from_utf8_lossy(&body).to_lowercase())
}

fn connect(stage: &Stage) -> TcpStream {
    let at = SocketAddr::new(ADDRESS.parse().expect("an address"), 80);
    let stream = stage.outside.in_namespace(|| TcpStream::connect(at)).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

#[test]
fn s52_a_thousand_route_changes_fail_no_request_and_close_no_connection() {
    let stage = Stage::new();
    stage.backend("even");
    stage.backend("odd");
    stage.gateway(&json!([listener("http", 80)]));
    change(&stage, 0);
    let _ = stage.until("the route is served", &["http://web.test/"], |page| page.code == 200);
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let mut stream = connect(&stage);
                let (is_over, asked) = (&is_over, &asked);
                scope.spawn(move || {
                    let mut last = 0;
                    while !is_over.load(Relaxed) {
                        let heard = exchange(&mut stream).expect("the connection stays open and the request succeeds");
                        let now = turn(&heard).expect("the route says its turn");
                        assert!(now >= last, "a connection goes back from turn {last} to {now}");
                        last = now;
                        asked.fetch_add(1, Relaxed);
                    }
                    last
                })
            })
            .collect();
        let over = Over(&is_over);
        for turn in 1..=CHANGES {
            change(&stage, turn);
        }
        let mut fresh = connect(&stage);
        eventually("the last change is effective", || {
            exchange(&mut fresh).is_ok_and(|heard| turn(&heard) == Some(CHANGES))
        });
        // Each connection gets at least one more response.
        let before = asked.load(Relaxed);
        eventually("clients go on", || asked.load(Relaxed) > before + 2 * CONNECTIONS);
        drop(over);
        let last: Vec<usize> = clients.into_iter().map(|client| client.join().expect("no request failed")).collect();
        assert_eq!(last, [CHANGES; CONNECTIONS]);
    });
    assert!(asked.load(Relaxed) > CHANGES / 10, "there was load: {asked:?}");
}

#[test]
fn s51_certificates_of_ingresses_change_under_load_without_a_failed_request() {
    let stage = Stage::new();
    stage.backend("web");
    stage.certificate("web-tls", "web.test");
    let tls = json!([{"hosts": ["web.test"], "secretName": "web-tls"}]);
    stage.ingress("web", &[], &json!({"tls": tls, "rules": [rule("web.test", "/", "Prefix", "web")]}));
    let url = "https://web.test/";
    let _ = stage.until("the Ingress is served", &["--insecure", url], |page| page.code == 200);
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let trusting = |name: &str| {
        let certificate = stage.file(name).to_string_lossy().into_owned();
        stage.curl(ADDRESS, &["--cacert", &certificate, url])
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = ["--http1.1", "--http2"]
            .into_iter()
            .map(|version| {
                let (stage, is_over, asked) = (&stage, &is_over, &asked);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        // Several on one connection, and a new connection each time.
                        let got = stage.curl(ADDRESS, &["--insecure", "--fail", version, url, url, url]);
                        assert!(got.ok, "{version}: {got:?}");
                        asked.fetch_add(3, Relaxed);
                    }
                })
            })
            .collect();
        let over = Over(&is_over);
        for _ in 0..10 {
            let before = asked.load(Relaxed);
            // The file is replaced, too: only the new certificate is trusted.
            stage.certificate("web-tls", "web.test");
            eventually("the new certificate is shown", || trusting("web-tls.crt").ok);
            eventually("clients go on", || asked.load(Relaxed) > before);
        }
        drop(over);
        clients.into_iter().for_each(|client| client.join().expect("no request failed"));
    });
}
