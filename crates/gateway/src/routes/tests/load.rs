//! Changes of routes and endpoints while requests flow: none fails, no connection is closed.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::tests::next_answer;

/// Changes of routes.
const CHANGES: usize = 1000;
/// Clients, each with one connection.
const CLIENTS: usize = 4;

#[test]
fn changes_of_routes_fail_no_request_and_close_no_connection() {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    let pods = [named("one"), named("two")];
    gateway.service("one", &pods[..1]);
    gateway.service("two", &pods[1..]);
    gateway.simple("http", "web", &["web"], &["one"]);
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            // A write or read on a closed connection panics.
            let (mut stream, is_over, answered) = (gateway.connect(), Arc::clone(&is_over), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !is_over.load(Relaxed) {
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").expect("sent");
                    let (head, body) = next_answer(&mut stream);
                    assert!(head.starts_with("http/1.1 200"), "{head}{body}");
                    answered.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for change in 0..CHANGES {
        let backend = ["one", "two"][change % 2];
        gateway.simple("http", "web", &["web"], &[backend]);
        gateway.simple("http", &format!("other-{}", change % 50), &["other"], &[backend]);
        if change % 10 == 0 {
            gateway.service("one", &pods);
            gateway.service("one", &pods[..1]);
        }
        // Requests flow in between.
        let before = answered.load(Relaxed);
        crate::tests::eventually("requests flow", || answered.load(Relaxed) > before || change % 20 != 0);
    }
    is_over.store(true, Relaxed);
    for client in clients {
        client.join().expect("no failed request and no closed connection");
    }
    assert!(answered.load(Relaxed) >= CHANGES / 20);
    let after = gateway.get("web", "/");
    assert!(after.contains("\r\n\r\ntwo "), "the last change holds: {after}");
}
