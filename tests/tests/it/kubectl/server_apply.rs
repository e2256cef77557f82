//! `kubectl apply --server-side`: who owns which field, and what happens when two want the same one.

use serde_json::Value;

use super::{Bed, service};

const WEB: &str = "{selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}";

/// The entry of a manager.
fn entry(bed: &Bed, manager: &str) -> Value {
    let object: Value =
        serde_json::from_str(&bed.ok("get --raw /api/v1/namespaces/default/services/web")).expect("JSON");
    let entries = object["metadata"]["managedFields"].as_array().expect("managed fields").clone();
    entries.into_iter().find(|entry| entry["manager"] == manager).unwrap_or(Value::Null)
}

#[test]
fn s01_a_server_side_apply_owns_what_it_says_and_repeats_for_free() {
    let bed = Bed::start();
    assert_eq!(bed.ok_with("apply --server-side -f -", &service("web", WEB)), "service/web serverside-applied\n");
    let kubectl = entry(&bed, "kubectl");
    assert_eq!(kubectl["operation"], "Apply");
    let port = &kubectl["fieldsV1"]["f:spec"]["f:ports"][r#"k:{"port":80,"protocol":"TCP"}"#];
    assert_eq!(port["f:targetPort"], serde_json::json!({}), "{kubectl}");
    assert_eq!(kubectl["fieldsV1"]["f:spec"].get("f:clusterIP"), None, "the server's own choice: {kubectl}");

    let before = bed.field("service/web", ".metadata.resourceVersion");
    bed.ok_with("apply --server-side -f -", &service("web", WEB));
    assert_eq!(bed.field("service/web", ".metadata.resourceVersion"), before);
}

#[test]
fn s01_a_conflict_names_the_owner_and_the_field_and_force_takes_it() {
    let bed = Bed::start();
    bed.ok_with("apply --server-side --field-manager=first -f -", &service("web", WEB));
    let second = service("web", &WEB.replace("8080", "9090"));
    let refused = bed.fails_with("apply --server-side --field-manager=second -f -", &second);
    let wanted =
        r#"Apply failed with 1 conflict: conflict with "first": .spec.ports[port=80,protocol="TCP"].targetPort"#;
    assert!(refused.contains(wanted), "{refused}");
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "8080");

    bed.ok_with("apply --server-side --field-manager=second --force-conflicts -f -", &second);
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "9090");
    let port = entry(&bed, "first")["fieldsV1"]["f:spec"]["f:ports"][r#"k:{"port":80,"protocol":"TCP"}"#].clone();
    assert_eq!(port.get("f:targetPort"), None, "{port}");
    assert_eq!(port["f:port"], serde_json::json!({}), "both say it: {port}");
}

#[test]
fn s01_a_field_goes_when_its_last_owner_lets_go_of_it() {
    let bed = Bed::start();
    let labelled = |labels: &str| service(&format!("web\n  labels: {labels}"), WEB);
    bed.ok_with("apply --server-side --field-manager=first -f -", &labelled("{a: '1', b: '1'}"));
    bed.ok_with("apply --server-side --field-manager=second -f -", &labelled("{b: '1', c: '1'}"));
    bed.ok_with("apply --server-side --field-manager=first -f -", &labelled("{}"));
    let labels = bed.json("service web")["metadata"]["labels"].clone();
    assert_eq!(labels, serde_json::json!({"b": "1", "c": "1"}), "a had one owner, b has another one left");
    bed.ok_with("apply --server-side --field-manager=second -f -", &labelled("{c: '1'}"));
    assert_eq!(bed.json("service web")["metadata"]["labels"], serde_json::json!({"c": "1"}));
}

#[test]
fn s01_other_writes_own_fields_too() {
    let bed = Bed::start();
    bed.ok_with("apply --server-side -f -", &service("web", WEB));
    bed.ok(r#"patch service web --field-manager=hand -p '{"spec":{"sessionAffinity":"ClientIP"}}'"#);
    assert_eq!(entry(&bed, "hand")["operation"], "Update");
    let affinity = WEB.replace("{selector", "{sessionAffinity: None, selector");
    let refused = bed.fails_with("apply --server-side -f -", &service("web", &affinity));
    assert!(refused.contains(r#"conflict with "hand" using v1: .spec.sessionAffinity"#), "{refused}");
}

#[test]
fn s01_a_service_applied_by_the_client_moves_to_the_server_without_a_conflict() {
    let bed = Bed::start();
    bed.service("web", WEB);
    bed.ok_with("apply --server-side -f -", &service("web", &WEB.replace("8080", "9090")));
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "9090");
    // And back: the note of the last applied manifest was kept up to date.
    assert!(bed.ok("apply view-last-applied service web").contains("targetPort: 9090"));
    bed.service("web", WEB);
    assert_eq!(bed.field("service/web", ".spec.ports[0].targetPort"), "8080");
}

#[test]
fn s06_two_protocols_on_one_number_are_two_ports() {
    let bed = Bed::start();
    let dns = "{ports: [{name: udp, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]}";
    bed.ok_with("apply --server-side -f -", &service("web", dns));
    bed.ok_with(
        "apply --server-side -f -",
        &service("web", &dns.replace("{name: udp, port: 53, protocol: UDP}, ", "")),
    );
    assert_eq!(bed.field("service/web", ".spec.ports[*].protocol"), "TCP");
}

#[test]
fn s01_an_unknown_field_is_refused() {
    let bed = Bed::start();
    let refused = bed.fails_with("apply --server-side -f -", &service("web", "{ports: [{port: 80}], frobnicate: 1}"));
    assert!(refused.contains("frobnicate"), "{refused}");
    assert!(bed.fails("get service web").contains("not found"));
}
