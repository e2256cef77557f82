use api::kinds::admissionregistration::{binding, policy as policy_kind, webhooks};
use api::kinds::{configmap, namespace};
use api::value::ValueExt as _;
use serde_json::{Value, json};
use store::{Op, Txn};

use super::*;
use crate::dynamic_admission::testing::{Bed, alice, creation, web};
use crate::registry::key;

fn refuse(host: &str) -> Value {
    json!({"allowed": false, "warnings": [format!("w-{host}")], "auditAnnotations": {"k": host},
        "status": {"message": format!("no, {host}"), "code": 403, "reason": "Forbidden"}})
}

async fn validate(bed: &Bed) -> (Result<(), Status>, Notes) {
    let (object, mut notes) = (web(), Notes::default());
    let done = bed.admission.validate(&creation(&object), &alice(), &mut notes).await;
    (done, notes)
}

#[tokio::test]
async fn all_webhooks_are_asked_and_the_first_refusal_is_told() {
    let bed = Bed::new(|host, _| Ok(refuse(host)));
    bed.validating("b", json!({})).await;
    bed.validating("a", json!({})).await;
    let (done, notes) = validate(&bed).await;
    let status = done.unwrap_err();
    assert_eq!(
        (status.code, status.reason, status.message.as_str()),
        (403, Some("Forbidden"), "admission webhook \"a.example.com\" denied the request: no, a")
    );
    assert_eq!(bed.called().len(), 2);
    assert_eq!(notes.warnings, ["w-a", "w-b"]);
    assert_eq!(notes.annotations[0], ("a.example.com/k".to_owned(), "a".to_owned()));
}

#[tokio::test]
async fn configurations_count_from_when_they_are_stored_until_they_are_gone() {
    let bed = Bed::new(|host, _| Ok(refuse(host)));
    assert!(!bed.admission.validates() && validate(&bed).await.0.is_ok());
    bed.validating("a", json!({})).await;
    assert!(bed.admission.validates() && validate(&bed).await.0.is_err());
    bed.validating("a", json!({"rules": []})).await;
    assert_eq!(validate(&bed).await.0, Ok(()));
    let key = key(&webhooks::VALIDATING, "", "a");
    let gone = Txn { compares: Vec::new(), ops: vec![Op::Delete { key }] };
    bed.store.commit(gone).await.unwrap();
    assert!(!bed.admission.validates());
}

#[tokio::test]
async fn failures_are_refused_or_passed_over() {
    let bed =
        Bed::new(|host, _| if host == "a" { Err("failed to call webhook: EOF".to_owned()) } else { Ok(refuse(host)) });
    bed.validating("a", json!({"failurePolicy": "Ignore"})).await;
    let (done, notes) = validate(&bed).await;
    assert_eq!(done, Ok(()));
    let key = "failed-open.validating.webhook.admission.k8s.io/round_0_index_0".to_owned();
    assert_eq!(notes.annotations, [(key, "a.example.com".to_owned())]);
    bed.validating("a", json!({})).await;
    assert_eq!(
        validate(&bed).await.0.unwrap_err().message,
        "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: EOF"
    );
}

#[tokio::test]
async fn conditions_choose_and_their_errors_refuse() {
    let bed = Bed::new(|host, _| Ok(refuse(host)));
    let with = |expression: &str| json!({"matchConditions": [{"name": "a", "expression": expression}]});
    bed.validating("a", with("object.metadata.name == 'other'")).await;
    assert_eq!(validate(&bed).await.0, Ok(()));
    bed.validating("a", with("object.metadata.name == 'web'")).await;
    assert!(validate(&bed).await.0.is_err());
    bed.validating("a", with("error x")).await;
    let status = validate(&bed).await.0.unwrap_err();
    let message = "services \"web\" is forbidden: expression 'error x' resulted in error: x";
    assert_eq!((status.code, status.message.as_str()), (403, message));
    bed.validating("a", with("allowed get")).await;
    assert_eq!(validate(&bed).await.0, Ok(()), "alice may do nothing");
}

#[tokio::test]
async fn namespaces_are_selected_by_their_stored_labels() {
    let bed = Bed::new(|host, _| Ok(refuse(host)));
    bed.put(&namespace::KIND, json!({"metadata": {"name": "n", "labels": {"env": "dev"}}})).await;
    let with = |env: &str| json!({"namespaceSelector": {"matchLabels": {"env": env}}});
    bed.validating("a", with("prod")).await;
    assert_eq!(validate(&bed).await.0, Ok(()));
    bed.validating("a", with("dev")).await;
    assert!(validate(&bed).await.0.is_err());
}

#[tokio::test]
async fn policies_come_before_webhooks() {
    let bed = Bed::new(|host, _| Ok(refuse(host)));
    bed.validating("a", json!({})).await;
    bed.put(&namespace::KIND, json!({"metadata": {"name": "n"}})).await;
    bed.put(&configmap::KIND, json!({"metadata": {"name": "limits", "namespace": "n"}, "data": {"max": "3"}})).await;
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "false", "messageExpression": "params.data.max"}]});
    bed.put(&policy_kind::KIND, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    assert!(validate(&bed).await.0.unwrap_err().message.starts_with("admission webhook"), "a policy needs a binding");
    let reference = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    let spec = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": reference});
    bed.put(&binding::KIND, json!({"metadata": {"name": "b"}, "spec": spec})).await;
    assert_eq!(
        validate(&bed).await.0.unwrap_err().message,
        "services \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: 3"
    );
    assert_eq!(bed.called().len(), 1, "of the first request");
}

#[tokio::test]
async fn configurations_of_admission_are_exempt() {
    let bed = Bed::new(|host, _| Ok(refuse(host)));
    bed.validating("a", json!({})).await;
    bed.mutating("a", json!({})).await;
    let (mut object, mut notes) = (json!({"metadata": {"name": "x"}}), Notes::default());
    let own = object.clone();
    let request = Request { kind: &policy_kind::KIND, namespace: "", ..creation(&own) };
    assert_eq!(bed.admission.validate(&request, &alice(), &mut notes).await, Ok(()));
    assert_eq!(bed.admission.mutate(&request, &alice(), &mut object, &|_| Ok(()), &mut notes).await, Ok(()));
    assert!(bed.called().is_empty() && object.text("metadata.name") == "x");
}
