use proptest::prelude::*;

use super::*;
use crate::dynamic_admission::testing::{creation, web};

const UID: &str = "u-1";

fn answer(review: &Value, mutating: bool) -> Result<Answer, String> {
    let told = |error| match error {
        Malformed::Unreadable(why) => format!("unreadable: {why}"),
        Malformed::Invalid(why) => why,
    };
    read(review.to_string().as_bytes(), UID, "v1", mutating).map_err(told)
}

fn review(response: &Value) -> Value {
    json!({"kind": KIND, "apiVersion": "admission.k8s.io/v1", "response": response})
}

#[test]
fn a_review_describes_the_request() {
    let object = web();
    let user = json!({"username": "alice", "groups": ["dev"]});
    let creation = Request { user: &user, dry_run: true, ..creation(&object) };
    let review = request(&creation, &creation.form(), UID, "v1beta1");
    assert_eq!((review.text("kind"), review.text("apiVersion")), (KIND, "admission.k8s.io/v1beta1"));
    assert_eq!(
        review.at("request"),
        &json!({
            "uid": UID, "operation": "CREATE", "name": "web", "namespace": "n", "dryRun": true, "options": null,
            "kind": {"group": "", "version": "v1", "kind": "Service"},
            "resource": {"group": "", "version": "v1", "resource": "services"},
            "requestKind": {"group": "", "version": "v1", "kind": "Service"},
            "requestResource": {"group": "", "version": "v1", "resource": "services"},
            "userInfo": user, "object": object, "oldObject": null,
        })
    );
}

#[test]
fn responses_are_parsed() {
    let response = json!({"uid": UID, "allowed": true, "warnings": ["w"], "auditAnnotations": {"k": "v"},
        "patch": "W10=", "patchType": "JSONPatch"});
    let read = answer(&review(&response), true).unwrap();
    assert_eq!((read.allowed, &read.patch[..], read.patch_type.as_str()), (true, &b"[]"[..], "JSONPatch"));
    assert_eq!((read.warnings, read.annotations), (vec!["w".to_owned()], vec![("k".to_owned(), "v".to_owned())]));
    assert!(!answer(&review(&json!({"uid": UID})), false).unwrap().allowed);
}

#[test]
fn responses_must_match_the_review() {
    let refused = |review: Value, mutating| answer(&review, mutating).unwrap_err();
    assert_eq!(
        refused(json!({"kind": KIND, "apiVersion": "admission.k8s.io/v1"}), true),
        "webhook response was absent"
    );
    assert_eq!(
        refused(review(&json!({"uid": "x", "allowed": true})), true),
        "expected response.uid=\"u-1\", got \"x\""
    );
    assert_eq!(
        refused(json!({"response": {"uid": UID, "allowed": true}}), true),
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
    );
    for (response, mutating, why) in [
        (json!({"patch": "W10="}), true, "webhook returned response.patch but not response.patchType"),
        (json!({"patchType": "JSONPatch"}), true, "webhook returned response.patchType but not response.patch"),
        (json!({"patch": "W10=", "patchType": ""}), true, "webhook returned invalid response.patchType of \"\""),
        (json!({"patch": "W10="}), false, "validating webhook may not return response.patch"),
        (json!({"patchType": "JSONPatch"}), false, "validating webhook may not return response.patchType"),
    ] {
        let mut response = response;
        response.put("uid", UID);
        assert_eq!(refused(review(&response), mutating), why);
    }
}

#[test]
fn invalid_reviews_are_errors() {
    let refused = |text: &str| match read(text.as_bytes(), UID, "v1", true) {
        Err(Malformed::Unreadable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused("no"),
        "couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u')"
    );
    assert_eq!(
        refused("{\"kind\": \"AdmissionReview\", \"apiVersion\": \"admission.k8s.io/v1beta1\"}"),
        "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"
    );
    assert_eq!(
        refused("{\"kind\": \"Pod\", \"apiVersion\": \"v1\"}"),
        "no kind \"Pod\" is registered for version \"v1\""
    );
    assert_eq!(
        refused(&review(&json!({"uid": UID, "allowed": "yes"})).to_string()),
        "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"
    );
    assert!(refused(&review(&json!({"uid": UID, "patch": "?"})).to_string()).starts_with("illegal base64 data"));
}

#[test]
fn old_reviews_are_less_strict() {
    let response = json!({"response": {"allowed": true, "patch": "W10="}}).to_string();
    let mutating = read(response.as_bytes(), UID, "v1beta1", true).unwrap();
    assert_eq!((mutating.patch_type.as_str(), mutating.patch.len()), ("JSONPatch", 2));
    assert_eq!(read(response.as_bytes(), UID, "v1beta1", false).unwrap().patch, b"");
}

#[test]
fn refusals_name_the_webhook() {
    let told = |result: Value| {
        let status = denied("a.example.com", &result);
        (status.code, status.reason, status.message)
    };
    let by = "admission webhook \"a.example.com\" denied the request";
    assert_eq!(told(Value::Null), (400, None, format!("{by} without explanation")));
    assert_eq!(told(json!({"reason": "Forbidden", "code": 403})), (403, Some("Forbidden"), format!("{by}: Forbidden")));
    assert_eq!(told(json!({"message": "no", "reason": "Odd", "code": 200})), (400, None, format!("{by}: no")));
    assert_eq!(told(json!({"message": "no", "code": 70000})).0, 500);
    let details = denied("a", &json!({"details": {"causes": [{"message": "m"}]}})).details;
    assert_eq!(details, Some(json!({"causes": [{"message": "m"}]})));
}

proptest! {
    #[test]
    fn no_response_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\{\"response\": ?[\\{\\[\"a-z:0-9,\\]\\}]*\\}") {
        for mutating in [true, false] {
            let _ = read(&bytes, UID, "v1", mutating);
            let _ = read(text.as_bytes(), UID, "v1", mutating);
        }
    }
}
