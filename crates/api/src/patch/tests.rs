use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema;

const STRICT: FieldValidation = FieldValidation::Strict;

fn run(kind: PatchKind, object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let body = serde_json::to_vec(patch).expect("JSON");
    Patch::parse(kind, &body, STRICT)?.apply(schema::named("core.Service"), object)
}

fn smp(object: &Value, patch: &Value) -> Value {
    run(PatchKind::Strategic, object, patch).expect("applies")
}

fn smp_error(object: &Value, patch: &Value) -> PatchError {
    run(PatchKind::Strategic, object, patch).expect_err("fails")
}

/// A Service with these ports, each named after its number.
fn ports(numbers: &[i64]) -> Value {
    let list: Vec<Value> = numbers.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    json!({"spec": {"ports": list}})
}

fn numbers(object: &Value) -> Vec<i64> {
    let list = object["spec"]["ports"].as_array().expect("ports");
    list.iter().filter_map(|port| port["port"].as_i64()).collect()
}

// === JSON patch ===

#[test]
fn json_operations_change_members_and_items() {
    let object = json!({"a": {"b/c": 1, "~": 2}, "l": [1, 2]});
    let patch = json!([
        {"op": "replace", "path": "/a/b~1c", "value": 3},
        {"op": "test", "path": "/a/~0", "value": 2},
        {"op": "add", "path": "/l/1", "value": 9},
        {"op": "add", "path": "/l/-", "value": 8},
        {"op": "copy", "from": "/l/0", "path": "/first"},
        {"op": "move", "from": "/a/~0", "path": "/tilde"},
        {"op": "remove", "path": "/l/-1"},
    ]);
    let patched = run(PatchKind::Json, &object, &patch);
    assert_eq!(patched, Ok(json!({"a": {"b/c": 3}, "l": [1, 9, 2], "first": 1, "tilde": 2})));
}

#[test]
fn json_patch_departs_from_the_rfc_as_the_original_does() {
    let object = json!({"a": {}, "l": [1, 2]});
    let works = |patch: Value, result: Value| assert_eq!(run(PatchKind::Json, &object, &patch), Ok(result), "{patch}");
    works(json!([{"op": "replace", "path": "/a/new", "value": 1}]), json!({"a": {"new": 1}, "l": [1, 2]}));
    works(json!([{"op": "copy", "from": "/a/none", "path": "/b"}]), json!({"a": {}, "b": null, "l": [1, 2]}));
    works(json!([{"op": "add", "path": "/b"}]), json!({"a": {}, "b": null, "l": [1, 2]}));
    works(json!([{"op": "add", "path": "ignored/b", "value": 1}]), json!({"a": {}, "b": 1, "l": [1, 2]}));
    works(json!([{"op": "replace", "path": "/l/+1", "value": 0}]), json!({"a": {}, "l": [1, 0]}));
    works(json!([{"op": "add", "path": "/l/-1", "value": 3}]), json!({"a": {}, "l": [1, 2, 3]}));
    works(
        json!([{"op": "test", "path": "/a/none", "value": null}, {"op": "test", "path": "", "value": object}]),
        object.clone(),
    );
    works(json!([{"op": "replace", "path": "", "value": {"x": 1}}]), json!({"x": 1}));
    works(json!(null), object.clone());
}

#[test]
fn json_operations_that_do_not_fit_are_unprocessable() {
    let object = json!({"a": {"s": "x"}, "n": null, "l": [1]});
    for operation in [
        json!({"op": "remove", "path": "/a/none"}),
        json!({"op": "remove", "path": "/l/1"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "replace", "path": "/l/5", "value": 1}),
        json!({"op": "replace", "path": "", "value": 1}),
        json!({"op": "add", "path": "/none/x", "value": 1}),
        json!({"op": "add", "path": "/a/s/x", "value": 1}),
        json!({"op": "add", "path": "/n/x", "value": 1}),
        json!({"op": "add", "path": "/l/3", "value": 1}),
        json!({"op": "add", "path": "/l/-3", "value": 1}),
        json!({"op": "add", "value": 1}),
        json!({"op": "move", "from": "/a/none", "path": "/x"}),
        json!({"op": "test", "path": "/a/s", "value": "y"}),
        json!({"op": "frob", "path": "/a"}),
        json!({"path": "/a"}),
        json!(null),
    ] {
        let error = run(PatchKind::Json, &object, &json!([operation])).expect_err("fails");
        assert_eq!(error.into_status(), Status::unprocessable_patch(), "{operation}");
    }
}

#[test]
fn json_patches_of_another_shape_are_refused() {
    let words = |body: Value, validation| {
        let patch = Patch::parse(PatchKind::Json, body.to_string().as_bytes(), validation).expect("JSON");
        let status = patch.apply(schema::named("core.Service"), &json!({})).expect_err("fails").into_status();
        (status.code, status.message)
    };
    let start = "error decoding patch: json: cannot unmarshal";
    assert_eq!(words(json!({}), STRICT), (400, format!("{start} object into Go value of type []handlers.jsonPatchOp")));
    assert_eq!(words(json!([1]), STRICT), (400, format!("{start} number into Go value of type handlers.jsonPatchOp")));
    assert_eq!(
        words(json!([{"op": 1}]), STRICT),
        (400, format!("{start} number into Go struct field jsonPatchOp.op of type string"))
    );
    let unchecked = "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned();
    assert_eq!(words(json!({}), FieldValidation::Ignore), (400, unchecked));
    let many = Value::from(vec![json!({"op": "test", "path": "/x", "value": null}); 10_001]);
    assert_eq!(
        words(many, STRICT),
        (
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
        )
    );
    assert_eq!(
        Patch::parse(PatchKind::Json, b"[{\"op\":", STRICT).expect_err("fails").into_status(),
        Status::bad_request("invalid JSON patch")
    );
}

#[test]
fn json_patches_cannot_grow_without_bound() {
    let doubling = vec![json!({"op": "copy", "from": "/a", "path": "/a/x"}); 64];
    let wide = json!({"a": {"text": "x".repeat(1 << 16)}});
    assert_eq!(run(PatchKind::Json, &wide, &doubling.into()), Err(PatchError::Unprocessable("copies too much")));

    let mut nesting = Vec::new();
    for _ in 0..4000 {
        nesting.push(json!({"op": "add", "path": "/b", "value": {}}));
        nesting.push(json!({"op": "move", "from": "/a", "path": "/b/x"}));
        nesting.push(json!({"op": "move", "from": "/b", "path": "/a"}));
    }
    let nesting = Value::from(nesting[..9999].to_vec());
    assert_eq!(run(PatchKind::Json, &json!({"a": 1}), &nesting), Err(PatchError::Unprocessable("too deep")));

    let there_and_back: Vec<Value> = (0..5000)
        .flat_map(|_| {
            let there = json!({"op": "move", "from": "/a", "path": "/b/c/d"});
            [there, json!({"op": "move", "from": "/b/c/d", "path": "/a"})]
        })
        .collect();
    let object = json!({"a": 1, "b": {"c": {}}});
    assert_eq!(run(PatchKind::Json, &object, &there_and_back.into()), Ok(object));
}

// === merge patch ===

#[test]
fn merge_sets_removes_and_replaces() {
    let object = json!({"labels": {"a": "1", "b": "2"}, "ports": [1, 2], "x": {"y": 1}});
    let patch = json!({"labels": {"a": null, "c": "3"}, "ports": [3], "x": [null, {"n": null}], "new": {"n": null, "l": [{"n": null}]}});
    let patched = run(PatchKind::Merge, &object, &patch);
    // Nulls stay where a list replaces an object, and go everywhere else: so does kube-apiserver.
    let expected = json!({"labels": {"b": "2", "c": "3"}, "ports": [3], "x": [null, {"n": null}], "new": {"l": [{}]}});
    assert_eq!(patched, Ok(expected));
}

#[test]
fn merge_patches_of_another_shape_are_refused() {
    let answer = |body: &str, validation| {
        let patch = Patch::parse(PatchKind::Merge, body.as_bytes(), validation).expect("JSON");
        patch.apply(schema::named("core.Service"), &json!({"a": 1})).map_err(|error| error.into_status().message)
    };
    let words = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(answer("[1]", STRICT), Err(words.to_owned()));
    assert_eq!(answer("[1]", FieldValidation::Ignore), Ok(json!([1])));
    assert_eq!(answer("null", STRICT), Err("Invalid JSON Patch".to_owned()));
    assert_eq!(answer("1", FieldValidation::Ignore), Err("Invalid JSON Patch".to_owned()));
}

// === strategic merge patch ===

#[test]
fn keyed_lists_merge_and_new_elements_come_first() {
    let patched = smp(&ports(&[80, 81]), &json!({"spec": {"ports": [{"port": 82}, {"port": 80, "name": "x"}]}}));
    let expected = json!({"spec": {"ports": [{"port": 82}, {"port": 80, "name": "x"}, {"port": 81, "name": "p81"}]}});
    assert_eq!(patched, expected);
    let changed = smp(&ports(&[80, 81]), &json!({"spec": {"ports": [{"port": 81, "name": null}]}}));
    assert_eq!(changed, json!({"spec": {"ports": [{"port": 80, "name": "p80"}, {"port": 81}]}}));
}

#[test]
fn directives_delete_and_replace() {
    let gone = smp(&ports(&[80, 81]), &json!({"spec": {"ports": [{"$patch": "delete", "port": 80}]}}));
    assert_eq!(numbers(&gone), [81]);
    let list = json!({"spec": {"ports": [{"$patch": "replace"}, {"port": 5}]}});
    assert_eq!(numbers(&smp(&ports(&[80, 81]), &list)), [5]);
    let object = json!({"spec": {"selector": {"a": "1"}, "type": "ClusterIP"}, "metadata": {"labels": {"a": "1"}}});
    assert_eq!(
        smp(&object, &json!({"spec": {"selector": {"$patch": "replace", "c": "3"}}}))["spec"]["selector"],
        json!({"c": "3"})
    );
    assert_eq!(smp(&object, &json!({"metadata": {"labels": {"$patch": "delete"}}}))["metadata"]["labels"], json!({}));
    assert_eq!(smp(&object, &json!({"spec": {"$patch": "replace", "x": 1}}))["spec"], json!({"x": 1}));
    // Where there is nothing to replace, the directive and all that stands by it is dropped.
    assert_eq!(smp(&json!({}), &json!({"spec": {"$patch": "replace", "x": 1}, "a": {"b": null}})), json!({"a": {}}));
}

#[test]
fn orders_are_followed() {
    let order = |object: &[i64], wanted: &[i64], change: Value| {
        let wanted: Vec<Value> = wanted.iter().map(|port| json!({"port": port})).collect();
        let mut patch = json!({"spec": {"$setElementOrder/ports": wanted}});
        if !change.is_null() {
            patch["spec"]["ports"] = change;
        }
        numbers(&smp(&ports(object), &patch))
    };
    assert_eq!(order(&[80, 81], &[82, 81, 80], json!([{"port": 82}])), [82, 81, 80]);
    assert_eq!(order(&[80, 81, 83], &[83, 80], Value::Null), [81, 83, 80]);
    assert_eq!(order(&[80, 81, 82], &[82, 81], json!([{"port": 80, "$patch": "delete"}, {"port": 81}])), [82, 81]);
    // A new element takes the memory of a deleted one, and with it a place behind those only the object has.
    let change = json!([{"port": 83}, {"port": 80, "$patch": "delete"}]);
    assert_eq!(order(&[80, 81, 84], &[81, 83], change), [81, 84, 83]);
    let set = json!({"metadata": {"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]}});
    let object = json!({"metadata": {"finalizers": ["a", "b"]}});
    assert_eq!(smp(&object, &set)["metadata"]["finalizers"], json!(["c", "a", "b"]));
}

#[test]
fn scalars_merge_as_a_set() {
    let object = json!({"metadata": {"finalizers": ["a", "z"]}, "spec": {"externalIPs": ["1", "2"]}});
    let merged = smp(&object, &json!({"metadata": {"finalizers": ["b", "a"]}, "spec": {"externalIPs": ["3"]}}));
    assert_eq!(merged["metadata"]["finalizers"], json!(["b", "a", "z"]));
    assert_eq!(merged["spec"]["externalIPs"], json!(["3"]));
    let deleted = smp(&object, &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "q"]}}));
    assert_eq!(deleted["metadata"], json!({"finalizers": ["z"]}));
    let deleted = smp(&object, &json!({"spec": {"$deleteFromPrimitiveList/externalIPs": ["1"]}}));
    assert_eq!(deleted["spec"]["externalIPs"], json!(["2"]));
}

#[test]
fn retained_keys_clear_the_rest() {
    let object = json!({"metadata": {"annotations": {"a": "1", "b": "2", "c": "3"}}});
    let patch = json!({"metadata": {"annotations": {"$retainKeys": ["a", "d"], "d": "4"}}});
    assert_eq!(smp(&object, &patch)["metadata"]["annotations"], json!({"a": "1", "d": "4"}));
    let unlisted = json!({"metadata": {"annotations": {"$retainKeys": ["a"], "d": "4"}}});
    let status = smp_error(&object, &unlisted).into_status();
    assert_eq!((status.code, status.message.as_str()), (400, "invalid patch format of retainKeys"));
}

#[test]
fn strategic_failures_have_the_words_of_the_original() {
    let object = ports(&[80, 81]);
    let words = |patch: Value| {
        let status = smp_error(&object, &patch).into_status();
        (status.code, status.reason, status.message)
    };
    let raw = |text: &str| (500, None, text.to_owned());
    assert_eq!(
        words(json!({"spec": {"ports": [{"name": "a", "targetPort": 1}]}})),
        raw("map: map[name:a targetPort:1] does not contain declared merge key: port")
    );
    assert_eq!(words(json!({"spec": {"$patch": "frob"}})), raw("unknown patch type: frob in map: map[$patch:frob]"));
    assert_eq!(words(json!({"spec": {"$patch": 1}})), raw("unknown patch type: %!s(int64=1) in map: map[$patch:1]"));
    assert_eq!(
        words(json!({"spec": {"$setElementOrder/ports": [{"port": 80}], "ports": [{"name": "c", "port": 82}]}})),
        raw("The order in patch list:\n[map[name:c port:82]]\n doesn't match $setElementOrder list:\n[map[port:80]]\n")
    );
    assert_eq!(
        words(json!({"spec": {"ports": [{"$patch": "merge", "port": 1}]}})),
        raw("merging lists cannot yet be specified in the patch")
    );
    assert_eq!(
        words(json!({"spec": {"ports": [1]}})),
        raw("list element types are not identical: [[map[name:p80 port:80] map[name:p81 port:81]] [1]]")
    );
    assert_eq!(
        words(json!({"spec": {"$setElementOrder/ports": "x"}})),
        raw("expected a []interface {}, but received a string")
    );
    assert_eq!(
        words(json!({"spec": {"$setElementOrder/frob": []}})),
        raw("unable to find api field in struct ServiceSpec for the json field \"frob\"")
    );
    let malformed = (400, Some("BadRequest"), "invalid patch format of primitive list".to_owned());
    assert_eq!(words(json!({"spec": {"$deleteFromPrimitiveList": []}})), malformed);
    let not_map = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(words(json!([1])), (400, Some("BadRequest"), not_map.to_owned()));
}

// === what strict decoding sees, and refusals ===

#[test]
fn duplicates_in_the_body_are_noted() {
    let strict = |kind, body: &str| Patch::parse(kind, body.as_bytes(), STRICT).expect("JSON").strict_errors().to_vec();
    let body = r#"{"spec":{"type":"A","ports":[{"port":1},{"port":1,"port":2}],"type":"B"},"spec":{}}"#;
    assert_eq!(
        strict(PatchKind::Merge, body),
        ["duplicate field \"spec.ports[1].port\"", "duplicate field \"spec.type\"", "duplicate field \"spec\""]
    );
    let body = r#"[{"op":"add","op":"add","path":"/a","value":{"b":1,"b":2},"foo":{"c":1,"c":2}}]"#;
    assert_eq!(
        strict(PatchKind::Json, body),
        [
            "json patch duplicate field \"[0].op\"",
            "json patch duplicate field \"[0].value.b\"",
            "json patch unknown field \"[0].foo\"",
        ]
    );
    let ignored = Patch::parse(PatchKind::Merge, br#"{"a":1,"a":2}"#, FieldValidation::Ignore).expect("JSON");
    assert!(ignored.strict_errors().is_empty());
    assert_eq!(ignored.apply(schema::named("core.Service"), &json!({})), Ok(json!({"a": 2})));
}

#[test]
fn refusals_show_what_is_left_of_the_patch() {
    let ty = schema::named("core.Service");
    let body = br#"{"spec":{"type":7,"$retainKeys":["type","x"],"x":{"a":null,"b":{"$patch":"delete"}}}}"#;
    let patch = Patch::parse(PatchKind::Strategic, body, STRICT).expect("JSON");
    let status = patch.refuse(ty, &json!({"spec": {}}), "cannot convert int64 to v1.ServiceType");
    assert_eq!(
        status.message,
        " \"\" is invalid: patch: Invalid value: \"map[spec:map[type:7 x:map[]]]\": cannot convert int64 to v1.ServiceType"
    );
    let causes = status.details.as_ref().and_then(Value::as_object).map(|details| details.keys().cloned().collect());
    assert_eq!(causes, Some(vec!["causes".to_owned()]));
    let patch = Patch::parse(PatchKind::Merge, br#"{"a":"x"}"#, STRICT).expect("JSON");
    assert_eq!(
        patch.refuse(ty, &json!({}), "no").message,
        " \"\" is invalid: patch: Invalid value: \"{\\\"a\\\":\\\"x\\\"}\": no"
    );
}

#[test]
fn content_types_name_the_formats() {
    let of = PatchKind::of_content_type;
    assert_eq!(of("application/merge-patch+json; charset=utf-8"), Some(PatchKind::Merge));
    assert_eq!(of("application/strategic-merge-patch+json"), Some(PatchKind::Strategic));
    assert_eq!(of("application/json"), None);
}

// === properties ===

fn any_json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c$]{0,3}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            "[a-c]",
            Just("spec".to_owned()),
            Just("ports".to_owned()),
            Just("port".to_owned()),
            Just("metadata".to_owned()),
            Just("finalizers".to_owned()),
            Just("$patch".to_owned()),
            Just("$retainKeys".to_owned()),
            Just("$setElementOrder/ports".to_owned()),
            Just("$deleteFromPrimitiveList/finalizers".to_owned()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]|spec|metadata", any_json(), 0..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

/// RFC 7386, word by word.
fn rfc_7386(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = if let Value::Object(map) = target { map } else { serde_json::Map::new() };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            let before = target.remove(name).unwrap_or_default();
            target.insert(name.clone(), rfc_7386(before, value));
        }
    }
    Value::Object(target)
}

/// An object; lists in it are cut down to null, so that the two readings of the RFC agree.
fn object_without_lists() -> impl Strategy<Value = Value> {
    fn cut(value: Value) -> Value {
        match value {
            Value::Array(_) => Value::Null,
            Value::Object(map) => Value::Object(map.into_iter().map(|(name, member)| (name, cut(member))).collect()),
            scalar => scalar,
        }
    }
    any_object().prop_map(cut)
}

proptest! {
    #[test]
    fn an_empty_strategic_patch_is_identity(object in any_object()) {
        prop_assert_eq!(smp(&object, &json!({})), object);
    }

    #[test]
    fn no_patch_panics(object in any_object(), patch in any_json()) {
        for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Strategic] {
            let _ = run(kind, &object, &patch);
        }
    }

    #[test]
    fn merge_patch_is_the_rfc_but_for_lists(object in any_object(), patch in object_without_lists()) {
        prop_assert_eq!(run(PatchKind::Merge, &object, &patch), Ok(rfc_7386(object, &patch)));
    }

    #[test]
    fn a_strategic_patch_of_ports_merges_by_number(
        have in prop::collection::btree_set(1..9_i64, 0..6),
        change in prop::collection::btree_set(1..9_i64, 1..6),
    ) {
        let object = ports(&have.iter().copied().collect::<Vec<_>>());
        let list: Vec<Value> = change.iter().map(|port| json!({"port": port, "protocol": "UDP"})).collect();
        let out = smp(&object, &json!({"spec": {"ports": list}}));
        let mut all: Vec<i64> = numbers(&out);
        all.sort_unstable();
        prop_assert_eq!(all, have.union(&change).copied().collect::<Vec<_>>());
        for port in out["spec"]["ports"].as_array().expect("ports") {
            let number = port["port"].as_i64().expect("a number");
            prop_assert_eq!(port.get("protocol").is_some(), change.contains(&number));
            prop_assert_eq!(port.get("name").is_some(), have.contains(&number));
        }
    }
}
