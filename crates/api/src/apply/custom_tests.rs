//! Ownership of custom resources: the cases recorded from a kube-apiserver, and what their schemas can say.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::structural::{Additional, ListType, Structural, Type};

const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:05:05Z";

/// The part of a schema that ownership depends on.
fn structural(schema: &Value) -> Structural {
    let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let ty = match schema.text("type") {
        "array" => Some(Type::Array),
        "boolean" => Some(Type::Boolean),
        "integer" => Some(Type::Integer),
        "number" => Some(Type::Number),
        "object" => Some(Type::Object),
        "string" => Some(Type::String),
        _ => None,
    };
    let list = match schema.text("x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map(schema.texts("x-kubernetes-list-map-keys").into_iter().map(Into::into).collect()),
        _ => ListType::Atomic,
    };
    let mut out = Structural {
        ty,
        list,
        default: schema.get("default").cloned(),
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        atomic_map: schema.text("x-kubernetes-map-type") == "atomic",
        items: schema.get("items").map(|items| Box::new(structural(items))),
        additional: match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Any,
            Some(schema) => Additional::Schema(Box::new(structural(schema))),
            None => Additional::None,
        },
        ..Structural::default()
    };
    schema.text("format").clone_into(&mut out.checks.format);
    for (name, schema) in schema.map("properties").into_iter().flatten() {
        out.properties.insert(name.as_str().into(), structural(schema));
    }
    out
}

fn kind_of(schema: &Value) -> CustomType {
    CustomType {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        kind: "Widget".to_owned(),
        schema: Arc::new(structural(schema)),
        has_status: false,
        versions: BTreeMap::new(),
        by_webhook: false,
    }
}

/// The kind of most recorded cases.
fn widget() -> CustomType {
    let string = json!({"type": "string"});
    let port = json!({
        "type": "object", "required": ["port"],
        "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": string},
    });
    kind_of(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"},
        "color": string,
        "tags": {"type": "array", "items": string},
        "set": {"type": "array", "items": string, "x-kubernetes-list-type": "set"},
        "ports": {
            "type": "array", "items": port,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        },
        "labels": {"type": "object", "additionalProperties": string},
        "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}},
        "atom": {"type": "object", "properties": {"a": string, "b": string}, "x-kubernetes-map-type": "atomic"},
        "free": {"type": "object"},
        "when": {"type": "string", "format": "date-time"},
        "on": {"type": "boolean", "nullable": true},
    }}}}))
}

/// `status` beside `spec`, with the subresource.
fn with_status() -> CustomType {
    let fields = json!({"type": "object", "properties": {"a": {"type": "string"}, "phase": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": fields, "status": fields, "data": fields}});
    CustomType { has_status: true, ..kind_of(&schema) }
}

fn by(name: &str) -> Manager<'_> {
    Manager { name, api_version: "example.com/v1", subresource: "" }
}

fn on_status(name: &str) -> Manager<'_> {
    Manager { subresource: "status", ..by(name) }
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec})
}

/// A plain write, as the server would store it.
fn tracked(ty: &CustomType, live: Option<&Value>, mut new: Value, manager: &Manager<'_>) -> Value {
    track_update(ty, live, &mut new, manager, NOW);
    new.put("metadata.uid", "1");
    new.put("metadata.creationTimestamp", NOW);
    new.put("metadata.generation", 1);
    new
}

fn applied(ty: &CustomType, live: Option<&Value>, config: &Value, name: &str) -> Value {
    apply(ty, live, config, &by(name), false, NOW).expect("applied")
}

fn refused(ty: &CustomType, live: Option<&Value>, config: &Value, name: &str) -> Status {
    apply(ty, live, config, &by(name), false, NOW).expect_err("refused")
}

/// Who owns what: `(manager, fieldsV1)` of each entry.
fn owners(object: &Value) -> Vec<(&str, &Value)> {
    let entries = object.items("metadata.managedFields").iter();
    entries.map(|entry| (entry.text("manager"), entry.at("fieldsV1"))).collect()
}

#[test]
fn a_create_owns_its_members_and_nothing_that_identifies() {
    let ty = widget();
    let spec = json!({
        "size": 1, "tags": ["x"], "set": ["s"], "ports": [{"port": 1, "protocol": "TCP"}], "labels": {"k": "v"},
        "limits": {"cpu": 1, "memory": "1Gi"}, "atom": {"a": "1"}, "free": {"x": {"y": [1]}}, "on": null,
    });
    let mut new = object(&spec);
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    new["metadata"] = json!({
        "name": "a", "labels": {"l": "1"}, "finalizers": ["example.com/hold"], "ownerReferences": [reference],
    });
    let made = tracked(&ty, None, new, &by("m"));
    let entry = json!({
        "manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "time": NOW, "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {
                "f:labels": {".": {}, "f:l": {}},
                "f:finalizers": {".": {}, "v:\"example.com/hold\"": {}},
                "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}},
            },
            "f:spec": {
                ".": {}, "f:size": {}, "f:tags": {}, "f:set": {".": {}, "v:\"s\"": {}}, "f:atom": {}, "f:on": {},
                "f:ports": {".": {}, "k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}}},
                "f:labels": {".": {}, "f:k": {}}, "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}},
                "f:free": {".": {}, "f:x": {".": {}, "f:y": {}}},
            },
        },
    });
    assert_eq!(made.at("metadata.managedFields"), &json!([entry]));
}

#[test]
fn an_update_takes_what_it_changes_and_forgets_what_it_removes() {
    let ty = widget();
    let made = tracked(&ty, None, object(&json!({"size": 1, "color": "red", "labels": {"a": "1"}})), &by("m1"));
    let mut new = made.clone();
    new["spec"] = json!({"size": 2, "labels": {"a": "1", "b": "2"}, "tags": ["z"]});
    let new = tracked(&ty, Some(&made), new, &by("m2"));
    let kept = json!({"f:spec": {".": {}, "f:labels": {".": {}, "f:a": {}}}});
    let gained = json!({"f:spec": {"f:size": {}, "f:tags": {}, "f:labels": {"f:b": {}}}});
    assert_eq!(owners(&new), [("m1", &kept), ("m2", &gained)]);
    let again = tracked(&ty, Some(&new), new.clone(), &by("m3"));
    assert_eq!(again.at("metadata.managedFields"), new.at("metadata.managedFields"));
    let mut bare = new.clone();
    bare.drop_path("spec");
    let bare = tracked(&ty, Some(&new), bare, &by("m3"));
    assert!(!bare.has("metadata.managedFields"), "nobody owns anything");
}

#[test]
fn apply_creates_with_defaulted_keys_and_repeats_without_a_change() {
    let ty = widget();
    let config = object(&json!({"size": 1, "ports": [{"port": 80}]}));
    let mut made = applied(&ty, None, &config, "m1");
    let entry = json!({
        "manager": "m1", "operation": "Apply", "apiVersion": "example.com/v1", "time": NOW, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {
            "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:size": {},
        }},
    });
    assert_eq!(made.at("metadata.managedFields"), &json!([entry]));
    assert_eq!(made.at("spec"), config.at("spec"));
    made["spec"]["ports"][0]["protocol"] = "TCP".into();
    made.put("metadata.uid", "1");
    assert_eq!(apply(&ty, Some(&made), &config, &by("m1"), false, LATER).expect("applied"), made);
}

#[test]
fn a_set_is_shared_by_item() {
    let ty = widget();
    let config = |set: Value| object(&json!({"set": set}));
    let live = applied(&ty, None, &config(json!(["x"])), "m1");
    let live = applied(&ty, Some(&live), &config(json!(["y", "x"])), "m2");
    assert_eq!(live.at("spec"), &json!({"set": ["y", "x"]}));
    let (first, second) =
        (json!({"f:spec": {"f:set": {"v:\"x\"": {}}}}), json!({"f:spec": {"f:set": {"v:\"x\"": {}, "v:\"y\"": {}}}}));
    assert_eq!(owners(&live), [("m1", &first), ("m2", &second)]);
    let next = applied(&ty, Some(&live), &config(json!([])), "m1");
    assert_eq!((owners(&next), next.at("spec")), (vec![("m2", &second)], live.at("spec")));
    let none = applied(&ty, Some(&next), &object(&json!({})), "m2");
    assert!(!none.has("spec.set"), "no longer applied, so taken out");
}

#[test]
fn lists_and_objects_that_are_one_value_conflict_as_one() {
    let ty = widget();
    for (spec, other, path) in [
        (json!({"tags": ["x"]}), json!({"tags": ["y"]}), ".spec.tags"),
        (json!({"atom": {"a": "1"}}), json!({"atom": {"b": "1"}}), ".spec.atom"),
        (json!({"labels": {"a": "1"}}), json!({"labels": {"a": "2"}}), ".spec.labels.a"),
        (json!({"limits": {"a": 1}}), json!({"limits": {"a": "1"}}), ".spec.limits.a"),
    ] {
        let live = applied(&ty, None, &object(&spec), "m1");
        let conflict = refused(&ty, Some(&live), &object(&other), "m2");
        assert_eq!(conflict.message, format!("Apply failed with 1 conflict: conflict with \"m1\": {path}"));
        let forced = apply(&ty, Some(&live), &object(&other), &by("m2"), true, NOW).expect("forced");
        assert_eq!(forced.at("spec"), &other);
        assert_eq!(owners(&forced).iter().map(|owner| owner.0).collect::<Vec<_>>(), ["m2"]);
    }
}

#[test]
fn granular_objects_are_shared_by_member() {
    let ty = widget();
    let live = applied(&ty, None, &object(&json!({"labels": {"a": "1"}, "free": {"x": {"y": 1}}})), "m1");
    let live = applied(&ty, Some(&live), &object(&json!({"labels": {"b": "1"}, "free": {"x": {"z": 1}}})), "m2");
    assert_eq!(live.at("spec"), &json!({"labels": {"a": "1", "b": "1"}, "free": {"x": {"y": 1, "z": 1}}}));
    let first = json!({"f:spec": {"f:labels": {"f:a": {}}, "f:free": {"f:x": {".": {}, "f:y": {}}}}});
    assert_eq!(owners(&live)[0], ("m1", &first));
    let next = applied(&ty, Some(&live), &object(&json!({})), "m1");
    assert_eq!(next.at("spec"), &json!({"labels": {"b": "1"}, "free": {"x": {"z": 1}}}));
}

#[test]
fn items_of_a_map_list_are_shared_by_key() {
    let ty = widget();
    let live = applied(&ty, None, &object(&json!({"ports": [{"port": 80, "name": "a"}, {"port": 81}]})), "m1");
    let live = applied(&ty, Some(&live), &object(&json!({"ports": [{"port": 80, "protocol": "TCP"}]})), "m2");
    let next = applied(&ty, Some(&live), &object(&json!({"ports": [{"port": 82}]})), "m1");
    assert_eq!(next.at("spec.ports"), &json!([{"port": 80, "protocol": "TCP"}, {"port": 82}]));
    let conflict = refused(&ty, Some(&live), &object(&json!({"ports": [{"port": 80, "name": "b"}]})), "m3");
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"m1\": .spec.ports[port=80,protocol=\"TCP\"].name"
    );
}

#[test]
fn apply_conflicts_with_a_field_written_by_an_update() {
    let ty = widget();
    let live = tracked(&ty, None, object(&json!({"size": 1})), &by("upd"));
    let conflict = refused(&ty, Some(&live), &object(&json!({"size": 2})), "m1");
    assert_eq!(
        conflict.message,
        "Apply failed with 1 conflict: conflict with \"upd\" using example.com/v1: .spec.size"
    );
    let shared = applied(&ty, Some(&live), &object(&json!({"size": 1})), "m1");
    let (apply, update) = (json!({"f:spec": {"f:size": {}}}), json!({"f:spec": {".": {}, "f:size": {}}}));
    assert_eq!(owners(&shared), [("m1", &apply), ("upd", &update)]);
}

#[test]
fn what_does_not_fit_the_schema_is_refused() {
    let ty = widget();
    for (spec, why) in [
        (json!({"size": 1, "shape": "x"}), ".spec.shape: field not declared in schema"),
        (json!({"size": "x"}), ".spec.size: expected numeric (int or float), got string"),
        (json!({"color": 1}), ".spec.color: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"when": {}}), ".spec.when: expected any scalar, got &{map[]}"),
        (json!({"limits": {"a": "b"}, "on": 1}), ".spec.on: expected boolean, got &{1}"),
        (json!({"tags": {"a": 1}}), ".spec.tags: expected list, got &{map[a:1]}"),
        (json!({"tags": ["a", 1]}), ".spec.tags[1]: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"atom": {"c": "1"}}), ".spec.atom.c: field not declared in schema"),
        (json!({"labels": ["a"]}), ".spec.labels: expected map, got &{[a]}"),
        (json!({"set": ["a", "a"]}), ".spec.set: duplicate entries for key [=\"a\"]"),
        (
            json!({"ports": [{"port": 80}, {"port": 80}]}),
            ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
        ),
        (
            json!({"ports": [{"port": 80, "odd": 1}]}),
            ".spec.ports[port=80,protocol=\"TCP\"].odd: field not declared in schema",
        ),
    ] {
        let refusal = refused(&ty, None, &object(&spec), "m1");
        let message = format!("failed to create typed patch object (/a; example.com/v1, Kind=Widget): {why}");
        assert_eq!((refusal.code, refusal.message), (500, message));
    }
    let mut config = object(&json!({}));
    config["metadata"]["odd"] = 1.into();
    assert!(refused(&ty, None, &config, "m").message.ends_with(": .metadata.odd: field not declared in schema"));
    let other = json!({"apiVersion": "example.com/v2", "kind": "Widget"});
    assert_eq!(refused(&ty, None, &other, "m").message, "invalid object type: example.com/v2, Kind=Widget");
    let fits = json!({"when": 5, "limits": {"a": 1, "b": "2"}, "on": null, "free": {"a": [{}, null]}, "tags": null});
    applied(&ty, None, &object(&fits), "m1");
}

#[test]
fn where_unknown_fields_are_kept_objects_are_granular_and_lists_are_one_value() {
    let inner = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let spec = json!({
        "type": "object", "properties": {"a": {"type": "string"}, "inner": inner},
        "x-kubernetes-preserve-unknown-fields": true,
    });
    let ty = kind_of(&json!({"type": "object", "properties": {"spec": spec}}));
    let config = object(&json!({"a": "1", "deep": {"x": [1, 2], "y": {"z": true}}, "inner": {"b": 1}}));
    let live = applied(&ty, None, &config, "m1");
    let first = json!({"f:spec": {
        "f:a": {}, "f:deep": {".": {}, "f:x": {}, "f:y": {".": {}, "f:z": {}}}, "f:inner": {"f:b": {}},
    }});
    assert_eq!(owners(&live), [("m1", &first)]);
    let live = applied(&ty, Some(&live), &object(&json!({"deep": {"y": {"q": 1}}})), "m2");
    let second = json!({"f:spec": {"f:deep": {".": {}, "f:y": {".": {}, "f:q": {}}}}});
    assert_eq!(owners(&live), [("m1", &first), ("m2", &second)]);
    assert_eq!(live.at("spec.deep"), &json!({"x": [1, 2], "y": {"q": 1, "z": true}}));
    let next = applied(&ty, Some(&live), &object(&json!({"a": "1"})), "m1");
    assert_eq!(next.at("spec"), &json!({"a": "1", "deep": {"y": {"q": 1}}}));
}

#[test]
fn a_value_without_a_type_may_change_its_type() {
    let ty =
        kind_of(&json!({"type": "object", "properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true}}}));
    let values = [json!({"a": {"b": 1}}), json!([1]), json!("text"), json!({"a": 1}), Value::Null];
    for old in &values {
        let live = tracked(&ty, None, object(&json!({"v": old})), &by("m1"));
        for new in values.iter().filter(|new| *new != old) {
            let mut changed = live.clone();
            changed["spec"]["v"] = new.clone();
            let changed = tracked(&ty, Some(&live), changed, &by("m2"));
            let fresh = tracked(&ty, None, object(&json!({"v": new})), &by("m1"));
            let owned = owners(&changed)
                .into_iter()
                .fold(Set::default(), |all, (_, fields)| all.union(Set::decode(fields).expect("a set")));
            assert_eq!(&owned.encode(), owners(&fresh)[0].1, "{old} to {new}");
            let forced = apply(&ty, Some(&live), &object(&json!({"v": new})), &by("m2"), true, NOW).expect("forced");
            if !(new.is_null() || old.is_object() && new.is_object()) {
                assert_eq!(forced.at("spec.v"), new, "{old} to {new}");
            }
        }
    }
}

#[test]
fn embedded_objects_have_typed_metadata() {
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}},
    });
    let ty = kind_of(&json!({"type": "object", "properties": {"template": embedded}}));
    let config = |metadata: Value| {
        let template = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"a": 1}});
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "template": template})
    };
    let live = applied(&ty, None, &config(json!({"labels": {"a": "1"}, "finalizers": ["x"]})), "m");
    let fields = json!({"f:template": {
        "f:apiVersion": {}, "f:kind": {}, "f:spec": {"f:a": {}},
        "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
    }});
    assert_eq!(owners(&live), [("m", &fields)]);
    let odd = refused(&ty, None, &config(json!({"odd": 1})), "m");
    assert!(odd.message.ends_with(": .template.metadata.odd: field not declared in schema"), "{}", odd.message);
}

#[test]
fn status_is_owned_through_its_subresource() {
    let ty = with_status();
    let mut full = object(&json!({"a": "1"}));
    full.put("status", json!({"phase": "x"}));
    let (spec, status) = (json!({"f:spec": {".": {}, "f:a": {}}}), json!({"f:status": {".": {}, "f:phase": {}}}));
    let mut live = tracked(&ty, None, full.clone(), &by("m"));
    assert_eq!(owners(&live), [("m", &spec)]);
    live.drop_path("status");
    full["spec"]["a"] = "2".into();
    full["metadata"]["labels"] = json!({"a": "1"});
    let written = tracked(&ty, Some(&live), full.clone(), &on_status("m"));
    assert_eq!(owners(&written), [("m", &spec), ("m", &status)]);
    assert_eq!(written.items("metadata.managedFields")[1].text("subresource"), "status");
    let without = CustomType { has_status: false, ..with_status() };
    let made = tracked(&without, None, full, &by("m"));
    assert!(owners(&made)[0].1.has("f:status.f:phase"), "status is a field like any other");
}

#[test]
fn an_apply_of_status_changes_nothing_else() {
    let ty = with_status();
    let live = applied(&ty, None, &object(&json!({"a": "1"})), "m1");
    let config = |phase: &str| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"a": "2"}, "data": {"a": "3"}, "status": {"phase": phase},
        })
    };
    let next = apply(&ty, Some(&live), &config("up"), &on_status("m2"), false, NOW).expect("applied");
    assert_eq!((next.at("spec"), next.at("data"), next.text("status.phase")), (live.at("spec"), &Value::Null, "up"));
    assert_eq!(owners(&next)[0], ("m1", &json!({"f:spec": {"f:a": {}}})));
    assert!(owners(&next)[1].1.has("f:status.f:phase") && !owners(&next)[1].1.has("f:spec"));
    let conflict = apply(&ty, Some(&next), &config("down"), &on_status("m3"), false, NOW).expect_err("a conflict");
    assert_eq!(
        conflict.message,
        "Apply failed with 2 conflicts: conflicts with \"m2\" with subresource \"status\":\n- .data.a\n- .status.phase"
    );
    let main = apply(&ty, Some(&next), &config("down"), &by("m1"), true, NOW).expect("applied");
    assert_eq!((main.text("status.phase"), main.text("spec.a")), ("up", "2"));
}

#[test]
fn versions_share_their_owners() {
    let schema = |fields: Value| {
        let spec = json!({"type": "object", "properties": fields});
        Arc::new(structural(&json!({"type": "object", "properties": {"spec": spec}})))
    };
    let string = json!({"type": "string"});
    let (v1, beta) = (schema(json!({"a": string})), schema(json!({"a": string, "b": string})));
    let versions: BTreeMap<String, Arc<Structural>> =
        [("v1".to_owned(), Arc::clone(&v1)), ("v1beta1".to_owned(), Arc::clone(&beta))].into();
    let stable = CustomType { schema: v1, versions: versions.clone(), ..widget() };
    let beta = CustomType { schema: beta, versions, version: "v1beta1".to_owned(), ..widget() };
    let in_beta = |name| Manager { api_version: "example.com/v1beta1", ..by(name) };
    let config = |spec: Value| {
        let mut config = object(&spec);
        config.put("apiVersion", "example.com/v1beta1");
        config
    };
    let live = applied(&stable, None, &object(&json!({"a": "1"})), "m1");
    let refusal = apply(&beta, Some(&live), &config(json!({"b": "2"})), &in_beta("m2"), false, NOW);
    let refusal = refusal.expect_err("not in the schema of m1");
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (500, "failed to convert new object: .spec.b: field not declared in schema")
    );
    let live = apply(&beta, Some(&live), &config(json!({"a": "1"})), &in_beta("m2"), false, LATER).expect("shared");
    let entries = live.items("metadata.managedFields");
    let versions: Vec<(&str, bool)> =
        entries.iter().map(|entry| (entry.text("apiVersion"), entry.has("time"))).collect();
    assert_eq!(versions, [("example.com/v1beta1", false), ("example.com/v1", true)]);
    assert!(entries.iter().all(|entry| entry.at("fieldsV1") == &json!({"f:spec": {"f:a": {}}})));
    // A version that is no longer defined is forgotten.
    let alone = CustomType { versions: BTreeMap::new(), ..stable };
    let next = applied(&alone, Some(&live), &object(&json!({"a": "2"})), "m1");
    assert_eq!(owners(&next), [("m1", &json!({"f:spec": {"f:a": {}}}))]);
}

/// A path of one version leads nowhere in another one, except in metadata.
#[test]
fn owners_in_versions_that_a_webhook_converts_keep_their_fields() {
    let schema = |field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}, "both": {"type": "string"}}});
        Arc::new(structural(&json!({"type": "object", "properties": {"spec": spec}})))
    };
    let (v1, v2) = (schema("old"), schema("new"));
    let versions: BTreeMap<String, Arc<Structural>> =
        [("v1".to_owned(), Arc::clone(&v1)), ("v2".to_owned(), Arc::clone(&v2))].into();
    let old = CustomType { schema: v1, versions: versions.clone(), by_webhook: true, ..widget() };
    let new = CustomType { schema: v2, versions, by_webhook: true, version: "v2".to_owned(), ..widget() };
    let mut config = object(&json!({"old": "1", "both": "1"}));
    config.put("metadata.labels", json!({"app": "a"}));
    let mut live = applied(&old, None, &config, "m1");
    live.put("apiVersion", "example.com/v2");
    live.put("spec", json!({"new": "1", "both": "1"}));
    let in_v2 = |name| Manager { api_version: "example.com/v2", ..by(name) };
    let mut change = object(&json!({"new": "2", "both": "2"}));
    change.put("apiVersion", "example.com/v2");
    let next = apply(&new, Some(&live), &change, &in_v2("m2"), false, LATER).expect("no conflict");
    assert_eq!(owners(&next)[0], owners(&live)[0], "m1 owns what it owned");
    assert_eq!(owners(&next)[1], ("m2", &json!({"f:spec": {"f:both": {}, "f:new": {}}})));
    change.put("metadata.labels", json!({"app": "b"}));
    let conflict = apply(&new, Some(&next), &change, &in_v2("m2"), false, LATER).expect_err("a conflict");
    assert!(conflict.message.contains(".metadata.labels.app"), "{}", conflict.message);
    let mut update = next.clone();
    update.put("spec.new", "3");
    let tracked = tracked(&new, Some(&next), update, &in_v2("m3"));
    assert_eq!(owners(&tracked).len(), 3);
}

#[test]
fn a_list_that_became_one_value_is_owned_as_one() {
    let live = applied(&widget(), None, &object(&json!({"set": ["x", "y"], "labels": {"a": "1"}})), "m1");
    let mut ty = widget();
    let spec = Arc::make_mut(&mut ty.schema).properties.get_mut("spec").expect("spec");
    spec.properties.get_mut("set").expect("set").list = ListType::Atomic;
    spec.properties.get_mut("labels").expect("labels").atomic_map = true;
    let next = applied(&ty, Some(&live), &object(&json!({"size": 1})), "m2");
    assert_eq!(owners(&next)[0], ("m1", &json!({"f:spec": {"f:set": {}, "f:labels": {}}})));
}

#[test]
fn an_object_that_no_longer_fits_keeps_its_record_and_cannot_be_applied_to() {
    let live = tracked(&widget(), None, object(&json!({"size": 1})), &by("m1"));
    let mut ty = widget();
    let spec = Arc::make_mut(&mut ty.schema).properties.get_mut("spec").expect("spec");
    spec.properties.get_mut("size").expect("size").ty = Some(Type::String);
    let mut new = live.clone();
    new["spec"] = json!({"size": "1"});
    let new = tracked(&ty, Some(&live), new, &by("m2"));
    assert_eq!(new.at("metadata.managedFields"), live.at("metadata.managedFields"));
    assert_eq!(
        refused(&ty, Some(&live), &object(&json!({"size": "2"})), "m2").message,
        "failed to create typed live object (/a; example.com/v1, Kind=Widget): .spec.size: expected string, got \
         &value.valueUnstructured{Value:1}"
    );
}

#[test]
fn large_objects_are_tracked() {
    let ty = widget();
    let entries = |count: usize, text: &str| -> Value {
        (0..count).map(|index| (format!("key-{index:06}"), Value::from(text))).collect::<Map<_, _>>().into()
    };
    let ports = |count: usize| -> Value { (0..count).map(|port| json!({"port": port, "name": "p"})).collect() };
    let spec = |text: &str| json!({"labels": entries(5000, text), "free": entries(5000, text), "ports": ports(3000)});
    let live = tracked(&ty, None, object(&spec("a")), &by("m1"));
    let changed = apply(&ty, Some(&live), &object(&spec("b")), &by("m2"), true, NOW).expect("forced");
    assert_eq!(changed.at("spec"), &spec("b"));
    assert_eq!(owners(&changed)[0].1.map("f:spec.f:labels").map(Map::len), Some(5000));
    let next = applied(&ty, Some(&changed), &object(&json!({})), "m2");
    assert!(!next.has("spec.labels") && next.items("spec.ports").len() == 3000, "the ports are m1's as well");
}

fn any_spec() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![0, 1, 80]).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "TCP"]).prop_map(Value::from),
    ];
    let names = [
        "spec", "status", "size", "tags", "set", "ports", "port", "protocol", "labels", "limits", "atom", "free", "a",
        "b",
    ];
    scalar.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(names.to_vec()), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_a_client_sends_makes_it_panic(old in any_spec(), new in any_spec(), force in any::<bool>()) {
        let mut preserving = widget();
        Arc::make_mut(&mut preserving.schema).preserve_unknown = true;
        for ty in [widget(), preserving] {
            let live = tracked(&ty, None, object(&old), &by("m1"));
            let mut changed = live.clone();
            changed["spec"] = new.clone();
            tracked(&ty, Some(&live), changed, &by("m2"));
            let _ = apply(&ty, Some(&live), &object(&new), &by("m2"), force, NOW);
        }
    }

    #[test]
    fn applying_again_changes_nothing(old in any_spec(), new in any_spec()) {
        let ty = kind_of(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let live = applied(&ty, None, &object(&old), "m1");
        let live = apply(&ty, Some(&live), &object(&new), &by("m2"), true, NOW).expect("forced");
        let again = apply(&ty, Some(&live), &object(&new), &by("m2"), false, LATER).expect("no conflict");
        prop_assert_eq!(again, live);
    }
}
