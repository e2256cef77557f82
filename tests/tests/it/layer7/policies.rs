//! TrafficPolicies: what their targets are, what holds for requests, and what their status says.

use std::net::{Ipv6Addr, TcpListener};

use serde_json::{Value, json};
use testbed::net::Pod;

use super::stage::{ADDRESS, POLICIES, Page, Stage, TARGET, listener, to};

/// A Service whose pod reads requests and answers none.
fn silent(pod: &Pod) {
    let listener = pod.in_namespace(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, TARGET)).expect("the port is free"));
    // Connections stay open as long as the test.
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
}

/// A stage with the Gateway `public`, whose listeners are `http` (80) and `admin` (8080), and a route of `web.test`.
fn stage() -> Stage {
    let stage = Stage::new();
    stage.backend("web");
    stage.gateway(&json!([listener("http", 80), listener("admin", 8080)]));
    stage.route("web", "web.test", &json!([to("all", "/", "web"), to("upload", "/upload", "web")]));
    for url in ["http://web.test/", "http://web.test:8080/"] {
        let _ = stage.until("the route is served", &[url], |page| page.code == 200);
    }
    stage
}

/// The codes of these URLs.
fn codes(stage: &Stage, urls: &[&str]) -> Vec<u16> {
    urls.iter().map(|url| stage.get(&[*url]).code).collect()
}

/// The code of a request with a body of this size.
fn sent(stage: &Stage, path: &str, size: usize) -> u16 {
    stage.get(&["--data", &"x".repeat(size), &format!("http://web.test{path}")]).code
}

/// A range of nothing but this address.
fn only(address: &str) -> Value {
    json!([format!("{address}/32")])
}

#[test]
fn s52_address_ranges_of_a_policy_hold_for_its_target_alone() {
    let stage = stage();
    let client = stage.client();
    let all = ["http://web.test/", "http://web.test/upload", "http://web.test:8080/", "http://web.test:8080/upload"];
    for (target, expected) in [
        ("Gateway/public", [403, 403, 403, 403]),
        ("Gateway/public/admin", [200, 200, 403, 403]),
        ("HTTPRoute/web", [403, 403, 403, 403]),
        ("HTTPRoute/web/upload", [200, 403, 200, 403]),
    ] {
        stage.policy("ranges", target, &json!({"sourceRanges": {"deny": only(&client)}}));
        let _ = stage.verdict("ranges", "Accepted=True/Accepted");
        stage.settle_policies();
        assert_eq!(codes(&stage, &all), expected, "{target}");
        // Headers do not make a client another one.
        let forged = stage.get(&["-H", "X-Forwarded-For: 198.51.100.1", "-H", "X-Real-IP: 198.51.100.1", all[3]]);
        assert_eq!(forged.code, 403, "{target}");
        stage.remove(POLICIES, "ranges");
    }
    // A range that allows another client alone; and one that allows this client, of which one is denied.
    stage.policy("ranges", "HTTPRoute/web", &json!({"sourceRanges": {"allow": ["198.51.100.0/24"]}}));
    stage.settle_policies();
    assert_eq!(codes(&stage, &all), [403; 4]);
    stage.policy("ranges", "HTTPRoute/web", &json!({"sourceRanges": {"allow": only(&client), "deny": null}}));
    stage.settle_policies();
    assert_eq!(codes(&stage, &all), [200; 4]);
    stage.policy("ranges", "HTTPRoute/web", &json!({"sourceRanges": {"allow": only(&client), "deny": only(&client)}}));
    stage.settle_policies();
    assert_eq!(codes(&stage, &all), [403; 4], "deny wins");
}

#[test]
fn s52_the_smallest_body_limit_of_gateway_and_route_holds() {
    let stage = stage();
    stage.policy("of-gateway", "Gateway/public", &json!({"requestBody": {"maxSize": "1Ki"}}));
    stage.policy("of-route", "HTTPRoute/web", &json!({"requestBody": {"maxSize": "512"}}));
    stage.policy("of-rule", "HTTPRoute/web/upload", &json!({"requestBody": {"maxSize": "1Mi"}}));
    for name in ["of-gateway", "of-route", "of-rule"] {
        let _ = stage.verdict(name, "Accepted=True/Accepted");
    }
    stage.settle_policies();
    assert_eq!([sent(&stage, "/", 512), sent(&stage, "/", 513)], [200, 413]);
    // The rule replaces what holds for its route, and cannot loosen what holds for the Gateway.
    assert_eq!([sent(&stage, "/upload", 1024), sent(&stage, "/upload", 1025)], [200, 413]);
    let chunked = ["--data", &"x".repeat(1025), "-H", "Transfer-Encoding: chunked", "http://web.test/upload"];
    assert_eq!(stage.get(&chunked).code, 413);
    // A policy for a listener of the Gateway does.
    stage.policy("of-listener", "Gateway/public/http", &json!({"requestBody": {"maxSize": "2Ki"}}));
    stage.settle_policies();
    assert_eq!([sent(&stage, "/upload", 2048), sent(&stage, "/upload", 2049)], [200, 413]);
}

#[test]
fn s52_a_silent_backend_is_given_up_when_the_policy_says_so() {
    let stage = stage();
    stage.backend_with("slow", silent);
    stage.route("slow", "slow.test", &json!([to("all", "/", "slow"), to("fast", "/fast", "web")]));
    // Without a policy this takes a minute, which is longer than the client waits.
    stage.policy("of-route", "HTTPRoute/slow", &json!({"timeouts": {"read": "300ms"}}));
    let _ = stage.until("the time-out of the route holds", &["http://slow.test/"], |page| page.code == 504);
    // That of the Service precedes, and holds for the Service alone.
    stage.policy("of-service", "Service/slow", &json!({"timeouts": {"read": "1h"}}));
    stage.settle_policies();
    let late = stage.curl(ADDRESS, &["--max-time", "2", "http://slow.test/"]);
    assert!(!late.ok && late.out.is_empty(), "{late:?}");
    assert_eq!(stage.get(&["http://slow.test/fast"]).code, 200);
    stage.policy("of-service", "Service/slow", &json!({"timeouts": {"read": "200ms"}}));
    stage.settle_policies();
    assert_eq!(stage.get(&["http://slow.test/"]).code, 504);
}

#[test]
fn s52_requests_beyond_a_rate_are_refused_by_client_and_by_header() {
    let stage = stage();
    // None of these comes back within the test.
    let limit = |key: Value| json!({"rateLimits": [{"requests": 1, "per": "Hour", "burst": 2, "key": key}]});
    stage.policy("by-client", "HTTPRoute/web/upload", &limit(json!({"type": "Client"})));
    stage.settle_policies();
    let ask = |arguments: &[&str]| stage.get(arguments).code;
    let upload = "http://web.test/upload";
    let twice: Vec<u16> = (0..5).map(|_| ask(&[upload])).collect();
    assert_eq!(twice, [200, 200, 200, 429, 429]);
    assert_eq!(ask(&["-H", "X-Forwarded-For: 198.51.100.1", upload]), 429, "the client is who connects");
    assert_eq!(ask(&["http://web.test/"]), 200, "another rule");
    stage.policy("by-key", "HTTPRoute/web/all", &limit(json!({"type": "Header", "header": "X-Key"})));
    stage.settle_policies();
    let by = |key: &str| -> Vec<u16> {
        (0..4).map(|_| ask(&["-H", &format!("X-Key: {key}"), "http://web.test/"])).collect()
    };
    assert_eq!((by("one"), by("two")), (vec![200, 200, 200, 429], vec![200, 200, 200, 429]));
    let without: Vec<u16> = (0..4).map(|_| ask(&["http://web.test/"])).collect();
    assert_eq!(without, [200, 200, 200, 429], "without the header, by client");
    // Exempt clients have no limit.
    let mut exempt = limit(json!({"type": "Client"}));
    exempt["rateLimits"][0]["exempt"] = only(&stage.client());
    stage.policy("by-client", "HTTPRoute/web/upload", &exempt);
    stage.settle_policies();
    assert_eq!((0..5).map(|_| ask(&[upload])).collect::<Vec<_>>(), [200; 5]);
}

#[test]
fn s52_a_policy_says_what_becomes_of_it() {
    let stage = stage();
    let https = json!({"requireHTTPS": true});
    stage.policy("first", "HTTPRoute/web/upload", &https);
    assert_eq!(stage.verdict("first", "Accepted=True/Accepted"), "The policy is accepted");
    stage.settle_policies();
    let page: Page = stage.get(&["http://web.test/upload?x=1"]);
    assert_eq!((page.code, page.header("location")), (308, Some("https://web.test/upload?x=1")));
    // Of the same age as the first by seconds, and the second by name.
    stage.policy("second", "HTTPRoute/web/upload", &json!({"sourceRanges": {"deny": ["0.0.0.0/0"]}}));
    let message = stage.verdict("second", "Accepted=False/Conflicted");
    assert!(message.contains("policy \"default/first\" holds for HTTPRoute \"default/web\""), "{message}");
    stage.policy("stray", "HTTPRoute/other", &https);
    let message = stage.verdict("stray", "Accepted=False/TargetNotFound");
    assert!(message.contains("HTTPRoute \"other\""), "{message}");
    let refused = json!({
        "apiVersion": "waypost.dev/v1", "kind": "TrafficPolicy", "metadata": {"name": "restriction"},
        "spec": {"targetRefs": [{"kind": "Service", "name": "web"}], "requireHTTPS": true},
    });
    let message = stage.served.session(|session| session.post(POLICIES, &refused).refused(422));
    assert!(message.contains("may not be set when a target is a Service"), "{message}");
    // What is not understood closes its target.
    stage.policy("odd", "HTTPRoute/web/all", &json!({"authentication": {"external": {"url": "http://a.test/$odd"}}}));
    let message = stage.verdict("odd", "Accepted=False/Invalid");
    assert!(message.contains("`$odd`") && message.contains("503"), "{message}");
    stage.settle_policies();
    assert_eq!(stage.get(&["http://web.test/"]).code, 503);
    stage.remove(POLICIES, "odd");
    let _ = stage.until("the rule is open again", &["http://web.test/"], |page| page.code == 200);
    stage.remove(POLICIES, "first");
    let _ = stage.verdict("second", "Accepted=True/Accepted");
    let _ = stage.until("the second policy holds", &["http://web.test/upload"], |page| page.code == 403);
}
