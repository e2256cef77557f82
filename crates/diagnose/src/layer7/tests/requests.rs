//! Which rule takes a request, and what the client gets.

use serde_json::{Value, json};

use super::world::World;
use crate::layer7::request::{Candidate, Outcome, Request, Trace};

fn request(url: &str, method: &str, headers: &[&str], sni: Option<&str>) -> Request {
    let headers: Vec<String> = headers.iter().map(|one| (*one).to_owned()).collect();
    Request::parse(url, method, &headers, sni).unwrap()
}

fn trace(world: &World, url: &str, headers: &[&str]) -> Trace {
    world.with(|layer7| layer7.trace(&request(url, "GET", headers, None), None))
}

/// The only candidate.
fn candidate(world: &World, request: &Request) -> Candidate {
    let mut trace = world.with(|layer7| layer7.trace(request, None));
    assert_eq!(trace.candidates.len(), 1, "{trace:?}");
    trace.candidates.remove(0)
}

/// What the client gets, in short: `forwarded`, `404`, `reset`.
fn short(candidate: &Candidate) -> String {
    match (candidate.answer.outcome, candidate.answer.status) {
        (Outcome::Forwarded, _) => "forwarded".to_owned(),
        (Outcome::Answered, status) => status.unwrap_or_default().to_string(),
        (Outcome::Refused, _) => "refused".to_owned(),
        (Outcome::Reset, _) => "reset".to_owned(),
    }
}

/// HTTP, HTTPS with two certificates, TLS passed through, TCP.
fn listeners() -> Value {
    let tls = json!({"certificateRefs": [{"name": "cert"}]});
    json!([
        {"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.test"},
        {"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.test", "tls": tls},
        {"name": "b", "port": 443, "protocol": "HTTPS", "hostname": "b.test", "tls": tls},
        {"name": "pass", "port": 443, "protocol": "TLS", "hostname": "pass.test", "tls": {"mode": "Passthrough"}},
        {"name": "tcp", "port": 5432, "protocol": "TCP"},
        {"name": "bad", "port": 8443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "gone"}]}},
    ])
}

fn world() -> World {
    let mut world = World::new();
    world.object("Secret", "cert", json!({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}));
    world.gateway(listeners());
    world.route("shop", json!({"hostnames": ["a.test", "b.test"]}));
    let stream = |spec: Value| {
        let mut spec = spec;
        spec["parentRefs"] = json!([{"name": "gw"}]);
        spec["rules"] = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
        spec
    };
    world.add("TLSRoute", "pass", stream(json!({"hostnames": ["pass.test"]})));
    world.add("TCPRoute", "tcp", stream(json!({})));
    world
}

#[test]
fn the_listener_decides_what_the_client_gets() {
    let world = world();
    // URL, headers, server name, answer, chosen listener.
    type Case<'a> = (&'a str, &'a [&'a str], Option<&'a str>, &'a str, &'a str);
    let cases: &[Case<'_>] = &[
        ("http://a.test/", &[], None, "forwarded", "http"),
        ("http://192.0.2.1/", &["Host: a.test:8080"], None, "forwarded", "http"),
        ("http://192.0.2.1/", &["Host: a.example"], None, "404", ""),
        ("http://other.test/", &[], None, "404", "http"),
        ("https://a.test/", &[], None, "forwarded", "a"),
        ("https://a.test/", &["Host: b.test"], None, "421", ""),
        ("https://192.0.2.1/", &["Host: b.test"], Some("b.test"), "forwarded", "b"),
        ("https://192.0.2.1/", &["Host: b.test"], None, "reset", ""),
        ("https://192.0.2.1/", &[], Some("c.test"), "reset", ""),
        ("https://a.test/", &["Host: c.test"], None, "404", ""),
        ("https://pass.test/", &[], None, "forwarded", "pass"),
        ("http://192.0.2.1:443/", &["Host: a.test"], None, "reset", ""),
        ("https://192.0.2.1:80/", &[], Some("a.test"), "reset", ""),
        ("http://192.0.2.1:5432/", &[], None, "forwarded", "tcp"),
        ("https://192.0.2.1:8443/", &[], Some("a.test"), "refused", ""),
        ("http://192.0.2.1:81/", &[], None, "refused", ""),
    ];
    for (url, headers, sni, want, listener) in cases {
        let candidate = candidate(&world, &request(url, "GET", headers, *sni));
        assert_eq!(short(&candidate), *want, "{url} {headers:?} {sni:?}: {:?}", candidate.answer);
        let chosen: Vec<_> = candidate.listeners.iter().filter(|one| one.chosen).collect();
        let names: Vec<_> = chosen.iter().filter_map(|one| one.listener.split(' ').next()).collect();
        assert_eq!(names.join(","), *listener, "{url} {headers:?} {sni:?}");
        assert_eq!(candidate.listeners.len(), 6, "each listener says something");
        assert!(candidate.listeners.iter().all(|one| !one.says.is_empty()), "{:?}", candidate.listeners);
    }
}

#[test]
fn each_rule_says_which_condition_fails() {
    let mut world = World::new();
    let backend = json!([{"name": "web", "port": 80}]);
    let rule = |one: Value| json!({"matches": [one], "backendRefs": backend});
    world.route("shop", json!({"hostnames": ["shop.test"], "rules": [
        rule(json!({"path": {"type": "Exact", "value": "/cart"}, "method": "POST"})),
        rule(json!({"path": {"type": "PathPrefix", "value": "/cart"}, "headers": [{"name": "X-Beta", "value": "1"}]})),
        rule(json!({"path": {"type": "PathPrefix", "value": "/cart"}, "queryParams": [{"name": "v", "value": "2"}]})),
        rule(json!({"path": {"type": "PathPrefix", "value": "/admin"}})),
        rule(json!({"path": {"type": "PathPrefix", "value": "/"}})),
    ]}));
    world.route("other", json!({"hostnames": ["other.test"]}));
    let candidate = candidate(&world, &request("http://shop.test/cart?v=1", "GET", &["x-beta: 0"], None));
    let said: Vec<(usize, &str)> =
        candidate.rules.iter().map(|one| (one.rule, one.why_not.as_deref().unwrap_or("taken"))).collect();
    assert_eq!(
        said,
        [
            (0, "method POST is wanted, not GET"),
            (3, "path prefix /admin does not match path /cart"),
            (1, "header x-beta = 1 is wanted, not 0"),
            (2, "query parameter v = 2 is wanted, the query is v=1"),
            (4, "taken"),
            (0, "its hostnames do not cover host shop.test"),
        ]
    );
    assert_eq!(candidate.taken.map(|taken| taken.rule), Some(4));
}

#[test]
fn filters_show_the_request_that_the_backend_gets() {
    let mut world = World::new();
    let filters = json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-env", "value": "b"}], "remove": ["cookie"]}},
        {"type": "URLRewrite", "urlRewrite": {"hostname": "in.test", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2"}}},
    ]);
    let matches = json!([{"path": {"type": "PathPrefix", "value": "/api"}}]);
    world.route(
        "r",
        json!({"rules": [{"matches": matches, "filters": filters, "backendRefs": [{"name": "web", "port": 80}]}]}),
    );
    let candidate =
        candidate(&world, &request("http://x.test/api/users?q=1", "GET", &["X-Env: a", "Cookie: s=1"], None));
    let taken = candidate.taken.unwrap();
    assert_eq!(
        taken.filters,
        ["request headers: remove cookie, set x-env: b", "rewrite host in.test, the matched prefix of the path to /v2",]
    );
    let forwarded = taken.forwarded.unwrap();
    assert_eq!((&*forwarded.host, &*forwarded.path), ("in.test", "/v2/users?q=1"));
    assert_eq!(forwarded.headers, ["x-env: b"]);
    assert_eq!(taken.backends[0].endpoints[0].address, "10.0.0.1:8080");
}

#[test]
fn errors_of_rules_and_backends_have_their_status() {
    let redirect = json!([{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}]);
    let broken = json!([{"type": "ExtensionRef", "extensionRef": {"group": "x.io", "kind": "Y", "name": "z"}}]);
    let cases = [
        (json!({"filters": redirect}), "301", "redirected to https://x.test/a"),
        (json!({"filters": broken, "backendRefs": [{"name": "web", "port": 80}]}), "500", "cannot be applied"),
        (json!({}), "500", "the rule has no backend"),
        (json!({"backendRefs": [{"name": "gone", "port": 80}]}), "500", "no such Service"),
        (json!({"backendRefs": [{"name": "idle", "port": 80}]}), "503", "no ready endpoint"),
        (
            json!({"backendRefs": [{"name": "web", "port": 80, "weight": 0}, {"name": "gone", "port": 80}]}),
            "500",
            "no such",
        ),
        (
            json!({"backendRefs": [{"name": "web", "port": 80}, {"name": "idle", "port": 80}]}),
            "forwarded",
            "weight 1 of 2 gets status 503",
        ),
    ];
    for (rule, want, why) in cases {
        let mut world = World::new();
        world.service("idle", json!([{"name": "http", "port": 80}]), &[]);
        world.route("r", json!({"rules": [rule]}));
        let candidate = candidate(&world, &request("http://x.test/a", "GET", &[], None));
        assert_eq!(short(&candidate), want, "{rule}: {:?}", candidate.answer);
        assert!(candidate.answer.why.contains(why), "{rule}: {:?}", candidate.answer);
        let is_fault = candidate.answer.is_failure();
        assert_eq!(!candidate.findings.is_empty(), is_fault, "{rule}: {:?}", candidate.findings);
    }
}

#[test]
fn calls_of_grpc_find_their_rule() {
    let mut world = World::new();
    world.add("GRPCRoute", "cart", json!({"parentRefs": [{"name": "gw"}], "rules": [{
        "matches": [{"method": {"service": "shop.Cart", "method": "Add"}}], "backendRefs": [{"name": "web", "port": 80}],
    }]}));
    let grpc = "content-type: application/grpc";
    let taken = candidate(&world, &request("http://x.test/shop.Cart/Add", "POST", &[grpc], None));
    assert_eq!(
        (short(&taken), taken.rules[0].condition.as_str()),
        ("forwarded".to_owned(), "service = shop.Cart, method = Add")
    );
    let other = candidate(&world, &request("http://x.test/shop.Cart/Remove", "POST", &[grpc], None));
    assert_eq!(short(&other), "404");
    let plain = trace(&world, "http://x.test/shop.Cart/Add", &[]);
    assert_eq!(short(&plain.candidates[0]), "404");
    assert!(plain.notes.iter().any(|note| note.contains("application/grpc")), "{:?}", plain.notes);
}

#[test]
fn gateways_are_chosen_by_name_address_or_host() {
    let mut world = World::new();
    world.gateway(json!([{"name": "http", "port": 80, "protocol": "HTTP", "hostname": "*.a.test"}]));
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    world.add("Gateway", "any", json!({"gatewayClassName": "waypost", "listeners": listeners}));
    world.address("any", Some("192.0.2.2"));
    let keys = |trace: &Trace| trace.candidates.iter().map(|one| one.gateway.key.to_string()).collect::<Vec<_>>();
    assert_eq!(keys(&trace(&world, "http://192.0.2.2/", &[])), ["default/any"]);
    assert_eq!(keys(&trace(&world, "http://b.test/", &[])), ["default/any"]);
    let both = trace(&world, "http://x.a.test/", &[]);
    assert_eq!(keys(&both), ["default/any", "default/gw"]);
    assert!(both.notes[0].contains("--gateway"), "{:?}", both.notes);
    let nobody = trace(&world, "http://192.0.2.9/", &[]);
    assert!(nobody.candidates.is_empty() && nobody.notes[0].contains("waypost who 192.0.2.9"), "{nobody:?}");
    let named = |key: &str| world.with(|layer7| layer7.trace(&request("http://b.test/", "GET", &[], None), Some(key)));
    assert_eq!(keys(&named("default/gw")), ["default/gw"]);
    assert_eq!(named("default/gv").notes, ["there is no Gateway default/gv; did you mean default/gw?"]);
}

#[test]
fn ingresses_are_traced_with_their_annotations() {
    let mut world = World::new();
    world.add("IngressClass", "/waypost", json!({"controller": api::view::ingress::CONTROLLER}));
    let path = |path: &str, service: &str| json!({"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}});
    world.object(
        "Ingress",
        "shop",
        json!({
            "spec": {"ingressClassName": "waypost", "rules": [
                {"host": "shop.test", "http": {"paths": [path("/", "web"), path("/gone", "gone")]}},
            ], "tls": [{"hosts": ["shop.test"], "secretName": "cert"}]},
        }),
    );
    world.object("Secret", "cert", json!({"data": {"tls.crt": "eA==", "tls.key": "eA=="}}));
    let by_class = |url: &str| {
        let trace = trace(&world, url, &[]);
        trace.candidates.into_iter().find(|one| one.gateway.kind == "IngressClass").unwrap()
    };
    assert_eq!(short(&by_class("http://shop.test/")), "308", "hosts with TLS are redirected to it");
    let found = by_class("https://shop.test/cart");
    assert_eq!(short(&found), "forwarded", "{:?}", found.answer);
    let steps: Vec<_> = found.rules.iter().map(|one| (one.condition.as_str(), one.taken)).collect();
    assert_eq!(steps, [("path prefix /gone", false), ("path prefix /", true)]);
    let gone = by_class("https://shop.test/gone");
    assert_eq!(short(&gone), "500");
    assert!(gone.findings.iter().any(|one| one.code == "BackendInvalid"), "{:?}", gone.findings);
}

#[test]
fn arguments_that_are_no_request_are_errors() {
    for (url, method, header) in [
        ("shop.test/cart", "GET", ""),
        ("ftp://shop.test/", "GET", ""),
        ("http:///cart", "GET", ""),
        ("http://shop.test/", "GE T", ""),
        ("http://shop.test/", "GET", "no colon"),
    ] {
        let headers: Vec<String> = [header].iter().filter(|one| !one.is_empty()).map(|one| (*one).to_owned()).collect();
        assert!(Request::parse(url, method, &headers, None).is_err(), "{url} {method} {header}");
    }
    let request = request("https://Shop.TEST./a?b", "get", &["Host: In.test:81"], None);
    assert_eq!((&*request.host, request.server_name.as_deref(), request.port), ("in.test", Some("shop.test"), 443));
}
