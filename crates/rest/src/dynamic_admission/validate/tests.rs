use api::kinds::admissionregistration::{binding, policy as policy_kind, webhooks};
use api::kinds::{configmap, namespace};
use api::value::ValueExt as _;
use serde_json::{Value, json};
use store::{Op, Txn};

use super::*;
use crate::dynamic_admission::testing::{Fixture, alice, creation, web};
use crate::registry::key;

fn refuse(host: &str) -> Value {
    json!({"allowed": false, "warnings": [format!("w-{host}")], "auditAnnotations": {"k": host},
        "status": {"message": format!("no, {host}"), "code": 403, "reason": "Forbidden"}})
}

async fn validate(fixture: &Fixture) -> (Result<(), Status>, Notes) {
    let (object, mut notes) = (web(), Notes::default());
    let done = fixture.admission.validate(&creation(&object), &alice(), &mut notes).await;
    (done, notes)
}

#[tokio::test]
async fn all_webhooks_are_called_and_the_first_refusal_is_returned() {
    let fixture = Fixture::new(|host, _| Ok(refuse(host)));
    fixture.validating("b", json!({})).await;
    fixture.validating("a", json!({})).await;
    let (done, notes) = validate(&fixture).await;
    let status = done.unwrap_err();
    assert_eq!(
        (status.code, status.reason, status.message.as_str()),
        (403, Some("Forbidden"), "admission webhook \"a.example.com\" denied the request: no, a")
    );
    assert_eq!(fixture.called().len(), 2);
    assert_eq!(notes.warnings, ["w-a", "w-b"]);
    assert_eq!(notes.annotations[0], ("a.example.com/k".to_owned(), "a".to_owned()));
}

#[tokio::test]
async fn configurations_take_effect_when_stored_until_deleted() {
    let fixture = Fixture::new(|host, _| Ok(refuse(host)));
    assert!(!fixture.admission.validates() && validate(&fixture).await.0.is_ok());
    fixture.validating("a", json!({})).await;
    assert!(fixture.admission.validates() && validate(&fixture).await.0.is_err());
    fixture.validating("a", json!({"rules": []})).await;
    assert_eq!(validate(&fixture).await.0, Ok(()));
    let key = key(&webhooks::VALIDATING, "", "a");
    let gone = Txn { compares: Vec::new(), ops: vec![Op::Delete { key }] };
    fixture.store.commit(gone).await.unwrap();
    assert!(!fixture.admission.validates());
}

#[tokio::test]
async fn failure_policies_are_applied() {
    let fixture = Fixture::new(|host, _| if host == "a" { Err("EOF".to_owned()) } else { Ok(refuse(host)) });
    fixture.validating("a", json!({"failurePolicy": "Ignore"})).await;
    let (done, notes) = validate(&fixture).await;
    assert_eq!(done, Ok(()));
    let key = "failed-open.validating.webhook.admission.k8s.io/round_0_index_0".to_owned();
    assert_eq!(notes.annotations, [(key, "a.example.com".to_owned())]);
    fixture.validating("a", json!({})).await;
    assert_eq!(
        validate(&fixture).await.0.unwrap_err().message,
        "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: EOF"
    );
}

#[tokio::test]
async fn conditions_choose_and_their_errors_refuse() {
    let fixture = Fixture::new(|host, _| Ok(refuse(host)));
    let with = |expression: &str| json!({"matchConditions": [{"name": "a", "expression": expression}]});
    fixture.validating("a", with("object.metadata.name == 'other'")).await;
    assert_eq!(validate(&fixture).await.0, Ok(()));
    fixture.validating("a", with("object.metadata.name == 'web'")).await;
    assert!(validate(&fixture).await.0.is_err());
    fixture.validating("a", with("error x")).await;
    let status = validate(&fixture).await.0.unwrap_err();
    let message = "services \"web\" is forbidden: expression 'error x' resulted in error: x";
    assert_eq!((status.code, status.message.as_str()), (403, message));
    fixture.validating("a", with("allowed get")).await;
    assert_eq!(validate(&fixture).await.0, Ok(()), "alice may do nothing");
}

#[tokio::test]
async fn namespaces_are_selected_by_their_stored_labels() {
    let fixture = Fixture::new(|host, _| Ok(refuse(host)));
    fixture.put(&namespace::KIND, json!({"metadata": {"name": "n", "labels": {"env": "dev"}}})).await;
    let with = |env: &str| json!({"namespaceSelector": {"matchLabels": {"env": env}}});
    fixture.validating("a", with("prod")).await;
    assert_eq!(validate(&fixture).await.0, Ok(()));
    fixture.validating("a", with("dev")).await;
    assert!(validate(&fixture).await.0.is_err());
}

#[tokio::test]
async fn policies_come_before_webhooks() {
    let fixture = Fixture::new(|host, _| Ok(refuse(host)));
    fixture.validating("a", json!({})).await;
    fixture.put(&namespace::KIND, json!({"metadata": {"name": "n"}})).await;
    fixture
        .put(&configmap::KIND, json!({"metadata": {"name": "limits", "namespace": "n"}, "data": {"max": "3"}}))
        .await;
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "false", "messageExpression": "params.data.max"}]});
    fixture.put(&policy_kind::KIND, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    assert!(
        validate(&fixture).await.0.unwrap_err().message.starts_with("admission webhook"),
        "a policy needs a binding"
    );
    let reference = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    let spec = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": reference});
    fixture.put(&binding::KIND, json!({"metadata": {"name": "b"}, "spec": spec})).await;
    assert_eq!(
        validate(&fixture).await.0.unwrap_err().message,
        "services \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: 3"
    );
    assert_eq!(fixture.called().len(), 1, "of the first request");
}

#[tokio::test]
async fn configurations_of_admission_are_exempt() {
    let fixture = Fixture::new(|host, _| Ok(refuse(host)));
    fixture.validating("a", json!({})).await;
    fixture.mutating("a", json!({})).await;
    let (mut object, mut notes) = (json!({"metadata": {"name": "x"}}), Notes::default());
    let own = object.clone();
    let request = Request { kind: &policy_kind::KIND, namespace: "", ..creation(&own) };
    assert_eq!(fixture.admission.validate(&request, &alice(), &mut notes).await, Ok(()));
    assert_eq!(fixture.admission.mutate(&request, &alice(), &mut object, &|_| Ok(()), &mut notes).await, Ok(()));
    assert!(fixture.called().is_empty() && object.text("metadata.name") == "x");
}
