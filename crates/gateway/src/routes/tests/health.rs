//! Endpoints that fail are avoided, and come back.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use routing::policy::{Balancing, Outlier, Policy};

use super::*;
use crate::clock::Clock;

/// A Gateway whose clock stands still.
fn stopped() -> (TestGateway, Clock) {
    let (mut gateway, clock) = (TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]), Clock::stopped());
    gateway.pools.set_clock(clock.clone());
    (gateway, clock)
}

fn with_policy(balancing: Balancing) -> Rule {
    let policy = Policy { balancing: Some(balancing), ..Policy::default() };
    Rule { policy: Some(Arc::new(policy)), ..rule(&json!({"backends": [{"name": "one"}]})) }
}

/// Pod that resets new connections while the flag is set, and the number of its connections.
fn resetting() -> (SocketAddr, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (is_bad, count) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let (told, counted) = (Arc::clone(&is_bad), Arc::clone(&count));
    std::thread::spawn(move || {
        for mut stream in server.incoming().flatten() {
            counted.fetch_add(1, SeqCst);
            let mut head = [0; 1024];
            let _ = stream.read(&mut head);
            if !told.load(SeqCst) {
                use std::io::Write as _;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nback");
            }
        }
    });
    (address, is_bad, count)
}

#[test]
fn endpoints_that_refuse_connections_are_avoided_without_configuration() {
    let (mut gateway, _clock) = stopped();
    gateway.service("one", &[unused_address(), named("good"), unused_address()]);
    gateway.simple("http", "web", &[], &["one"]);
    for _ in 0..20 {
        assert_eq!(code(&gateway.get("a", "/")), 200);
    }
    let shown = shown(&gateway);
    for line in [
        "waypost_gateway_ejections_total{service=\"shop/one\"} 2",
        "waypost_gateway_ejected_endpoints{service=\"shop/one\"} 2",
    ] {
        assert!(shown.lines().any(|one| one == line), "{line} is no line of\n{shown}");
    }
    gateway.service("one", &[named("good")]);
    assert!(self::shown(&gateway).contains("waypost_gateway_ejected_endpoints{service=\"shop/one\"} 0"));
}

#[test]
fn an_endpoint_that_resets_connections_fails_one_request_each_time_it_is_tried() {
    let (mut gateway, clock) = stopped();
    let (bad, is_bad, count) = resetting();
    gateway.service("one", &[bad, named("good")]);
    gateway.simple("http", "web", &[], &["one"]);
    let failures = |gateway: &TestGateway| (0..10).filter(|_| code(&gateway.get("a", "/")) == 502).count();
    assert_eq!((failures(&gateway), count.load(SeqCst)), (1, 1));
    clock.advance(millis(1000));
    assert_eq!((failures(&gateway), count.load(SeqCst)), (1, 2));
    clock.advance(millis(1999));
    assert_eq!((failures(&gateway), count.load(SeqCst)), (0, 2));
    is_bad.store(false, SeqCst);
    clock.advance(millis(1));
    assert_eq!(failures(&gateway), 0);
    assert!((0..10).any(|_| gateway.get("a", "/").ends_with("back")));
}

#[test]
fn the_only_endpoint_is_used_whatever_it_does() {
    let (mut gateway, _clock) = stopped();
    let (bad, is_bad, count) = resetting();
    gateway.service("one", &[bad]);
    gateway.simple("http", "web", &[], &["one"]);
    assert_eq!(code(&gateway.get("a", "/")), 502);
    is_bad.store(false, SeqCst);
    assert!(gateway.get("a", "/").ends_with("back"));
    assert_eq!(count.load(SeqCst), 2);
}

#[test]
fn errors_in_a_row_eject_by_policy_and_one_request_brings_the_endpoint_back() {
    let (mut gateway, clock) = stopped();
    let (is_bad, count) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (told, counted) = (Arc::clone(&is_bad), Arc::clone(&count));
    let flaky = scripted(move |_| {
        counted.fetch_add(1, SeqCst);
        response(if told.load(SeqCst) { 503 } else { 200 }, "flaky")
    });
    gateway.service("one", &[flaky, named("good")]);
    let outlier = Outlier { consecutive_errors: 3, ..Outlier::default() };
    gateway.route(
        "http",
        "web",
        &["a"],
        vec![with_policy(Balancing { outlier: Some(outlier), ..Balancing::default() })],
    );
    gateway.simple("http", "other", &["b"], &["one"]);
    let failures = |host: &str| (0..20).filter(|_| code(&gateway.get(host, "/")) == 503).count();
    assert_eq!((failures("a"), count.load(SeqCst)), (3, 3));
    assert!(failures("b") > 5, "a rule without a policy");
    clock.advance(millis(29_999));
    assert_eq!(failures("a"), 0);
    clock.advance(millis(1));
    assert_eq!(failures("a"), 1, "one request is let through");
    is_bad.store(false, SeqCst);
    clock.advance(millis(60_000));
    assert_eq!(failures("a"), 0);
    assert!((0..4).any(|_| gateway.get("a", "/").ends_with("flaky")));
}

#[test]
fn time_limits_count_as_errors() {
    let (mut gateway, _clock) = stopped();
    let outlier = Outlier { consecutive_errors: 1, ..Outlier::default() };
    let balancing = Balancing { outlier: Some(outlier), ..Balancing::default() };
    for (host, limits) in [("a", (Some(millis(2000)), None)), ("b", (None, Some(millis(2000))))] {
        let limited = Rule { request_timeout: limits.0, backend_timeout: limits.1, ..with_policy(balancing.clone()) };
        gateway.service("one", &[scripted(|_| String::new()), named("good")]);
        gateway.route("http", host, &[host], vec![limited]);
        let codes: Vec<u16> = (0..8).map(|_| code(&gateway.get(host, "/"))).collect();
        assert_eq!(codes.iter().filter(|code| **code == 504).count(), 1, "{host}: {codes:?}");
    }
}

#[test]
fn clients_that_send_slowly_eject_no_endpoint() {
    let (mut gateway, _clock) = stopped();
    gateway.service("one", &[named("good"), named("other")]);
    let outlier = Outlier { consecutive_errors: 1, ..Outlier::default() };
    let balancing = Some(Balancing { outlier: Some(outlier), ..Balancing::default() });
    let limit = Some(millis(100));
    let guarded = |policy: Policy| Rule {
        policy: Some(Arc::new(Policy { balancing: balancing.clone(), ..policy })),
        ..rule(&json!({"backends": [{"name": "one"}]}))
    };
    for (host, limited) in [
        ("whole", Rule { request_timeout: limit, ..guarded(Policy::default()) }),
        ("attempt", Rule { backend_timeout: limit, ..guarded(Policy::default()) }),
        ("read", guarded(Policy { read_timeout: limit, ..Policy::default() })),
        ("send", guarded(Policy { send_timeout: limit, ..Policy::default() })),
    ] {
        gateway.route("http", host, &[host], vec![limited]);
        // The rest of the body never comes.
        let answer = gateway.ask(&format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 10\r\n\r\nabc"));
        assert_eq!(code(&answer), 408, "{host}: {answer}");
    }
    let shown = shown(&gateway);
    assert!(shown.contains("waypost_gateway_ejections_total{service=\"shop/one\"} 0"), "{shown}");
}

fn shown(gateway: &TestGateway) -> String {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;
    let (mut registry, mut shown) = (Registry::default(), String::new());
    registry.register_collector(Box::new(gateway.metrics.clone()));
    text::encode(&mut shown, &registry).expect("a text");
    shown
}
