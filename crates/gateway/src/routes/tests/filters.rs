//! Filters of rules and backends: headers, redirects, rewrites, CORS, mirrors.

use std::io::Write as _;

use parking_lot::Mutex;

use super::*;
use crate::tests::next_answer;

fn gateway_with(rules: &Value) -> TestGateway {
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    gateway.service(
        "one",
        &[scripted(|request| {
            format!(
                "HTTP/1.1 200 OK\r\nX-Pod: yes\r\nX-Secret: 1\r\nContent-Length: {}\r\n\r\n{request}",
                request.len()
            )
        })],
    );
    let rules = rules.as_array().expect("rules").iter().map(rule).collect();
    gateway.route("http", "web", &[], rules);
    gateway
}

fn has(answer: &str, line: &str) -> bool {
    answer.lines().any(|one| one.eq_ignore_ascii_case(line))
}

#[test]
fn headers_are_modified_by_the_rule_and_then_by_the_backend() {
    let modify = |kind: &str, modifier: Value| match kind {
        "request" => json!({"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}),
        _ => json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier}),
    };
    let gateway = gateway_with(&json!([{
        "filters": [
            modify("request", json!({"set": [{"name": "X-Set", "value": "rule"}], "remove": ["X-Gone"]})),
            modify("response", json!({"add": [{"name": "X-Added", "value": "rule"}], "remove": ["x-secret"]})),
        ],
        "backends": [{"name": "one", "filters": [
            modify("request", json!({"add": [{"name": "x-set", "value": "backend"}]})),
            modify("response", json!({"set": [{"name": "X-Pod", "value": "changed"}]})),
        ]}],
    }]));
    let answer = gateway
        .ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Gone: 1\r\nX-Set: client\r\n\r\n")
        .to_lowercase();
    let (head, request) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(has(head, "x-added: rule") && has(head, "x-pod: changed") && !head.contains("x-secret"), "{head}");
    assert!(!request.contains("x-gone") && !request.contains("client"), "{request}");
    let values: Vec<&str> = request.lines().filter_map(|line| line.strip_prefix("x-set: ")).collect();
    assert_eq!(values.join(",").replace(' ', ""), "rule,backend", "{request}");
}

#[test]
fn redirects_need_no_backend() {
    let gateway = gateway_with(&json!([
        {"matches": [{"path": {"value": "/old"}}], "filters": [{"type": "RequestRedirect", "requestRedirect": {
            "scheme": "https", "statusCode": 301, "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"},
        }}]},
        {"matches": [{"path": {"value": "/"}}], "filters": [{"type": "RequestRedirect", "requestRedirect": {
            "hostname": "other.example", "port": 8080,
        }}]},
    ]));
    let answer = gateway.get("web.example", "/old/x?y=z");
    assert_eq!(code(&answer), 301);
    assert!(has(&answer, "location: https://web.example/new/x?y=z"), "{answer}");
    let answer = gateway.get("web.example", "/x");
    assert_eq!(code(&answer), 302);
    assert!(has(&answer, "location: http://other.example:8080/x"), "{answer}");
}

#[test]
fn host_and_path_are_rewritten() {
    let rewrite = |rewrite: Value| json!({"type": "URLRewrite", "urlRewrite": rewrite});
    let gateway = gateway_with(&json!([
        {"matches": [{"path": {"value": "/prefix"}}], "backends": [{"name": "one"}], "filters": [rewrite(json!({
            "hostname": "inner.example", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"},
        }))]},
        {"matches": [{"path": {"value": "/full"}}], "backends": [{"name": "one", "filters": [rewrite(json!({
            "path": {"type": "ReplaceFullPath", "replaceFullPath": "/whole"},
        }))]}]},
    ]));
    let answer = gateway.get("web.example", "/prefix/x?y=z");
    assert!(answer.contains("GET /x?y=z HTTP/1.1") && has(&answer, "host: inner.example"), "{answer}");
    let answer = gateway.get("web.example", "/full/x?y=z");
    assert!(answer.contains("GET /whole?y=z HTTP/1.1") && has(&answer, "host: web.example"), "{answer}");
    // The request target with a host, as proxies send it.
    let answer =
        gateway.ask("GET http://web.example/prefix/x HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("GET /x HTTP/1.1") && has(&answer, "host: inner.example"), "{answer}");
}

#[test]
fn cors_preflights_are_answered_and_responses_decorated() {
    let gateway = gateway_with(&json!([{"backends": [{"name": "one"}], "filters": [{"type": "CORS", "cors": {
        "allowOrigins": ["https://*.example"], "allowMethods": ["GET", "PUT"], "allowHeaders": ["x-a"],
        "exposeHeaders": ["x-pod"], "maxAge": 60,
    }}]}]));
    let preflight = |origin: &str| {
        gateway.ask(&format!(
            "OPTIONS / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n\r\n"
        ))
    };
    let answer = preflight("https://app.example");
    assert!([200, 204].contains(&code(&answer)), "{answer}");
    for line in [
        "access-control-allow-origin: https://app.example",
        "access-control-allow-headers: x-a",
        "access-control-max-age: 60",
    ] {
        assert!(has(&answer, line), "{line}: {answer}");
    }
    assert!(!answer.contains("OPTIONS /"), "no backend is asked: {answer}");
    assert!(!preflight("https://evil.test").to_lowercase().contains("access-control-allow-origin"));
    for (origin, allowed) in [("https://app.example", true), ("https://evil.test", false)] {
        let answer =
            gateway.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nOrigin: {origin}\r\n\r\n"));
        assert_eq!(code(&answer), 200);
        assert_eq!(has(&answer, &format!("access-control-allow-origin: {origin}")), allowed, "{answer}");
    }
}

/// Pod that records requests; when `answers` is false it does not answer.
fn recording(answers: bool) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let address = scripted(move |request| {
        seen.lock().push(request.to_owned());
        if answers { response(503, "ignored") } else { String::new() }
    });
    (address, requests)
}

#[test]
fn copies_go_to_mirrors_and_never_delay() {
    let mirror = |percent: Option<u32>| json!({"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "any"}, "percent": percent}});
    let set =
        json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-a", "value": "1"}]}});
    let mut gateway = TestGateway::new(&[listener("http", ListenerProtocol::Http, None)]);
    gateway.service("one", &[named("one")]);
    let ((all, of_all), (half, of_half), (silent, of_silent)) = (recording(true), recording(true), recording(false));
    gateway.service("all", &[all]);
    gateway.service("half", &[half]);
    gateway.service("silent", &[silent]);
    gateway.service("unused", &[unused_address()]);
    gateway.route(
        "http",
        "web",
        &[],
        vec![rule(&json!({
            "filters": [set, mirror(None), mirror(Some(50)), mirror(None), mirror(None)],
            "mirrors": ["all", "half", "silent", "unused"], "backends": [{"name": "one"}],
        }))],
    );
    let mut stream = gateway.connect();
    for number in 0..10 {
        let body = format!("body {number}");
        write!(stream, "POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .expect("sent");
        let (head, answer) = next_answer(&mut stream);
        assert!(head.starts_with("http/1.1 200") && answer.starts_with("one POST"), "{head}{answer}");
    }
    crate::tests::eventually("all copies arrive", || {
        of_all.lock().len() == 10 && of_half.lock().len() == 5 && of_silent.lock().len() == 10
    });
    let mut copies = of_all.lock().clone();
    copies.sort_unstable();
    for (number, copy) in copies.iter().enumerate() {
        assert!(
            copy.starts_with(&format!("POST /{number} ")) && copy.ends_with(&format!("\r\n\r\nbody {number}")),
            "{copy}"
        );
        assert!(copy.to_lowercase().contains("x-a: 1\r\n"), "{copy}");
    }
}
