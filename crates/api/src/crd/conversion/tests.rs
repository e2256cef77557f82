use serde_json::{Value, json};

use super::*;

fn widget(version: &str, name: &str) -> Value {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]);
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget", "spec": {"version": version},
        "metadata": {"name": name, "namespace": "n", "uid": format!("uid-{name}"), "labels": {"app": "web"},
                     "ownerReferences": owner, "finalizers": ["a/b"]},
    })
}

fn answer(objects: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
           "response": {"uid": "u1", "result": {"status": "Success"}, "convertedObjects": objects}})
}

fn read(version: &str, sent: &[Value], answer: &Value) -> Result<Vec<Value>, String> {
    let exchange = Exchange { uid: "u1", version, desired: "example.com/v2", objects: sent };
    exchange.read(answer.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// The error for one converted object that was changed.
fn refused(change: impl FnOnce(&mut Value)) -> String {
    let mut converted = widget("v2", "a");
    change(&mut converted);
    read("v1", &[widget("v1", "a")], &answer(&json!([converted]))).expect_err("refused")
}

#[test]
fn a_review_has_the_objects_and_the_version_to_convert_them_to() {
    let sent = [widget("v1", "a")];
    let exchange = Exchange { uid: "u1", version: "v1beta1", desired: "example.com/v2", objects: &sent };
    let review: Value = serde_json::from_slice(&exchange.request()).expect("JSON");
    assert_eq!((review.text("apiVersion"), review.text("kind")), ("apiextensions.k8s.io/v1beta1", "ConversionReview"));
    assert_eq!(review.at("request"), &json!({"uid": "u1", "desiredAPIVersion": "example.com/v2", "objects": sent}));
}

#[test]
fn the_first_known_version_of_reviews_is_used() {
    let webhook = |strategy: &str, versions: Value| {
        let webhook = json!({"clientConfig": {"url": "https://h"}, "conversionReviewVersions": versions});
        Webhook::of(&json!({"metadata": {"name": "w.example.com"},
            "spec": {"conversion": {"strategy": strategy, "webhook": webhook}}}))
    };
    let version = |versions: Value| webhook("Webhook", versions).expect("a webhook").review_version;
    assert_eq!(version(json!(["v2", "v1beta1", "v1"])), Some("v1beta1"));
    assert_eq!(version(json!(["v2"])), None);
    assert_eq!(webhook("None", json!(["v1"])), None);
}

#[test]
fn converted_objects_keep_their_metadata_but_for_labels_and_annotations() {
    let mut converted = widget("v2", "a");
    converted["metadata"] = json!({"name": "a", "namespace": "n", "uid": "uid-a", "labels": {"x": "y"},
        "annotations": {"example.com/old": "v1"}, "ownerReferences": [], "generation": 7});
    let read = read("v1", &[widget("v1", "a")], &answer(&json!([converted]))).expect("converted");
    let mut expected = widget("v1", "a")["metadata"].clone();
    expected["labels"] = json!({"x": "y"});
    expected["annotations"] = json!({"example.com/old": "v1"});
    assert_eq!(read[0]["metadata"], expected);
    assert_eq!(read[0]["spec"], json!({"version": "v2"}));
}

#[test]
fn a_failure_has_the_message_of_the_webhook() {
    let sent = [widget("v1", "a")];
    let of = "conversion webhook for example.com/v1, Kind=Widget failed: ";
    let failed = |result: Value| {
        let mut answer = answer(&json!([]));
        answer["response"]["result"] = result;
        read("v1", &sent, &answer).expect_err("refused")
    };
    assert_eq!(failed(json!({"status": "Failure", "message": "no"})), format!("{of}no"));
    assert_eq!(
        failed(json!({"status": "Failure"})),
        format!("{of}response.result.status was 'Failure', not 'Success'")
    );
    assert_eq!(failed(Value::Null), format!("{of}response.result.status was '', not 'Success'"));
    assert!(failed(json!({"message": "x".repeat(1 << 20)})).len() < 2000);
}

#[test]
fn a_response_to_another_review_is_refused_unless_it_is_v1beta1() {
    let sent = [widget("v1", "a")];
    let of = "conversion webhook for example.com/v1, Kind=Widget failed: ";
    let mut other = answer(&json!([widget("v2", "a")]));
    other["response"]["uid"] = "u2".into();
    let told = read("v1", &sent, &other).expect_err("refused");
    assert_eq!(told, format!("{of}expected response.uid=\"u1\", got \"u2\""));
    other["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    assert!(read("v1beta1", &sent, &other).is_ok());
    let told = read("v1", &sent, &other).expect_err("refused");
    assert_eq!(told, format!("{of}converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"));
    let untyped = json!({"response": other["response"]});
    let expected = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=";
    assert_eq!(read("v1", &sent, &untyped).expect_err("refused"), format!("{of}{expected}"));
    let absent = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"});
    assert_eq!(read("v1", &sent, &absent).expect_err("refused"), format!("{of}no response provided"));
}

#[test]
fn every_object_is_returned_in_its_place() {
    let sent = [widget("v1", "a"), widget("v1", "b")];
    let of = "conversion webhook for example.com/v1, Kind=Widget returned ";
    let told = |objects: Value| read("v1", &sent, &answer(&objects)).expect_err("refused");
    assert_eq!(told(json!([widget("v2", "a")])), format!("{of}1 objects, expected 2"));
    assert_eq!(told(Value::Null), format!("{of}0 objects, expected 2"));
    assert_eq!(
        told(json!([widget("v2", "b"), widget("v2", "a")])),
        format!("{of}invalid converted object at index 0: must have the same name: a != b")
    );
    assert_eq!(
        told(json!([widget("v2", "a"), widget("v3", "b")])),
        format!(
            "{of}invalid converted object at index 1: invalid groupVersion (expected example.com/v2, received example.com/v3)"
        )
    );
    assert_eq!(read("v1", &sent, &answer(&json!([widget("v2", "a"), widget("v2", "b")]))).expect("converted").len(), 2);
}

#[test]
fn the_identity_of_an_object_cannot_change() {
    let of = "conversion webhook for example.com/v1, Kind=Widget returned invalid ";
    let cases: [(&str, Value, &str); 6] = [
        ("kind", json!("Gadget"), "object at index 0: invalid kind (expected Widget, received Gadget)"),
        ("metadata.name", json!("b"), "object: must have the same name: a != b"),
        ("metadata.namespace", json!("m"), "object: must have the same namespace: n != m"),
        ("metadata.uid", json!("other"), "object: must have the same UID: uid-a != other"),
        (
            "metadata.labels",
            json!({"a": 1}),
            "metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            "metadata.annotations",
            json!([]),
            "metadata: invalid metadata.annotations of type []interface {} in converted object",
        ),
    ];
    for (path, value, expected) in cases {
        assert_eq!(refused(|object| object.put(path, value)), format!("{of}{expected}"));
    }
    let told = refused(|object| object.put("metadata.labels", json!({"not a label": "x"})));
    assert!(told.starts_with(&format!("{of}metadata: metadata.labels: Invalid value: \"not a label\": ")), "{told}");
    let told = refused(|object| drop(object.drop_path("kind")));
    assert!(told.starts_with(&format!("{of}object at index 0: Object 'Kind' is missing in '{{")), "{told}");
}

#[test]
fn malformed_responses_are_refused() {
    let sent = [widget("v1", "a")];
    let exchange = Exchange { uid: "u1", version: "v1", desired: "example.com/v2", objects: &sent };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = answer(&json!([{"x": "here"}])).to_string().replace("\"here\"", &deep);
    let numbers = answer(&json!(7)).to_string();
    let text =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": "x"}).to_string();
    for bytes in ["", "{", "[]", "null", "\"x\"", &deep, &deep_object, &numbers, &text] {
        let told = exchange.read(bytes.as_bytes()).expect_err("refused").to_string();
        assert!(told.starts_with("conversion webhook for example.com/v1, Kind=Widget failed: "), "{told}");
        assert!(told.len() < 2000);
    }
}
