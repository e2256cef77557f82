//! Metadata on create and on update, fault by fault.

use serde_json::json;

use super::*;

fn create(metadata: &Value) -> Vec<String> {
    let mut errors = Errors::default();
    validate(&json!({ "metadata": metadata }), true, names::name_is_label, &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

fn update(new: &Value, old: &Value) -> Vec<String> {
    let mut errors = Errors::default();
    validate_update(&json!({ "metadata": new }), &json!({ "metadata": old }), &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

#[test]
fn a_plain_object_passes() {
    let metadata = json!({
        "name": "web", "namespace": "ns", "labels": {"app": "web", "x.io/y": ""}, "annotations": {"X.io/Y": "any thing"},
        "finalizers": ["example.com/a", "orphan"],
        "managedFields": [{"manager": "kubectl é", "operation": "Apply", "fieldsType": "FieldsV1"}],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "A", "name": "a", "uid": "1", "controller": true}],
    });
    assert_eq!(create(&metadata), Vec::<String>::new());
}

#[test]
fn each_part_complains_in_order() {
    let metadata = json!({
        "generateName": "Web_", "generation": -1, "labels": {"a b": "c d"}, "annotations": {"é": ""},
        "finalizers": ["plain"],
        "managedFields": [{"operation": "X", "fieldsType": "Y", "manager": "a\u{7}", "subresource": "s".repeat(257)}],
    });
    let fields: Vec<String> =
        create(&metadata).iter().map(|e| e.split(": ").next().unwrap_or_default().to_owned()).collect();
    assert_eq!(
        fields,
        [
            "metadata.generateName",
            "metadata.name",
            "metadata.namespace",
            "metadata.generation",
            "metadata.labels",
            "metadata.labels",
            "metadata.annotations",
            "metadata.managedFields[0].operation",
            "metadata.managedFields[0].fieldsType",
            "metadata.managedFields[0].manager",
            "metadata.managedFields[0].subresource",
            "metadata.finalizers[0]",
        ]
    );
}

#[test]
fn a_manager_must_be_printable() {
    let mut errors = Errors::default();
    validate_manager(&Path::Root("fieldManager"), "a\u{7}b", &mut errors);
    assert_eq!(errors.summary(), "fieldManager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)");
    let mut errors = Errors::default();
    validate_manager(&Path::Root("m"), &"x".repeat(129), &mut errors);
    validate_manager(&Path::Root("m"), "é 世界 e\u{301}", &mut errors);
    assert_eq!(errors.summary(), "m: Too long: may not be more than 128 bytes");
}

#[test]
fn owners_are_printed_in_the_order_of_the_original() {
    let one = json!({"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"});
    assert_eq!(
        create(&json!({"name": "web", "namespace": "ns", "ownerReferences": [one]})),
        ["metadata.ownerReferences[0]: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"a\",\
          \"uid\":\"1\"}: /v1, Kind=Event is disallowed from being an owner"]
    );
    let two = |name: &str| json!({"apiVersion": "v1", "kind": "A", "name": name, "uid": "1", "controller": true});
    let got = create(&json!({"name": "web", "namespace": "ns", "ownerReferences": [two("a"), two("b")]}));
    assert_eq!(got.len(), 1);
    assert!(got[0].ends_with(
        "\"uid\":\"1\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in \
         references for A/a and A/b"
    ));
    let bad = json!({"apiVersion": "a/b/c", "kind": "", "name": "", "uid": ""});
    assert_eq!(create(&json!({"name": "web", "namespace": "ns", "ownerReferences": [bad]})).len(), 4);
}

#[test]
fn annotations_have_a_total_size() {
    let at_limit = json!({"name": "web", "namespace": "ns", "annotations": {"a": "x".repeat(ANNOTATIONS_MAX - 1)}});
    assert!(create(&at_limit).is_empty());
    let over = json!({"name": "web", "namespace": "ns", "annotations": {"a": "x".repeat(ANNOTATIONS_MAX)}});
    assert_eq!(create(&over), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
}

#[test]
fn two_finalizers_exclude_each_other() {
    assert_eq!(
        create(&json!({"name": "web", "namespace": "ns", "finalizers": ["orphan", "foregroundDeletion"]})),
        ["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
          foregroundDeletion cannot be both set"]
    );
}

#[test]
fn what_identifies_an_object_does_not_change() {
    let old = json!({"name": "web", "namespace": "ns", "uid": "1", "resourceVersion": "5", "generation": 2});
    assert!(update(&old, &old).is_empty());
    let new = json!({
        "name": "web", "namespace": "ns", "uid": "2", "deletionTimestamp": "2001-01-01T00:00:00Z", "generation": 1,
    });
    assert_eq!(
        update(&new, &old),
        [
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.generation: Invalid value: 1: must not be decremented",
            "metadata.uid: Invalid value: \"2\": field is immutable",
            "metadata.deletionTimestamp: Invalid value: \"2001-01-01T00:00:00Z\": field is immutable",
        ]
    );
}

#[test]
fn a_deleting_object_gets_no_new_finalizers() {
    let old = json!({
        "name": "web", "namespace": "ns", "resourceVersion": "5", "finalizers": ["x.io/a"],
        "deletionTimestamp": "2001-01-01T00:00:00Z",
    });
    let mut new = old.clone();
    new["finalizers"] = json!(["x.io/c", "x.io/b"]);
    assert_eq!(
        update(&new, &old),
        ["metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
          finalizers []string{\"x.io/b\", \"x.io/c\"}"]
    );
}

#[test]
fn names_are_not_checked_again_on_update() {
    let old = json!({"name": "Old_Name", "namespace": "ns", "resourceVersion": "5"});
    assert!(update(&old, &old).is_empty());
}
