//! Ownership from the outside: writes, applies, conflicts, and what random input must never do.

use proptest::prelude::*;
use serde_json::json;

use super::node::Node;
use super::*;
use crate::schema::{self, TypeId};

const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:05:05Z";

fn service() -> TypeId {
    schema::named("core.Service")
}

fn by(name: &str) -> Manager<'_> {
    Manager { name, api_version: "v1", subresource: "" }
}

fn on_status(name: &str) -> Manager<'_> {
    Manager { name, api_version: "v1", subresource: "status" }
}

fn web(labels: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": labels}, "spec": spec})
}

fn tracked(live: Option<&Value>, mut new: Value, manager: &Manager<'_>, now: &str) -> Value {
    track_update(service(), live, &mut new, manager, now);
    new.put("metadata.uid", "1");
    new
}

fn applied(live: Option<&Value>, config: &Value, name: &str) -> Value {
    apply(service(), live, config, &by(name), false, NOW).expect("applied")
}

fn fields_of<'o>(object: &'o Value, manager: &str) -> &'o Value {
    let entry = object.items("metadata.managedFields").iter().find(|entry| entry.text("manager") == manager);
    entry.map_or(&Value::Null, |entry| entry.at("fieldsV1"))
}

fn refusal(live: &Value, config: &Value, name: &str) -> Status {
    apply(service(), Some(live), config, &by(name), false, NOW).expect_err("a conflict")
}

#[test]
fn a_create_owns_what_it_sets() {
    let spec = json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "selector": {"a": "b"}});
    let made = tracked(None, web(&json!({"a": "1"}), &spec), &by("m"), NOW);
    let entry = json!({
        "manager": "m", "operation": "Update", "apiVersion": "v1", "time": NOW, "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:ports": {
                    ".": {},
                    "k:{\"port\":80,\"protocol\":\"TCP\"}":
                        {".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}},
                },
                "f:selector": {},
            },
        },
    });
    assert_eq!(made.at("metadata.managedFields"), &json!([entry]));
}

#[test]
fn an_update_takes_what_it_changes_and_forgets_what_it_removes() {
    let made = tracked(None, web(&json!({"a": "1", "b": "1"}), &json!({"type": "NodePort"})), &by("m"), NOW);
    let mut new = made.clone();
    new.drop_path("metadata.managedFields");
    new.put("metadata.labels", json!({"a": "2", "c": "3"}));
    let new = tracked(Some(&made), new, &by("other"), LATER);
    assert_eq!(fields_of(&new, "m"), &json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:type": {}}}));
    assert_eq!(fields_of(&new, "other"), &json!({"f:metadata": {"f:labels": {"f:a": {}, "f:c": {}}}}));
    let times: Vec<&str> = new.items("metadata.managedFields").iter().map(|entry| entry.text("time")).collect();
    assert_eq!(times, [NOW, LATER], "sorted by time, and only the writer's is new");
}

#[test]
fn a_write_that_changes_nothing_leaves_the_record() {
    let made = tracked(None, web(&json!({"a": "1"}), &json!({})), &by("m"), NOW);
    let again = tracked(Some(&made), made.clone(), &by("other"), LATER);
    assert_eq!(again.at("metadata.managedFields"), made.at("metadata.managedFields"));
}

#[test]
fn status_and_spec_are_owned_through_their_own_resource() {
    let full = json!({
        "metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    });
    let made = tracked(None, full.clone(), &by("m"), NOW);
    assert_eq!(fields_of(&made, "m"), &json!({"f:spec": {"f:type": {}}}));
    let mut live = made;
    live.put("status", json!({"loadBalancer": {}}));
    let mut new = full;
    new.put("spec.type", "NodePort");
    let new = tracked(Some(&live), new, &on_status("m"), NOW);
    let subresources: Vec<&str> =
        new.items("metadata.managedFields").iter().map(|entry| entry.text("subresource")).collect();
    assert_eq!(subresources, ["", "status"]);
    let status = new.items("metadata.managedFields")[1].at("fieldsV1");
    assert_eq!(status, &json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}}));
}

#[test]
fn the_record_is_reset_on_request_and_stays_gone() {
    let made = tracked(None, web(&json!({"a": "1"}), &json!({})), &by("m"), NOW);
    for reset in [json!([]), json!([{}])] {
        let mut new = made.clone();
        new.put("metadata.managedFields", reset);
        let new = tracked(Some(&made), new, &by("m"), NOW);
        assert!(!new.has("metadata.managedFields"));
        let mut again = new.clone();
        again.put("metadata.labels.a", "2");
        assert!(!tracked(Some(&new), again, &by("m"), NOW).has("metadata.managedFields"));
    }
    let mut new = made.clone();
    new.put("metadata.managedFields", json!([{"manager": "x", "operation": "Steal"}]));
    let new = tracked(Some(&made), new, &by("m"), NOW);
    assert_eq!(new.at("metadata.managedFields"), made.at("metadata.managedFields"), "unreadable: as if not sent");
}

#[test]
fn too_many_writers_become_ancient_history() {
    let mut live = tracked(None, web(&json!({}), &json!({"type": "ClusterIP"})), &by("m00"), "2026-01-01T00:00:00Z");
    for index in 1..=12 {
        let (name, now) = (format!("m{index:02}"), format!("2026-01-01T00:00:{index:02}Z"));
        let mut new = live.clone();
        new.put(&format!("metadata.labels.l{index}"), "x");
        live = tracked(Some(&live), new, &by(&name), &now);
    }
    let entries = live.items("metadata.managedFields");
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0].text("manager"), "ancient-changes");
    assert_eq!(entries[0].text("time"), "2026-01-01T00:00:03Z");
    let ancient = json!({
        "f:metadata": {"f:labels": {".": {}, "f:l1": {}, "f:l2": {}, "f:l3": {}}}, "f:spec": {"f:type": {}},
    });
    assert_eq!(entries[0].at("fieldsV1"), &ancient);
    assert_eq!(entries[1].text("manager"), "m04");
}

#[test]
fn conflicts_are_told_in_the_originals_words() {
    let spec = json!({"ports": [{"port": 80, "targetPort": 1}]});
    let live = applied(None, &web(&json!({"a": "1"}), &spec), "m1");
    let one = refusal(&live, &web(&json!({"a": "2"}), &json!({})), "m2");
    assert_eq!(one.message, "Apply failed with 1 conflict: conflict with \"m1\": .metadata.labels.a");
    let cause =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".metadata.labels.a"});
    assert_eq!((one.code, one.details), (409, Some(json!({"causes": [cause]}))));

    let live = tracked(
        Some(&live),
        {
            let mut new = live.clone();
            new.put("metadata.labels.u", "1");
            new
        },
        &by("upd"),
        NOW,
    );
    let config = web(&json!({"a": "2", "u": "2"}), &json!({"ports": [{"port": 80, "targetPort": 2}]}));
    let many = refusal(&live, &config, "m2");
    assert_eq!(
        many.message,
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .metadata.labels.a\n- \
         .spec.ports[port=80,protocol=\"TCP\"].targetPort\nconflicts with \"upd\" using v1:\n- .metadata.labels.u"
    );
    let forced = apply(service(), Some(&live), &config, &by("m2"), true, NOW).expect("forced");
    assert_eq!(fields_of(&forced, "upd"), &Value::Null);
    assert_eq!(forced.text("metadata.labels.a"), "2");

    let mut new = live.clone();
    new.put("status", json!({"conditions": [{"type": "A", "status": "True"}]}));
    let live = tracked(Some(&live), new, &on_status("lb"), NOW);
    let config = json!({
        "apiVersion": "v1", "kind": "Service", "status": {"conditions": [{"type": "A", "status": "False"}]},
    });
    let status = apply(service(), Some(&live), &config, &on_status("m3"), false, NOW).expect_err("a conflict");
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"lb\" with subresource \"status\" using v1: \
         .status.conditions[type=\"A\"].status"
    );
}

#[test]
fn what_is_no_longer_applied_goes_unless_somebody_owns_it() {
    let ports = |ports: Value| web(&json!({"a": "1"}), &json!({"ports": ports, "type": "NodePort"}));
    let live = applied(None, &ports(json!([{"port": 80, "name": "a"}, {"port": 81, "name": "b"}])), "m1");
    let mut live = applied(Some(&live), &web(&json!({}), &json!({"type": "NodePort"})), "m2");
    // The server chose a port meanwhile; it has no owner.
    live.put("spec.clusterIP", "10.96.0.1");
    live.items_mut("spec.ports")[0].put("nodePort", 30000);
    let next = applied(Some(&live), &web(&json!({}), &json!({"ports": [{"port": 80}]})), "m1");
    assert_eq!(next.at("spec.ports"), &json!([{"port": 80, "nodePort": 30000, "targetPort": 0}]));
    assert_eq!((next.text("spec.type"), next.text("spec.clusterIP")), ("NodePort", "10.96.0.1"));
    assert!(!next.has("metadata.labels"));
}

#[test]
fn the_same_apply_is_no_change_and_a_shared_one_has_no_time() {
    let config = web(&json!({"a": "1"}), &json!({"ports": [{"port": 80}]}));
    let live = applied(None, &config, "m1");
    let again = apply(service(), Some(&live), &config, &by("m1"), false, LATER).expect("applied");
    assert_eq!(again, live);
    let shared = apply(service(), Some(&live), &web(&json!({"a": "1"}), &json!({})), &by("m2"), false, LATER);
    let shared = shared.expect("shared");
    let entry = &shared.items("metadata.managedFields")[0];
    assert_eq!((entry.text("manager"), entry.has("time")), ("m2", false));
}

#[test]
fn a_bad_configuration_is_refused() {
    let message = |config: &Value| apply(service(), None, config, &by("m"), false, NOW).expect_err("refused");
    let unknown = message(&web(&json!({}), &json!({"foo": 1})));
    assert_eq!((unknown.code, unknown.reason), (500, None));
    assert_eq!(
        unknown.message,
        "failed to create typed patch object (/web; /v1, Kind=Service): .spec.foo: field not declared in schema"
    );
    let mut config = web(&json!({}), &json!({}));
    config.put("metadata.managedFields", json!([]));
    assert_eq!(message(&config).message, "metadata.managedFields must be nil");
    assert_eq!(message(&json!({"metadata": {}})).message, "invalid object type: /, Kind=");
    let kind = json!({"apiVersion": "apps/v1", "kind": "Service"});
    assert_eq!(message(&kind).message, "invalid object type: apps/v1, Kind=Service");
}

#[test]
fn objects_without_a_record_get_one_before_the_first_apply() {
    let live = json!({"metadata": {"name": "web", "uid": "1", "labels": {"a": "1"}}, "spec": {"type": "NodePort"}});
    let conflict = refusal(&live, &web(&json!({"a": "2"}), &json!({})), "m1");
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .metadata.labels.a"
    );
    let next = applied(Some(&live), &web(&json!({"b": "2"}), &json!({})), "m1");
    let before = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:type": {}}});
    assert_eq!(fields_of(&next, "before-first-apply"), &before);
}

#[test]
fn kubectl_takes_over_what_it_had_applied_on_the_clients_side() {
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let config = web(&json!({"a": "1", "b": "1"}), &json!({}));
    let mut object = config.clone();
    object["metadata"]["annotations"] = json!({ANNOTATION: config.to_string()});
    let live = tracked(None, object, &by("kubectl-client-side-apply"), NOW);
    let changed = web(&json!({"a": "<2>", "b": "1"}), &json!({}));
    let next = applied(Some(&live), &changed, "kubectl");
    assert_eq!(next.text("metadata.labels.a"), "<2>");
    let written = next["metadata"]["annotations"][ANNOTATION].as_str().expect("kept");
    assert_eq!(
        written,
        "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"labels\":{\"a\":\"\\u003c2\\u003e\",\"b\":\"1\"},\
         \"name\":\"web\"},\"spec\":{}}\n"
    );
    assert_eq!(refusal(&live, &changed, "other").code, 409);
    let live = tracked(
        Some(&live),
        {
            let mut new = live.clone();
            new.put("metadata.labels.b", "9");
            new
        },
        &by("edit"),
        NOW,
    );
    let both = refusal(&live, &web(&json!({"a": "2", "b": "2"}), &json!({})), "kubectl");
    assert_eq!(both.message, "Apply failed with 1 conflict: conflict with \"edit\" using v1: .metadata.labels.b");
}

#[test]
fn list_items_keep_the_order_of_both_sides() {
    let finalizers = |names: &str| -> Value { names.chars().map(|name| Value::from(name.to_string())).collect() };
    let meta = |names: &str| json!({"finalizers": finalizers(names)});
    let node = Node::Message(schema::named("meta.ObjectMeta"));
    for (live, config, merged) in [
        ("ab", "c", "abc"),
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("abcd", "db", "acdb"),
        ("abc", "xcya", "bxcya"),
        ("abcdef", "fxa", "bcdefxa"),
        ("", "ba", "ba"),
        ("ab", "", "ab"),
        ("aab", "b", "aab"),
        ("aab", "a", "ab"),
    ] {
        let out = merge::merge(node, &meta(live), &meta(config)).expect("merged");
        assert_eq!(out.at("finalizers"), &finalizers(merged), "{live} + {config}");
    }
}

#[test]
fn nulls_clear_values_but_not_lists() {
    let live = applied(None, &web(&json!({"a": "1"}), &json!({"ports": [{"port": 80}], "type": "NodePort"})), "m");
    let config = web(&json!({"a": null}), &json!({"ports": null, "type": null}));
    let next = applied(Some(&live), &config, "m");
    assert_eq!(next.at("metadata.labels"), &json!({"a": ""}));
    assert!(!next.has("spec.type") && !next.has("spec.ports"), "no longer applied, so taken out");
    let other = apply(service(), Some(&live), &web(&json!({}), &json!({"ports": null})), &by("x"), false, NOW);
    assert_eq!(other.expect("applied").items("spec.ports").len(), 1);
}

#[test]
fn live_duplicates_are_tolerated_and_one_field() {
    let twice = json!({"finalizers": ["a", "a", "b"], "name": "web"});
    let live = tracked(None, json!({"metadata": twice}), &by("m"), NOW);
    let fields = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}, "v:\"b\"": {}}}});
    assert_eq!(fields_of(&live, "m"), &fields);
    let mut once = live.clone();
    once.put("metadata.finalizers", json!(["a", "b"]));
    let once = tracked(Some(&live), once, &by("m2"), NOW);
    assert_eq!(fields_of(&once, "m2"), &json!({"f:metadata": {"f:finalizers": {"v:\"a\"": {}}}}));
}

#[test]
fn times_alone_are_no_change() {
    let live = tracked(None, web(&json!({"a": "1"}), &json!({})), &by("m"), NOW);
    let mut renewed = live.clone();
    renewed["metadata"]["managedFields"][0]["time"] = LATER.into();
    let mut new = renewed.clone();
    assert!(revert_times(&live, &mut new));
    assert_eq!(new, live);
    renewed.put("spec.type", "NodePort");
    let kept = renewed.clone();
    assert!(!revert_times(&live, &mut renewed));
    assert_eq!(renewed, kept);
}

#[test]
fn an_event_of_the_other_version_shares_its_record() {
    let event = json!({"metadata": {"name": "e", "uid": "1"}, "message": "a", "type": "Normal"});
    let mut core = event;
    track_update(schema::named("core.Event"), None, &mut core, &by("m"), NOW);
    let mut new = json!({"metadata": {"name": "e", "uid": "1"}, "note": "b", "type": "Normal"});
    let live = json!({
        "metadata": core["metadata"], "note": "a", "type": "Normal",
    });
    let manager = Manager { name: "n", api_version: "events.k8s.io/v1", subresource: "" };
    track_update(schema::named("events.Event"), Some(&live), &mut new, &manager, NOW);
    assert_eq!(fields_of(&new, "n"), &json!({"f:note": {}}));
    assert!(!fields_of(&new, "m").has("f:message") && fields_of(&new, "m").has("f:type"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![0, 1, 80, -1]).prop_map(Value::from),
        Just(json!(1.5)),
        prop::sample::select(vec!["", "a", "TCP", "v1", "Service"]).prop_map(Value::from),
    ];
    let names = vec![
        "metadata",
        "spec",
        "status",
        "ports",
        "port",
        "protocol",
        "labels",
        "a",
        "finalizers",
        "ownerReferences",
        "uid",
        "managedFields",
        "selector",
        "conditions",
        "type",
        "sessionAffinityConfig",
        "clientIP",
        "targetPort",
        "loadBalancer",
        "f:spec",
        "k:{}",
        ".",
        "fieldsV1",
        "operation",
    ];
    scalar.prop_recursive(6, 60, 5, move |inner| {
        let names = prop::sample::select(names.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Value>()),
        ]
    })
}

fn config() -> impl Strategy<Value = Value> {
    let port = (
        prop::sample::select(vec![80, 81, 82]),
        prop::option::of(prop::sample::select(vec!["TCP", "UDP"])),
        any::<bool>(),
    );
    let ports = prop::collection::vec(port, 0..4).prop_map(|ports| {
        let mut seen = Vec::new();
        let mut out = Vec::new();
        for (port, protocol, named) in ports {
            if seen.contains(&(port, protocol.unwrap_or("TCP"))) {
                continue;
            }
            seen.push((port, protocol.unwrap_or("TCP")));
            let mut item = json!({"port": port});
            if let Some(protocol) = protocol {
                item.put("protocol", protocol);
            }
            if named {
                item.put("name", format!("p{port}"));
            }
            out.push(item);
        }
        Value::from(out)
    });
    let labels = prop::collection::btree_map(
        prop::sample::select(vec!["a", "b", "c"]),
        prop::sample::select(vec!["", "1", "2"]),
        0..3,
    );
    let finalizers = prop::collection::btree_set(prop::sample::select(vec!["x/a", "x/b", "x/c"]), 0..3);
    (labels, finalizers, ports, prop::option::of(Just("NodePort"))).prop_map(|(labels, finalizers, ports, kind)| {
        let mut out = web(&json!(labels), &json!({"ports": ports}));
        out.put("metadata.finalizers", json!(finalizers));
        if let Some(kind) = kind {
            out.put("spec.type", kind);
        }
        out
    })
}

/// The object as the server would keep it: defaults filled in.
fn served(mut object: Value) -> Value {
    for port in object.items_mut("spec.ports") {
        port.put("targetPort", port.at("port").clone());
    }
    object
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in config(), second in config()) {
        let live = served(apply(service(), None, &first, &by("m1"), false, NOW).expect("applied"));
        let live = served(apply(service(), Some(&live), &second, &by("m2"), true, NOW).expect("forced"));
        let again = apply(service(), Some(&live), &second, &by("m2"), false, NOW).expect("no conflict");
        prop_assert_eq!(&served(again), &live);
        // Giving up everything leaves what the other manager still owns.
        let none = web(&json!({}), &json!({}));
        let rest = apply(service(), Some(&live), &none, &by("m2"), false, NOW).expect("no conflict");
        prop_assert_eq!(fields_of(&rest, "m1"), fields_of(&live, "m1"));
    }

    #[test]
    fn nothing_a_client_sends_makes_it_panic(live in any_json(), new in any_json(), force in any::<bool>()) {
        let _ = apply(service(), Some(&live), &new, &by("m"), force, NOW);
        let mut typed = new.clone();
        if typed.is_object() {
            typed.put("apiVersion", "v1");
            typed.put("kind", "Service");
        }
        let _ = apply(service(), Some(&live), &typed, &by("m"), force, NOW);
        let _ = apply(service(), None, &typed, &by("kubectl"), force, NOW);
        for manager in [by(""), on_status("m")] {
            let mut object = new.clone();
            track_update(service(), Some(&live), &mut object, &manager, NOW);
            let mut object = new.clone();
            track_update(service(), None, &mut object, &manager, NOW);
        }
        let mut object = new;
        revert_times(&live, &mut object);
    }
}
