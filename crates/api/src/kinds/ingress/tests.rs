//! Rules of Ingress that the recorded answers do not show.

use super::*;
use crate::kinds::testing::{golden, summary, table_golden};

#[test]
fn golden_answers() {
    golden("ingress", &KIND);
    table_golden("table.ingresses", &KIND);
}

fn ingress(spec: &Value) -> Value {
    json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": spec})
}

fn on_create(spec: &Value) -> String {
    summary(|errors| IngressRules.validate_create(&ingress(spec), errors))
}

#[test]
fn backends_are_one_thing() {
    let service = json!({"name": "web", "port": {"number": 80}});
    let resource = json!({"apiGroup": "Bad", "kind": "a/b", "name": ""});
    assert_eq!(
        on_create(&json!({"defaultBackend": {"service": service, "resource": {"kind": "K", "name": "n"}}})),
        "spec.defaultBackend: Invalid value: \"\": cannot set both resource and service backends"
    );
    let text = on_create(&json!({"defaultBackend": {"resource": resource}}));
    assert!(text.contains("spec.defaultBackend.resource.apiGroup: Invalid value"), "{text}");
    assert!(text.contains("spec.defaultBackend.resource.kind: Invalid value: \"a/b\": may not contain '/'"), "{text}");
    assert!(text.contains("spec.defaultBackend.resource.name: Required value"), "{text}");
}

#[test]
fn ports_are_checked() {
    let with_port = |port: Value| on_create(&json!({"defaultBackend": {"service": {"name": "web", "port": port}}}));
    assert_eq!(
        with_port(json!({"number": 70000})),
        "spec.defaultBackend.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive"
    );
    assert!(with_port(json!({"name": "no_good"})).starts_with("spec.defaultBackend.service.port.name: Invalid value"));
}

#[test]
fn hosts_are_names() {
    assert_eq!(
        on_create(&json!({"rules": [{"host": "10.0.0.1"}]})),
        "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"
    );
    assert_eq!(on_create(&json!({"rules": [{"http": {}}]})), "spec.rules[0].http.paths: Required value");
}

#[test]
fn the_annotation_must_agree() {
    let mut object = ingress(&json!({"ingressClassName": "a", "defaultBackend": {"service": {
        "name": "web", "port": {"name": "http"}}}}));
    object.put("metadata.annotations", json!({INGRESS_CLASS: "b"}));
    assert_eq!(
        summary(|errors| IngressRules.validate_create(&object, errors)),
        "annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are \
         specified"
    );
}

#[test]
fn stored_mistakes_are_excused() {
    let bad = ingress(&json!({
        "tls": [{"secretName": "Bad Name"}],
        "rules": [{"host": "*.example.com", "http": {"paths": [{"pathType": "Prefix", "backend": {}}]}}],
    }));
    assert_eq!(summary(|errors| IngressRules.validate_update(&bad, &bad, errors)), "[]");
    assert!(!summary(|errors| IngressRules.validate_create(&bad, errors)).is_empty());
}

#[test]
fn cells() {
    let hosts = |names: &[&str]| {
        let rules: Vec<Value> = names.iter().map(|name| json!({"host": name})).collect();
        hosts_cell(&rules)
    };
    assert_eq!(hosts(&[]), "*");
    assert_eq!(hosts(&["", "a", "b", "c"]), "a,b,c");
    assert_eq!(hosts(&["a", "b", "c", ""]), "a,b,c + 1 more...");
    assert_eq!(
        address_cell(&[json!({"ip": "2.2.2.2"}), json!({"hostname": "a"}), json!({"ip": "2.2.2.2"})]),
        "2.2.2.2,a"
    );
}

#[test]
fn status_addresses_are_checked() {
    let old = ingress(&json!({}));
    let mut new = old.clone();
    new.put("status.loadBalancer.ingress", json!([{"ip": "x"}, {"hostname": "192.0.2.1"}]));
    let text = summary(|errors| IngressRules.validate_status(&new, &old, errors));
    assert!(text.contains("status.loadBalancer.ingress[0].ip: Invalid value: \"x\""), "{text}");
    assert!(text.contains("must be a DNS name, not an IP address"), "{text}");
}
