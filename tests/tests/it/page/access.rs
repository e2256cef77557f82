//! Links and cookies as bytes: an unauthorized client gets nothing, and an authorized one no more than the page shows.

use api::bootstrap_token::Token;
use jiff::Timestamp;
use serde_json::json;
use testbed::Server;
use testbed::net::eventually;
use testbed::session::{SERVICES, text};
use testbed::wire::{Reply, Wire};

use super::{link, server, word};

pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");
const SESSION: &str = "/page/session";

/// Sends the token of a link.
fn enter(server: &Server, word: &str, headers: &[(&str, &str)]) -> Reply {
    let headers: Vec<_> = headers.iter().copied().chain([JSON]).collect();
    Wire::anonymous(server).ask("POST", SESSION, &headers, format!("{{\"link\":\"{word}\"}}").as_bytes())
}

/// The cookie that a link became.
pub(super) fn cookie(server: &Server) -> String {
    let reply = enter(server, word(&link(server)), &[]);
    assert_eq!(reply.code, 200, "{}", reply.text());
    let set = reply.header("set-cookie").expect("a cookie").to_owned();
    for wanted in ["__Host-", "; Path=/", "; Secure", "; HttpOnly", "; SameSite=Strict"] {
        assert!(set.contains(wanted), "{wanted} is missing in {set}");
    }
    set.split(';').next().expect("a pair").to_owned()
}

pub(super) fn with(server: &Server, cookie: &str, method: &str, path: &str, more: &[(&str, &str)]) -> Reply {
    let headers: Vec<_> = [("Cookie", cookie), JSON].into_iter().chain(more.iter().copied()).collect();
    Wire::anonymous(server).ask(method, path, &headers, if method == "GET" { b"" } else { b"{}" })
}

#[test]
fn a_link_opens_the_page_once_as_its_user() {
    let server = server();
    let link = link(&server);
    let first = enter(&server, word(&link), &[]);
    assert_eq!(text(&first.success(), "/user"), "waypost-admin");
    let again = enter(&server, word(&link), &[]).refused(401);
    assert!(again.contains("`waypost page`"), "{again}");
    assert_eq!(enter(&server, word(&link), &[]).header("set-cookie"), None);
}

#[test]
fn only_those_who_are_known_get_links() {
    let server = server();
    assert_eq!(Wire::anonymous(&server).ask("POST", "/page/links", &[JSON], b"{}").refused(401), "Unauthorized");
    let visit = cookie(&server);
    assert_eq!(with(&server, &visit, "POST", "/page/links", &[]).code, 401, "a visit begets no other");
    assert_eq!(Wire::admin(&server).ask("GET", "/page/links", &[], b"").code, 405);
}

#[test]
fn forged_words_and_cookies_are_nobody() {
    let server = server();
    let real = cookie(&server);
    let (name, value) = real.split_once('=').expect("a pair");
    let long = "A".repeat(6000);
    for forged in ["", "x", &long, &value.to_lowercase(), &value[1..], &format!("{value}A")] {
        let reply = with(&server, &format!("{name}={forged}"), "GET", SERVICES, &[]);
        assert_eq!(reply.refused(401), "Unauthorized", "{forged}");
        assert_eq!(enter(&server, forged, &[]).code, if forged.len() > 1000 { 413 } else { 401 }, "{forged}");
    }
    assert_eq!(with(&server, &format!("other={value}"), "GET", SERVICES, &[]).code, 403, "this is no cookie of ours");
    let many: String = (0..100).map(|at| format!("c{at}=x; ")).collect();
    assert_eq!(with(&server, &format!("{many}{real}"), "GET", SERVICES, &[]).code, 200, "among others it is found");
    for body in ["", "[]", "{\"link\":7}", "no json"] {
        let reply = Wire::anonymous(&server).ask("POST", SESSION, &[JSON, ("X-Any", "1")], body.as_bytes());
        assert!([400, 401].contains(&reply.code), "{body}: {}", reply.code);
    }
}

#[test]
fn a_cookie_reads_what_the_page_shows_and_nothing_else() {
    let server = server();
    let cookie = cookie(&server);
    let layer7 = api_of_gateways().map(|(kind, version)| format!("/apis/gateway.networking.k8s.io/{version}/{kind}"));
    let fixed = [SERVICES, "/api/v1/pods", "/api/v1/nodes", "/apis/discovery.k8s.io/v1/endpointslices", SESSION];
    let more = ["/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/ingressclasses"];
    let policies = ["/apis/waypost.dev/v1/trafficpolicies"];
    for path in fixed.into_iter().chain(more).chain(policies).chain(layer7.iter().map(String::as_str)) {
        assert_eq!(with(&server, &cookie, "GET", path, &[]).code, 200, "{path}");
    }
    let one = format!("{SERVICES}/kubernetes");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for path in [SERVICES, one.as_str()] {
            let message = with(&server, &cookie, method, path, &[]).refused(403);
            assert!(message.contains("the page only reads"), "{method} {path}: {message}");
        }
    }
    assert_eq!(server.session().get(&one).code, 200, "it is still there");
    for path in [
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/secrets/any",
        "/api/v1/namespaces/default/configmaps",
        "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/g/status",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/api/v1/namespaces/default/pods/p/exec?command=id",
        "/api/v1/namespaces/default/pods/p/attach",
        "/api/v1/namespaces/default/pods/p/portforward",
        "/api/v1/namespaces/default/pods/p/log",
        "/api/v1/namespaces/default/pods/p/proxy/",
        "/api/v1/namespaces/default/services/kubernetes/proxy/",
        "/api/v1/nodes/n/proxy/pods",
        "/api/v1/nodes/n/proxy/waypost%2Freport",
        "/metrics",
        "/apis",
    ] {
        assert_eq!(with(&server, &cookie, "GET", path, &[]).code, 403, "{path}");
    }
    let report = with(&server, &cookie, "GET", "/api/v1/nodes/n/proxy/waypost/report", &[]);
    assert_eq!(report.code, 404, "a node that is not there, and not a refusal: {}", report.text());
    let other = [("Impersonate-User", "somebody")];
    assert_eq!(with(&server, &cookie, "GET", SERVICES, &other).code, 403);
}

/// The kinds of the Gateway API that the page reads, with their versions.
fn api_of_gateways() -> [(&'static str, &'static str); 10] {
    let v1 = |kind| (kind, "v1");
    [
        v1("gatewayclasses"),
        v1("gateways"),
        v1("listenersets"),
        v1("httproutes"),
        v1("grpcroutes"),
        v1("tlsroutes"),
        v1("tcproutes"),
        v1("udproutes"),
        v1("backendtlspolicies"),
        ("referencegrants", "v1beta1"),
    ]
}

#[test]
fn other_sites_get_nothing_with_the_cookie() {
    let server = server();
    let cookie = cookie(&server);
    for header in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
    ] {
        for path in [SERVICES, SESSION] {
            assert_eq!(with(&server, &cookie, "GET", path, &[header]).code, 403, "{header:?} {path}");
        }
        assert_eq!(with(&server, &cookie, "DELETE", SESSION, &[header]).code, 403, "{header:?}");
        let link = link(&server);
        assert_eq!(enter(&server, word(&link), &[header]).code, 403, "{header:?}");
        assert_eq!(enter(&server, word(&link), &[]).code, 200, "a refused stranger does not use up the link");
    }
    let reply = with(&server, &cookie, "GET", SERVICES, &[("Sec-Fetch-Site", "same-origin")]);
    assert_eq!((reply.code, reply.header("access-control-allow-origin")), (200, None));
}

#[test]
fn a_visit_sees_what_its_user_sees_and_ends_with_them() {
    let server = server();
    let mut admin = Wire::admin(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(admin.ask("POST", accounts, &[JSON], br#"{"metadata":{"name":"robot"}}"#).code, 201);
    let token = admin.ask("POST", &format!("{accounts}/robot/token"), &[JSON], b"{}").success();
    let bearer = format!("Bearer {}", text(&token, "/status/token"));
    let made =
        Wire::anonymous(&server).ask("POST", "/page/links", &[JSON, ("Authorization", &bearer)], b"{}").success();
    assert_eq!(text(&made, "/user"), "system:serviceaccount:default:robot");
    let reply = enter(&server, word(text(&made, "/path")), &[]);
    let cookie = reply.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    assert_eq!(with(&server, &cookie, "GET", SERVICES, &[]).code, 403, "nothing is granted to the account yet");
    admin.bind("view", "system:serviceaccount:default:robot");
    assert_eq!(with(&server, &cookie, "GET", SERVICES, &[]).code, 200);
    let report = with(&server, &cookie, "GET", "/api/v1/nodes/n/proxy/waypost/report", &[]).refused(403);
    assert!(report.contains("cannot get resource \"nodes/proxy\""), "the user may not, so the visit may not: {report}");
    assert_eq!(admin.ask("DELETE", &format!("{accounts}/robot"), &[], b"").code, 200);
    assert_eq!(with(&server, &cookie, "GET", SERVICES, &[]).code, 401, "the account is gone");
}

/// Creates an object as the administrator, once its namespace is ready for it.
pub(super) fn create(server: &Server, path: &str, object: &serde_json::Value) {
    let body = object.to_string();
    eventually(path, || Wire::admin(server).ask("POST", path, &[JSON], body.as_bytes()).code == 201);
}

/// The answer of `/page/findings` to a session.
pub(super) fn findings(server: &Server, cookie: &str, query: &str) -> serde_json::Value {
    with(server, cookie, "GET", &format!("/page/findings{query}"), &[]).success()
}

#[test]
fn b13_findings_name_only_objects_that_the_user_may_list() {
    let server = server();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces";
    for (namespace, resources) in
        [("shop", json!(["services", "pods", "endpointslices"])), ("bank", json!(["services"]))]
    {
        create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}}));
        let rules = json!([{"apiGroups": ["", "discovery.k8s.io"], "resources": resources, "verbs": ["list"]}]);
        create(&server, &format!("{rbac}/{namespace}/roles"), &json!({"metadata": {"name": "reader"}, "rules": rules}));
        let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "robot"});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"});
        let binding = json!({"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": role});
        create(&server, &format!("{rbac}/{namespace}/rolebindings"), &binding);
    }
    let pod = json!({"metadata": {"name": "till-7", "labels": {"app": "till"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(&server, "/api/v1/namespaces/bank/pods", &pod);
    let ports = json!([{"port": 80}]);
    for (namespace, name, spec) in [
        ("shop", "web", json!({"selector": {"app": "till"}, "ports": ports})),
        ("shop", "loop", json!({"ports": ports})),
        ("bank", "desk", json!({"selector": {"app": "till"}, "ports": ports})),
        ("default", "vault", json!({"clusterIP": "10.96.0.66", "selector": {"app": "none"}, "ports": ports})),
    ] {
        let path = format!("/api/v1/namespaces/{namespace}/services");
        create(&server, &path, &json!({"metadata": {"name": name}, "spec": spec}));
    }
    let slice = json!({
        "metadata": {"name": "loop-1", "labels": {"kubernetes.io/service-name": "loop"}}, "addressType": "IPv4",
        "ports": [{"name": "", "port": 80}], "endpoints": [{"addresses": ["10.96.0.66"]}],
    });
    create(&server, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", &slice);

    // The administrator sees where the Pods are, and whose address the endpoint has.
    let admin = cookie(&server);
    let all = findings(&server, &admin, "");
    let message = |document: &serde_json::Value, key: &str| document["services"][key]["message"].to_string();
    assert!(message(&all, "shop/web").contains("pods in namespace bank match"), "{all}");
    assert!(message(&all, "shop/loop").contains("is the cluster IP of Service default/vault"), "{all}");
    assert_eq!((&all["services"]["default/vault"]["code"], &all["missing"]), (&json!("NoPodMatches"), &json!([])));
    let one = findings(&server, &admin, "?service=shop%2Fweb");
    assert_eq!(one["findings"][0]["message"], all["services"]["shop/web"]["message"], "one sentence");
    assert_eq!((&one["pods"]["code"], &one["address"]["ok"]), (&json!("NoPodMatches"), &json!(true)));

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&server, accounts, &json!({"metadata": {"name": "robot"}}));
    let token = Wire::admin(&server).ask("POST", &format!("{accounts}/robot/token"), &[JSON], b"{}").success();
    let robot = visit_with(&server, text(&token, "/status/token"));
    let all = findings(&server, &robot, "");
    assert_eq!(all["services"]["shop/web"]["code"], "NoPodMatches", "{all}");
    for key in ["shop/web", "shop/loop"] {
        let said = message(&all, key);
        assert!(!said.contains("bank") && !said.contains("till-7") && !said.contains("vault"), "{said}");
        let one = findings(&server, &robot, &format!("?service={}", key.replace('/', "%2F"))).to_string();
        assert!(!one.contains("bank") && !one.contains("till-7") && !one.contains("vault"), "{one}");
    }
    let desk = &all["services"]["bank/desk"];
    assert_eq!(desk["state"], "unknown");
    assert_eq!(desk["message"], "you may not list endpointslices and pods in this namespace");
    assert_eq!(all["services"].as_object().map(serde_json::Map::len), Some(3), "no Service of default: {all}");
    assert_eq!(all["missing"], json!(["services", "endpointslices", "pods", "nodes", "servicecidrs"]));
    let refused = with(&server, &robot, "GET", "/page/findings?service=default%2Fvault", &[]).refused(403);
    assert!(refused.contains("cannot list resource \"services\""), "{refused}");
    let refused = with(&server, &robot, "GET", "/page/findings?service=vault", &[]).code;
    assert_eq!(refused, 404);
    assert_eq!(with(&server, &robot, "GET", "/page/findings?service=shop%2Fnone", &[]).code, 404);
    assert_eq!(with(&server, "no=cookie", "GET", "/page/findings", &[]).code, 401);
    assert_eq!(with(&server, &admin, "POST", "/page/findings", &[]).code, 405);
    assert_eq!(with(&server, &admin, "GET", "/page/findings", &[("Sec-Fetch-Site", "cross-site")]).code, 403);
}

/// The cookie of a visit that a bearer token began.
pub(super) fn visit_with(server: &Server, token: &str) -> String {
    let bearer = format!("Bearer {token}");
    let made = Wire::anonymous(server).ask("POST", "/page/links", &[JSON, ("Authorization", &bearer)], b"{}").success();
    let reply = enter(server, word(text(&made, "/path")), &[]);
    reply.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned()
}

#[test]
fn b01_a_visit_ends_with_the_token_that_began_it() {
    let server = server();
    let mut admin = Wire::admin(&server);
    admin.bind("view", "system:serviceaccount:default:robot");
    let mut post = |path: &str, object: &serde_json::Value| {
        admin.ask("POST", path, &[JSON], object.to_string().as_bytes()).success()
    };
    let here = "/api/v1/namespaces/default";
    post(&format!("{here}/serviceaccounts"), &json!({"metadata": {"name": "robot"}}));
    post(&format!("{here}/secrets"), &json!({"metadata": {"name": "s"}}));
    let bound = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}});
    let answer = post(&format!("{here}/serviceaccounts/robot/token"), &bound);
    let revoked = visit_with(&server, text(&answer, "/status/token"));

    // A bootstrap token that is good for some seconds, which is long enough to begin a visit.
    // Secrets write whole seconds.
    let until = Timestamp::from_second(Timestamp::now().as_second() + 5).expect("a time");
    let token = Token::parse("abcdef.0123456789abcdef").expect("a token");
    post("/api/v1/namespaces/kube-system/secrets", &token.keep("", Some(until)));
    let short = visit_with(&server, &token.text());
    assert_eq!(with(&server, &short, "GET", SESSION, &[]).code, 200);
    assert_eq!(with(&server, &revoked, "GET", SERVICES, &[]).code, 200);

    assert_eq!(admin.ask("DELETE", &format!("{here}/secrets/s"), &[], b"").code, 200);
    assert_eq!(with(&server, &revoked, "GET", SERVICES, &[]).code, 401, "its token was revoked");
    assert_eq!(with(&server, &revoked, "GET", SESSION, &[]).code, 401);
    eventually("the visit ends with its token", || with(&server, &short, "GET", SESSION, &[]).code == 401);
    assert!(Timestamp::now() >= until, "not before its time");
}

#[test]
fn who_leaves_is_out() {
    let server = server();
    let cookie = cookie(&server);
    let left = with(&server, &cookie, "DELETE", SESSION, &[]);
    assert!(left.code == 200 && left.header("set-cookie").is_some_and(|set| set.contains("Max-Age=0")));
    assert_eq!(with(&server, &cookie, "GET", SERVICES, &[]).code, 401);
}

#[test]
fn files_come_with_their_type_a_policy_and_a_tag() {
    let server = server();
    let mut wire = Wire::anonymous(&server);
    let index = wire.ask("GET", "/page/", &[], b"");
    assert_eq!((index.code, index.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = index.header("content-security-policy").expect("a policy");
    for wanted in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.contains(wanted), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let tag = index.header("etag").expect("a tag").to_owned();
    assert_eq!(wire.ask("GET", "/page/", &[("If-None-Match", &tag)], b"").code, 304);
    let html = index.text();
    let script = html.split('"').find(|word| word.ends_with(".js")).expect("a script");
    let script = wire.ask("GET", script, &[], b"");
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert!(script.header("cache-control").is_some_and(|kept| kept.contains("immutable")), "{:?}", script.headers);
    assert_eq!(script.header("x-content-type-options"), Some("nosniff"));
    let bare = wire.ask("GET", "/page", &[], b"");
    assert_eq!((bare.code, bare.header("location")), (308, Some("/page/")));
    for path in ["/page/nothing", "/page/../pki/ca.key", "/page/%2e%2e/x"] {
        assert_eq!(Wire::anonymous(&server).ask("GET", path, &[], b"").code, 404, "{path}");
    }
    assert_eq!(wire.ask("POST", "/page/", &[JSON], b"{}").code, 405);
}
