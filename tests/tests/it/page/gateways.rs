//! Gateways and routes on the page: what a user may see of them, and one code and one sentence everywhere.

use std::process::Command;

use serde_json::{Value, json};
use testbed::browser::keys::{END, ENTER};
use testbed::net::eventually;
use testbed::session::text;
use testbed::wire::Wire;
use testbed::{Server, binary, run};

use super::access::{JSON, cookie, create, findings, visit_with, with};
use super::{server, server_with, visitor};

const API: &str = "/apis/gateway.networking.k8s.io/v1";

/// The path of the objects of a kind in a namespace.
fn objects(namespace: &str, plural: &str) -> String {
    format!("{API}/namespaces/{namespace}/{plural}")
}

fn namespace(server: &Server, name: &str) {
    create(server, "/api/v1/namespaces", &json!({"metadata": {"name": name}}));
}

/// A Gateway of the class `waypost` with one listener, for routes of all namespaces.
fn gateway(server: &Server, namespace: &str, name: &str) {
    let listener =
        json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}});
    let spec = json!({"gatewayClassName": "waypost", "listeners": [listener]});
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": name}, "spec": spec,
    });
    create(server, &objects(namespace, "gateways"), &object);
}

/// An HTTPRoute at the Gateway `infra/edge`, whose rules lead to this Service.
fn route(server: &Server, namespace: &str, name: &str, backend: &Value) {
    let spec = json!({
        "parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": [format!("{name}.example.com")],
        "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": format!("/{name}")}}], "backendRefs": [backend]}],
    });
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name}, "spec": spec,
    });
    create(server, &objects(namespace, "httproutes"), &object);
}

/// What `waypost explain` says of an object, as JSON.
fn explain(server: &Server, object: &str, namespace: &str) -> Value {
    let mut command = Command::new(binary());
    command.args(["explain", object, "-n", namespace, "-o", "json"]).env("KUBECONFIG", server.kubeconfig());
    serde_json::from_str::<Value>(&run(&mut command, "").out).expect("JSON")["objects"][0].take()
}

/// A session of an account that may list these resources in a namespace, and those in the whole cluster.
fn robot(server: &Server, namespace: &str, resources: &Value, everywhere: &Value) -> String {
    let groups = json!(["", "discovery.k8s.io", "gateway.networking.k8s.io", "networking.k8s.io", "waypost.dev"]);
    let rules = |resources: &Value| json!([{"apiGroups": groups, "resources": resources, "verbs": ["list", "watch"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "robot"});
    let reference = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "seer"});
    let meta = json!({"name": "seer"});
    let here = format!("{rbac}/namespaces/{namespace}");
    create(server, &format!("{here}/roles"), &json!({"metadata": meta, "rules": rules(resources)}));
    create(
        server,
        &format!("{here}/rolebindings"),
        &json!({"metadata": meta, "subjects": [subject], "roleRef": reference("Role")}),
    );
    create(server, &format!("{rbac}/clusterroles"), &json!({"metadata": meta, "rules": rules(everywhere)}));
    create(
        server,
        &format!("{rbac}/clusterrolebindings"),
        &json!({"metadata": meta, "subjects": [subject], "roleRef": reference("ClusterRole")}),
    );
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(server, accounts, &json!({"metadata": {"name": "robot"}}));
    let token = Wire::admin(server).ask("POST", &format!("{accounts}/robot/token"), &[JSON], b"{}").success();
    visit_with(server, text(&token, "/status/token"))
}

#[test]
fn s52_findings_of_routes_name_only_objects_that_the_user_may_list() {
    let server = server();
    for name in ["infra", "shop", "bank"] {
        namespace(&server, name);
    }
    let controller = json!({"controllerName": "waypost.dev/gateway-controller"});
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "waypost"},
        "spec": controller,
    });
    create(&server, &format!("{API}/gatewayclasses"), &class);
    gateway(&server, "infra", "edge");
    route(&server, "shop", "front", &json!({"name": "vault", "namespace": "bank", "port": 80}));
    route(&server, "shop", "own", &json!({"name": "wbe", "port": 80}));
    route(&server, "bank", "hidden", &json!({"name": "vault", "port": 80}));
    for (namespace, name) in [("bank", "vault"), ("shop", "web")] {
        let path = format!("/api/v1/namespaces/{namespace}/services");
        create(&server, &path, &json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}));
    }

    let admin = cookie(&server);
    let all = findings(&server, &admin, "?view=gateways");
    assert_eq!(all["missing"], json!([]));
    assert_eq!(all["gateways"][0]["rows"].as_array().map(Vec::len), Some(3), "{all}");
    assert_eq!(all["routes"]["HTTPRoute shop/front"]["code"], "ReferenceNotPermitted", "{all}");
    assert_eq!(all["routes"]["HTTPRoute shop/own"]["code"], "BackendMissing", "{all}");
    let leading = findings(&server, &admin, "?routes=bank%2Fvault");
    let keys: Vec<&str> = leading["routes"].as_array().expect("a list").iter().map(|one| text(one, "/key")).collect();
    assert_eq!(keys, ["bank/hidden", "shop/front"]);

    // In one namespace: everything that needs more is unknown, and nothing else is named.
    let kinds = json!([
        "httproutes",
        "gateways",
        "listenersets",
        "services",
        "endpointslices",
        "backendtlspolicies",
        "referencegrants",
    ]);
    let everywhere = json!(["gatewayclasses", "namespaces"]);
    let limited = robot(&server, "shop", &kinds, &everywhere);
    let seen = findings(&server, &limited, "?view=gateways");
    for hidden in ["hidden", "edge", "vault"] {
        assert!(!seen.to_string().contains(hidden), "{hidden}: {seen}");
    }
    let apart = seen["apart"].as_array().expect("a list");
    let states: Vec<(&str, &str)> = apart.iter().map(|one| (text(one, "/key"), text(one, "/state"))).collect();
    assert_eq!(states, [("shop/front", "unknown"), ("shop/own", "unknown")]);
    assert_eq!(seen["routes"], json!({}));
    let one = findings(&server, &limited, "?object=HTTPRoute%2Fshop%2Fown");
    assert_eq!(one["message"], "you may not list gateways in namespace infra", "{one}");
    assert_eq!((&one["findings"], &one["items"]), (&json!([]), &json!([])), "{one}");
    for query in ["?object=HTTPRoute%2Fbank%2Fhidden", "?routes=bank%2Fvault", "?object=Gateway%2Finfra%2Fedge"] {
        let refused = with(&server, &limited, "GET", &format!("/page/findings{query}"), &[]).refused(403);
        assert!(refused.contains("cannot list resource"), "{query}: {refused}");
    }
    let path = objects("bank", "httproutes");
    assert_eq!(with(&server, &limited, "GET", &path, &[]).code, 403, "the session may not, as its user may not");

    // With the namespace of the Gateway, what does not need the other one is known; a changed right counts at once.
    let role = json!({"kind": "ServiceAccount", "namespace": "default", "name": "robot"});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/infra";
    let rules = json!([{"apiGroups": ["gateway.networking.k8s.io"], "resources": ["gateways", "listenersets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]);
    create(&server, &format!("{rbac}/roles"), &json!({"metadata": {"name": "seer"}, "rules": rules}));
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "seer"});
    let binding = json!({"metadata": {"name": "seer"}, "subjects": [role], "roleRef": reference});
    create(&server, &format!("{rbac}/rolebindings"), &binding);
    let mut seen = Value::Null;
    eventually("the right counts", || {
        seen = findings(&server, &limited, "?view=gateways");
        seen["gateways"].as_array().is_some_and(|all| !all.is_empty())
    });
    assert_eq!(seen["routes"]["HTTPRoute shop/own"]["code"], "BackendMissing", "{seen}");
    let front = &seen["routes"]["HTTPRoute shop/front"];
    assert_eq!(front["state"], "unknown", "{seen}");
    assert!(text(front, "/message").ends_with("in namespace bank"), "{seen}");
    assert!(!seen.to_string().contains("hidden"), "{seen}");

    for query in ["?object=Secret%2Fshop%2Fx", "?object=x", "?view=secrets"] {
        assert_eq!(with(&server, &admin, "GET", &format!("/page/findings{query}"), &[]).code, 400, "{query}");
    }
    let none = with(&server, &admin, "GET", "/page/findings?object=HTTPRoute%2Fshop%2Fnone", &[]);
    assert_eq!(none.code, 404, "{}", none.text());
}

#[test]
fn s52_the_page_explain_and_the_condition_of_a_route_name_one_cause() {
    let server = server_with(&["--gateway-class", "--load-balancer-pool", "192.0.2.0/28"]);
    for name in ["infra", "shop", "bank"] {
        namespace(&server, name);
    }
    gateway(&server, "infra", "edge");
    create(
        &server,
        "/api/v1/namespaces/bank/services",
        &json!({"metadata": {"name": "vault"}, "spec": {"ports": [{"port": 80}]}}),
    );
    route(&server, "shop", "front", &json!({"name": "vault", "namespace": "bank", "port": 80}));
    let mut condition = Value::Null;
    let path = format!("{}/front", objects("shop", "httproutes"));
    eventually("the condition", || {
        let found = server.session().get(&path).body;
        let all = found["status"]["parents"][0]["conditions"].as_array().cloned().unwrap_or_default();
        condition = all.into_iter().find(|one| one["reason"] == "RefNotPermitted").unwrap_or_default();
        condition["status"] == "False"
    });

    let finding = explain(&server, "httproute/front", "shop")["findings"][0].take();
    assert_eq!(finding["code"], "ReferenceNotPermitted");
    let sentence = text(&finding, "/message");
    assert_eq!(sentence, format!("rule 0: {}", text(&condition, "/message")), "one sentence");

    let browser = visitor(&server);
    browser.open(&format!("https://{}/page/#/gateways", server.address));
    let row = "document.querySelector('.line-rule[data-code=ReferenceNotPermitted]')";
    browser.until(row);
    let shown = browser.text(".line-rule");
    assert!(shown.contains("front.example.com") && shown.contains(sentence), "{shown}");
    assert!(browser.text(".line-gateway").contains("192.0.2."), "{}", browser.text(".line-gateway"));
    browser.until("document.querySelector('.line-gateway').dataset.grade === 'ready'");

    // With the keyboard: a filter, the last row, the view of the route.
    browser.press(&["/"]);
    browser.type_text("/front");
    browser.until("document.querySelector('.count').innerText.startsWith('1 of 1 rules')");
    browser.run("document.querySelector('[data-row]').focus()");
    browser.press(&[END]);
    browser.until("document.activeElement?.closest('.line-rule') !== null");
    browser.press(&[ENTER]);
    browser.until("document.querySelector('#verdict')");
    let verdict = browser.text("#verdict");
    for wanted in ["ReferenceNotPermitted", sentence, text(&finding, "/fix")] {
        assert!(verdict.contains(wanted), "{wanted}: {verdict}");
    }
    let conditions = browser.text("table");
    assert!(
        conditions.contains("RefNotPermitted") && conditions.contains(text(&condition, "/message")),
        "{conditions}"
    );
    assert!(browser.text(".tree").contains("Gateway infra/edge"), "{}", browser.text(".tree"));

    // The Service lists the route. A grant repairs the reference, which the page shows.
    browser.open(&format!("https://{}/page/#/service/bank/vault", server.address));
    browser.until("document.querySelector('#routes [data-code=ReferenceNotPermitted]')");
    let grant = json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": {"name": "front"},
        "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}],
            "to": [{"group": "", "kind": "Service", "name": "vault"}],
        },
    });
    create(&server, "/apis/gateway.networking.k8s.io/v1beta1/namespaces/bank/referencegrants", &grant);
    browser.until("document.querySelector('#routes [data-code=BackendNotReady]')");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn s52_the_page_and_explain_agree_on_every_object() {
    let server = server_with(&["--gateway-class", "--load-balancer-pool", "192.0.2.0/28"]);
    for name in ["infra", "shop"] {
        namespace(&server, name);
    }
    gateway(&server, "infra", "edge");
    gateway(&server, "infra", "pending");
    create(
        &server,
        "/api/v1/namespaces/shop/services",
        &json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}),
    );
    for (name, backend) in [
        ("typo", json!({"name": "wbe", "port": 80})),
        ("port", json!({"name": "web", "port": 8080})),
        ("idle", json!({"name": "web", "port": 80})),
        ("grant", json!({"name": "web", "namespace": "infra", "port": 80})),
    ] {
        route(&server, "shop", name, &backend);
    }
    let lost = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "lost"},
        "spec": {"parentRefs": [{"name": "egde", "namespace": "infra"}]},
    });
    create(&server, &objects("shop", "httproutes"), &lost);
    let admin = cookie(&server);
    for (kind, namespace, name, code) in [
        ("HTTPRoute", "shop", "typo", Some("BackendMissing")),
        ("HTTPRoute", "shop", "port", Some("BackendPortMissing")),
        ("HTTPRoute", "shop", "idle", Some("BackendNotReady")),
        ("HTTPRoute", "shop", "grant", Some("ReferenceNotPermitted")),
        ("HTTPRoute", "shop", "lost", Some("ParentMissing")),
        ("Gateway", "infra", "edge", None),
        ("Gateway", "infra", "pending", None),
    ] {
        // Controllers write while both are read.
        eventually(&format!("{kind} {namespace}/{name}: {code:?}"), || {
            let page = findings(&server, &admin, &format!("?object={kind}%2F{namespace}%2F{name}"));
            let explained = explain(&server, &format!("{kind}/{name}"), namespace);
            let is_diagnosed = code.is_none_or(|code| page["findings"][0]["code"] == code);
            let is_equal = |member: &&str| page[*member] == explained[*member];
            is_diagnosed && ["kind", "key", "state", "findings", "items"].iter().all(is_equal)
        });
    }
}

#[test]
fn s52_without_the_gateway_api_the_page_shows_how_to_install_it() {
    let server = server_with(&["--gateway-api", "none"]);
    let browser = visitor(&server);
    browser.open(&format!("https://{}/page/#/gateways", server.address));
    browser.until("document.querySelector('#install')");
    assert!(browser.text("#install").contains("--gateway-api standard"), "{}", browser.text("#install"));
    browser.until("document.querySelector('#pulse')?.dataset.state === 'live'");
    assert_eq!(browser.complaints(), [""; 0], "no watch of kinds that do not exist");
}

#[test]
fn s52_a_thousand_routes_stay_fluid() {
    let server = server_with(&["--gateway-class", "--load-balancer-pool", "192.0.2.0/28"]);
    for name in ["infra", "shop"] {
        namespace(&server, name);
    }
    gateway(&server, "infra", "edge");
    let mut session = server.session();
    for at in 0..1000 {
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": format!("r-{at:04}")},
            "spec": {
                "parentRefs": [{"name": "edge", "namespace": "infra"}], "hostnames": [format!("h{at:04}.example.com")],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
            },
        });
        let _ = session.post(&objects("shop", "httproutes"), &object).success();
    }
    let browser = visitor(&server);
    browser.open(&format!("https://{}/page/#/gateways", server.address));
    browser.until("document.querySelector('.count')?.innerText.startsWith('1000 of 1000 rules')");
    let size = browser.eval("return document.querySelectorAll('*').length").as_u64().expect("a number");
    assert!(size < 1500, "{size} elements");
    browser.run("document.querySelector('[data-row]').focus()");
    browser.press(&[END]);
    browser.until("document.activeElement?.closest('[data-key]')?.dataset.key.includes('shop/r-0999')");
    browser.press(&["/"]);
    browser.type_text("h0500");
    browser.until("document.querySelector('.count').innerText.startsWith('1 of 1000 rules')");
    assert!(browser.text(".line-rule").contains("BackendMissing"), "{}", browser.text(".line-rule"));
    assert_eq!(browser.complaints(), [""; 0]);
}
