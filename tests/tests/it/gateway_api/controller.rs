//! What the server makes of Gateways and routes: statuses, addresses, Services.

use serde_json::{Value, json};
use testbed::session::{SERVICES, text};

use super::desk::{Desk, GATEWAYS, ROUTES, gateway, has, message, route};

const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/waypost";

fn revision(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

fn count(gateway: &Value) -> i64 {
    gateway["status"]["listeners"][0]["attachedRoutes"].as_i64().unwrap_or(-1)
}

#[test]
fn s52_a_gateway_is_programmed_with_an_address_and_its_routes_are_counted() {
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    let class = desk.until(CLASS, "it is accepted", |class| has(&class["status"], "Accepted=True/Accepted"));
    assert!(has(&class["status"], "SupportedVersion=True/SupportedVersion"), "{class}");
    let _ = desk.session.create("web", json!({"ports": [{"port": 8080}]}));
    desk.apply(&gateway("public"));
    let programmed = desk.gateway("public", "Programmed=True/Programmed");
    assert!(has(&programmed["status"], "Accepted=True/Accepted"), "{programmed}");
    assert_eq!(programmed["status"]["addresses"], json!([{"type": "IPAddress", "value": "192.0.2.0"}]));
    let service = desk.session.get(&format!("{SERVICES}/public-waypost")).success();
    assert_eq!(service["metadata"]["annotations"]["waypost.dev/gateway"], "public");
    assert_eq!(service["spec"]["ports"][0]["name"], "tcp-80");
    for name in ["one", "two"] {
        let _ = desk.session.post(ROUTES, &route(name, "web", 8080)).success();
        let accepted = desk.route(name, "Accepted=True/Accepted");
        assert!(has(&accepted["status"]["parents"][0], "ResolvedRefs=True/ResolvedRefs"), "{accepted}");
    }
    let path = format!("{GATEWAYS}/public");
    desk.until(&path, "two routes", |gateway| count(gateway) == 2);
    let _ = desk.session.delete(&format!("{ROUTES}/one")).success();
    let last = desk.until(&path, "one route", |gateway| count(gateway) == 1);
    assert_eq!(last["metadata"]["generation"], 1, "statuses are no new generation");
}

#[test]
fn s52_statuses_are_the_same_after_a_restart() {
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    let _ = desk.session.create("web", json!({"ports": [{"port": 8080}]}));
    desk.apply(&gateway("public"));
    let _ = desk.session.post(ROUTES, &route("web", "web", 8080)).success();
    desk.gateway("public", "Programmed=True/Programmed");
    desk.route("web", "Accepted=True/Accepted");
    let path = format!("{GATEWAYS}/public");
    let before = desk.until(&path, "one route", |gateway| count(gateway) == 1);
    let route_before = desk.session.get(&format!("{ROUTES}/web")).success();
    let Desk { server, .. } = desk;
    drop(server);
    let mut desk = Desk::new(&home);
    // A second Gateway shows that the controllers have run.
    desk.apply(&gateway("second"));
    desk.gateway("second", "Programmed=True/Programmed");
    assert_eq!(revision(&desk.session.get(&path).success()), revision(&before));
    assert_eq!(revision(&desk.session.get(&format!("{ROUTES}/web")).success()), revision(&route_before));
}

#[test]
fn s52_the_service_and_the_address_go_with_the_gateway() {
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    desk.apply(&gateway("public"));
    desk.gateway("public", "Programmed=True/Programmed");
    let held = desk.session.get(CLASS).success();
    let finalizer = "gateway-exists-finalizer.gateway.networking.k8s.io";
    assert_eq!(held["metadata"]["finalizers"], json!([finalizer]));
    let _ = desk.session.delete(&format!("{GATEWAYS}/public")).success();
    desk.until(&format!("{SERVICES}/public-waypost"), "it is gone", |found| found["code"] == 404);
    desk.until(CLASS, "it is free", |class| class["metadata"]["finalizers"].is_null());
    desk.apply(&gateway("next"));
    let next = desk.gateway("next", "Programmed=True/Programmed");
    assert_eq!(next["status"]["addresses"][0]["value"], "192.0.2.0", "the address is free again");
}

#[test]
fn s52_parents_of_other_controllers_stay() {
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    desk.apply(&gateway("public"));
    let _ = desk.session.post(ROUTES, &route("web", "web", 8080)).success();
    let mut stored = desk.route("web", "ResolvedRefs=False/BackendNotFound");
    let foreign = json!({
        "controllerName": "example.com/controller", "parentRef": {"name": "theirs"},
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1,
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    let parents = stored["status"]["parents"].as_array_mut().expect("parents");
    parents.push(foreign);
    let _ = desk.session.put(&format!("{ROUTES}/web/status"), &stored).success();
    let _ = desk.session.create("web", json!({"ports": [{"port": 8080}]}));
    let resolved = desk.route("web", "ResolvedRefs=True/ResolvedRefs");
    let parents = resolved["status"]["parents"].as_array().expect("parents");
    let theirs: Vec<&Value> = parents.iter().filter(|one| one["controllerName"] == "example.com/controller").collect();
    assert!(matches!(theirs[..], [one] if text(one, "/parentRef/name") == "theirs"), "{resolved}");
}

#[test]
fn s52_statuses_say_which_reference_is_invalid() {
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    desk.apply(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: public}\n\
         spec:\n  gatewayClassName: waypost\n  listeners:\n  - {name: http, port: 80, protocol: HTTP}\n\
         \x20 - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}\n",
    );
    let listener = |gateway: &Value| gateway["status"]["listeners"][1].clone();
    let path = format!("{GATEWAYS}/public");
    let invalid = "ResolvedRefs=False/InvalidCertificateRef";
    let gateway = desk.until(&path, "no certificate", |gateway| has(&listener(gateway), invalid));
    assert!(has(&listener(&gateway), "Programmed=False/Invalid"), "{gateway}");
    assert!(message(&listener(&gateway), "ResolvedRefs").contains("cert"), "{gateway}");
    // A Secret that is no certificate is no better than none, and the message says why.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "cert"},
        "data": {"tls.crt": "bm9uZQ==", "tls.key": "bm9uZQ=="},
    });
    let _ = desk.session.post("/api/v1/namespaces/default/secrets", &secret).success();
    desk.until(&path, "the reason", |gateway| {
        let found = listener(gateway);
        has(&found, invalid) && message(&found, "ResolvedRefs").contains("tls.crt")
    });
    let _ = desk.session.post(ROUTES, &route("web", "missing", 8080)).success();
    let refused = desk.route("web", "ResolvedRefs=False/BackendNotFound");
    assert!(has(&refused["status"]["parents"][0], "Accepted=True/Accepted"), "{refused}");
    assert!(message(&refused["status"]["parents"][0], "ResolvedRefs").contains("missing"), "{refused}");
}

#[test]
fn s52_a_thousand_routes_cost_few_writes_of_their_gateway() {
    const ROUTES_AT_ONCE: usize = 1000;
    let home = testbed::folder();
    let mut desk = Desk::new(&home);
    let _ = desk.session.create("web", json!({"ports": [{"port": 8080}]}));
    desk.apply(&gateway("public"));
    let first = desk.gateway("public", "Programmed=True/Programmed");
    let other = desk.server.session();
    let since = format!("&resourceVersion={}", revision(&first));
    let mut watch = other.watch(GATEWAYS, &since);
    let mut writes = 0;
    for number in 0..ROUTES_AT_ONCE {
        let _ = desk.session.post(ROUTES, &route(&format!("r{number}"), "web", 8080)).success();
    }
    let all = i64::try_from(ROUTES_AT_ONCE).expect("a small number");
    let _ = watch.until(|_, gateway| {
        writes += 1;
        count(gateway) == all
    });
    for number in 0..ROUTES_AT_ONCE {
        let _ = desk.session.delete(&format!("{ROUTES}/r{number}")).success();
    }
    let _ = watch.until(|_, gateway| {
        writes += 1;
        count(gateway) == 0
    });
    assert!((2..100).contains(&writes), "{writes} writes");
}
