//! What is kept, what is removed, and when nothing is written.

use std::sync::Arc;

use api::view::gateway_api::{CONTROLLER, ParentRef};
use serde_json::{Value, json};

use super::*;
use crate::cluster::Address;
use crate::model::{ListenerId, RouteKind};

const EARLIER: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-02-02T02:02:02Z";

fn good() -> Verdict {
    Verdict::good("Good", "fine")
}

fn condition(kind: &str, status: &str, generation: i64, since: &str) -> Value {
    let reason = if status == "True" { "Good" } else { "Bad" };
    let message = if status == "True" { "fine" } else { "not fine" };
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": since,
    })
}

fn route_state(generation: i64, names: &[&str]) -> RouteState {
    let parent = |name: &&str| ParentState {
        parent_ref: ParentRef { name: (**name).into(), section_name: Some("web".into()), ..ParentRef::default() },
        ancestor: Ancestor::gateway(&format!("ns/{name}").into()),
        accepted: good(),
        resolved_refs: good(),
        partially_invalid: None,
        places: Vec::new(),
    };
    RouteState {
        generation,
        created: EARLIER.into(),
        parents: names.iter().map(parent).collect(),
        rules: Arc::new([]),
        stream: None,
    }
}

fn gateway_state() -> GatewayState {
    let id = ListenerId { gateway: "ns/gw".into(), set: None, name: "web".into() };
    let listener = ListenerState {
        id,
        port: 80,
        supported_kinds: vec![RouteKind::Http],
        attached_routes: 3,
        accepted: good(),
        programmed: good(),
        resolved_refs: good(),
        conflicted: Verdict::bad("NoConflicts", ""),
        overlapping_tls: None,
    };
    GatewayState {
        generation: 2,
        accepted: good(),
        programmed: good(),
        resolved_refs: good(),
        addresses_assigned: good(),
        insecure_frontend: None,
        addresses: vec![Address { kind: "IPAddress", value: "192.0.2.1".into() }],
        listeners: vec![listener],
        attached_sets: 1,
    }
}

#[test]
fn a_rendered_status_is_not_written_again() {
    let class_state = ClassState { generation: 1, accepted: good(), supported_version: good(), is_used: false };
    let written = class(&Value::Null, &class_state, EARLIER).expect("the first status");
    assert_eq!(class(&written, &class_state, NOW), None);
    let written = gateway(&Value::Null, &gateway_state(), EARLIER).expect("the first status");
    assert_eq!(gateway(&written, &gateway_state(), NOW), None);
    let state = route_state(4, &["a", "b"]);
    let written = route(&Value::Null, &state, EARLIER).expect("the first status");
    assert_eq!(route(&written, &state, NOW), None);
    assert_eq!(route(&Value::Null, &route_state(4, &[]), NOW), None, "no parent of ours");
}

#[test]
fn a_gateway_has_listeners_addresses_and_counts() {
    let status = gateway(&Value::Null, &gateway_state(), NOW).expect("a status");
    assert_eq!(status["addresses"], json!([{ "type": "IPAddress", "value": "192.0.2.1" }]));
    assert_eq!(status["attachedListenerSets"], 1);
    let listener = &status["listeners"][0];
    assert_eq!((&listener["name"], &listener["attachedRoutes"]), (&json!("web"), &json!(3)));
    assert_eq!(listener["supportedKinds"], json!([{ "group": GROUP, "kind": "HTTPRoute" }]));
    let all = status["conditions"].as_array().into_iter().chain(listener["conditions"].as_array()).flatten();
    let generations: Vec<_> = all.map(|condition| condition["observedGeneration"].clone()).collect();
    assert_eq!(generations, vec![json!(2); 8], "observedGeneration is on every condition");
}

#[test]
fn the_transition_time_moves_with_the_status_only() {
    let found = [("A", Some(&good()))].map(|(kind, verdict)| (kind, verdict.cloned()));
    let merge = |stored: Value, generation| {
        let found = [("A", found[0].1.as_ref())];
        conditions::merge(&[stored], &found, generation, NOW)
    };
    assert_eq!(merge(condition("A", "True", 1, EARLIER), 2), json!([condition("A", "True", 2, EARLIER)]));
    assert_eq!(merge(condition("A", "False", 1, EARLIER), 2), json!([condition("A", "True", 2, NOW)]));
    let pending = json!({ "type": "A", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z" });
    assert_eq!(merge(pending, 1), json!([condition("A", "True", 1, NOW)]), "the default of the schema is replaced");
}

#[test]
fn a_condition_of_a_later_generation_is_left() {
    let found = [("A", Some(good())), ("B", None)];
    let found = found.each_ref().map(|(kind, verdict)| (*kind, verdict.as_ref()));
    let stored = [condition("A", "False", 9, EARLIER), condition("B", "True", 9, EARLIER)];
    assert_eq!(conditions::merge(&stored, &found, 8, NOW), json!(stored));
}

#[test]
fn foreign_conditions_stay_in_place_and_own_ones_end() {
    let foreign = json!({ "type": "example.com/Warm", "status": "Unknown", "observedGeneration": 7 });
    let stored = [condition("B", "True", 1, EARLIER), foreign.clone(), condition("A", "True", 1, EARLIER)];
    let found = [("A", Some(good())), ("B", None)];
    let found = found.each_ref().map(|(kind, verdict)| (*kind, verdict.as_ref()));
    assert_eq!(conditions::merge(&stored, &found, 1, NOW), json!([foreign, condition("A", "True", 1, EARLIER)]));
}

#[test]
fn a_list_of_conditions_does_not_outgrow_its_limit() {
    let stored: Vec<_> = (0..8).map(|n| json!({ "type": format!("example.com/{n}") })).collect();
    let verdict = good();
    assert_eq!(conditions::merge(&stored, &[("A", Some(&verdict))], 1, NOW), json!(stored));
    let long = Verdict::good("Good", "ä".repeat(20_000));
    let merged = conditions::merge(&[], &[("A", Some(&long))], 1, NOW);
    assert_eq!(merged[0]["message"].as_str().map(str::len), Some(32_768));
}

#[test]
fn foreign_parents_stay_in_place_and_stale_ones_of_ours_are_removed() {
    let foreign = json!({ "parentRef": { "name": "a", "sectionName": "web" }, "controllerName": "example.com/other",
        "conditions": [condition("Accepted", "False", 1, EARLIER)] });
    let stale = json!({ "parentRef": { "name": "gone" }, "controllerName": CONTROLLER, "conditions": [] });
    let stored = json!({ "parents": [stale, foreign, {
        "parentRef": { "name": "b", "sectionName": "web" }, "controllerName": CONTROLLER,
        "conditions": [condition("Accepted", "True", 1, EARLIER)] }] });
    let status = route(&stored, &route_state(1, &["a", "b"]), NOW).expect("a change");
    let names: Vec<_> =
        status["parents"].as_array().into_iter().flatten().map(|p| p["parentRef"]["name"].clone()).collect();
    assert_eq!(names, ["a", "b", "a"]);
    assert_eq!(status["parents"][0], foreign);
    assert_eq!(status["parents"][1]["conditions"][0], condition("Accepted", "True", 1, EARLIER), "the time is kept");
    assert_eq!(status["parents"][2]["controllerName"], CONTROLLER);
    let empty = route(&stored, &route_state(1, &[]), NOW).expect("own entries are removed");
    assert_eq!(empty, json!({ "parents": [foreign] }));
}

#[test]
fn ancestors_of_a_policy_are_gateways() {
    let state = |ancestors: &[&str]| PolicyState {
        generation: 5,
        ancestors: ancestors.iter().map(|key| Ancestor::gateway(&(*key).into())).collect(),
        accepted: good(),
        resolved_refs: good(),
    };
    let status = policy(&Value::Null, &state(&["ns/gw"]), NOW).expect("a status");
    let reference = json!({ "group": GROUP, "kind": "Gateway", "namespace": "ns", "name": "gw" });
    assert_eq!(status["ancestors"][0]["ancestorRef"], reference);
    assert_eq!(policy(&status, &state(&["ns/gw"]), EARLIER), None);
    assert_eq!(policy(&status, &state(&[]), NOW), Some(json!({ "ancestors": [] })));
    let route = Ancestor { group: GROUP, kind: "HTTPRoute", key: "ns/web".into() };
    let unattached =
        TrafficPolicyState { generation: 5, ancestors: vec![route], accepted: good(), resolved_refs: good() };
    let written = traffic_policy(&Value::Null, &unattached, NOW).expect("a status");
    let reference = json!({ "group": GROUP, "kind": "HTTPRoute", "namespace": "ns", "name": "web" });
    assert_eq!(written["ancestors"][0]["ancestorRef"], reference, "of a policy without a Gateway it is the target");
    assert_eq!(traffic_policy(&written, &unattached, EARLIER), None);
    let many: Vec<_> = (0..20).map(|n| format!("ns/gw{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let status = policy(&Value::Null, &state(&many), NOW).expect("a status");
    assert_eq!(status["ancestors"].as_array().map(Vec::len), Some(16));
}
