//! Rules of EndpointSlice that the recorded answers do not show.

use serde_json::json;

use super::*;
use crate::kinds::testing::{golden, summary, table_golden};

#[test]
fn golden_answers() {
    golden("endpointslice", &KIND);
    table_golden("table.endpointslices", &KIND);
}

fn slice(endpoints: &Value) -> Value {
    json!({"metadata": {"name": "a", "namespace": "n"}, "addressType": "IPv4", "endpoints": endpoints, "ports": []})
}

#[test]
fn generated_rules_come_last() {
    let object = slice(&json!([{"addresses": []}, {"addresses": ["127.0.0.1"]}]));
    assert_eq!(
        summary(|errors| EndpointSliceRules.validate_create(&object, errors)),
        "[endpoints[1].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, \
         ::1/128), endpoints[0].addresses: Required value]"
    );
}

#[test]
fn unchanged_endpoints_pass() {
    let bad = slice(&json!([{"addresses": ["127.0.0.1"]}, {"addresses": []}]));
    assert_eq!(summary(|errors| EndpointSliceRules.validate_update(&bad, &bad, errors)), "[]");
    let mut changed = bad.clone();
    changed.put("addressType", "IPv6");
    assert_eq!(
        summary(|errors| EndpointSliceRules.validate_update(&changed, &bad, errors)),
        "addressType: Invalid value: null: field is immutable"
    );
}

#[test]
fn topology_goes_and_known_nodes_stay() {
    let topology = json!({HOSTNAME: "n1", "topology.kubernetes.io/zone": "z"});
    let mut created = slice(&json!([{"addresses": ["10.1.1.1"], "deprecatedTopology": topology}]));
    let old = created.clone();
    EndpointSliceRules.prepare_create(&mut created);
    assert_eq!(created.at("endpoints"), &json!([{"addresses": ["10.1.1.1"]}]));

    let mut same_endpoints = old.clone();
    EndpointSliceRules.prepare_update(&mut same_endpoints, &old);
    assert_eq!(same_endpoints, old);

    let mut changed = slice(&json!([
        {"addresses": ["10.1.1.2"], "deprecatedTopology": topology},
        {"addresses": ["10.1.1.3"], "deprecatedTopology": {HOSTNAME: "other"}},
    ]));
    EndpointSliceRules.prepare_update(&mut changed, &old);
    assert_eq!(
        changed.at("endpoints"),
        &json!([{"addresses": ["10.1.1.2"], "nodeName": "n1"}, {"addresses": ["10.1.1.3"]}])
    );
}

#[test]
fn generation_follows_content_and_labels() {
    let old = slice(&Value::Null);
    let mut new = slice(&json!([]));
    new.put("metadata.annotations", json!({"a": "b"}));
    assert!(!EndpointSliceRules.new_generation(&new, &old));
    new.put("metadata.labels", json!({"a": "b"}));
    assert!(EndpointSliceRules.new_generation(&new, &old));
}

#[test]
fn repeated_hints_are_refused() {
    let object = slice(&json!([{"addresses": ["10.1.1.1"], "hints": {
        "forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": "n"}, {"name": "n"}],
    }}]));
    assert_eq!(
        summary(|errors| EndpointSliceRules.validate_create(&object, errors)),
        "[endpoints[0].hints.forZones[1].name: Duplicate value: \"a\", endpoints[0].hints.forNodes[1].name: Duplicate \
         value: \"n\"]"
    );
}

#[test]
fn managed_slices_do_not_warn() {
    let mut object = slice(&json!([{"addresses": ["2001:DB8::1"]}]));
    object.put("metadata.labels", json!({ENDPOINT_SLICE_MANAGED_BY: CONTROLLERS[0]}));
    let mut out = Vec::new();
    EndpointSliceRules.warnings(&object, None, &mut out);
    assert!(out.is_empty());
    object.put("metadata.labels", json!({}));
    EndpointSliceRules.warnings(&object, None, &mut out);
    assert_eq!(out.len(), 1);
}
