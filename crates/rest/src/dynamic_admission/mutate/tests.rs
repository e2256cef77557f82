use serde_json::json;

use super::*;
use crate::dynamic_admission::testing::{Fixture, NULL, alice, creation, patch, web};

fn label(name: &str, value: &str) -> Value {
    patch(&json!([
        {"op": "add", "path": "/metadata/labels", "value": {}}, {"op": "add", "path": format!("/metadata/labels/{name}"), "value": value},
    ]))
}

async fn mutate(fixture: &Fixture, refill: &Refill<'_>) -> (Result<Value, Status>, Notes) {
    let (mut object, mut notes) = (web(), Notes::default());
    let done = fixture.admission.mutate(&creation(NULL), &alice(), &mut object, refill, &mut notes).await;
    (done.map(|()| object), notes)
}

const fn unchanged(_: &mut Value) -> Result<(), Status> {
    Ok(())
}

#[tokio::test]
async fn webhooks_change_objects_in_the_order_of_names() {
    let fixture = Fixture::new(|host, request| {
        let before = request.text("object.metadata.labels.by");
        Ok(label("by", &format!("{before}{host}")))
    });
    fixture.mutating("b", json!({})).await;
    fixture.mutating("a", json!({})).await;
    let (object, notes) = mutate(&fixture, &unchanged).await;
    assert_eq!(object.unwrap().text("metadata.labels.by"), "ab");
    assert_eq!(fixture.called(), ["a", "b"]);
    let mutation = "{\"configuration\":\"a\",\"webhook\":\"a.example.com\",\"mutated\":true}";
    assert_eq!(
        notes.annotations[0],
        ("mutation.webhook.admission.k8s.io/round_0_index_0".to_owned(), mutation.to_owned())
    );
}

#[tokio::test]
async fn webhooks_with_if_needed_are_reinvoked() {
    let fixture = Fixture::new(|host, _| Ok(if host == "b" { label("b", "1") } else { json!({"allowed": true}) }));
    fixture.mutating("a", json!({"reinvocationPolicy": "IfNeeded"})).await;
    fixture.mutating("b", json!({})).await;
    fixture.mutating("c", json!({"reinvocationPolicy": "IfNeeded"})).await;
    let (object, _) = mutate(&fixture, &unchanged).await;
    assert_eq!(object.unwrap().text("metadata.labels.b"), "1");
    assert_eq!(fixture.called(), ["a", "b", "c", "a"], "c saw the change");
    let seen = fixture.calls.lock().last().map(|(_, request)| request.text("object.metadata.labels.b").to_owned());
    assert_eq!(seen.as_deref(), Some("1"));
}

#[tokio::test]
async fn changes_of_plugins_are_seen_too() {
    let fixture = Fixture::new(|host, _| Ok(if host == "a" { label("a", "1") } else { json!({"allowed": true}) }));
    fixture.mutating("a", json!({})).await;
    fixture.mutating("c", json!({"reinvocationPolicy": "IfNeeded"})).await;
    let refill = |object: &mut Value| {
        object.put("metadata.annotations", json!({"plugin": "again"}));
        Ok(())
    };
    let (object, _) = mutate(&fixture, &refill).await;
    assert_eq!(object.unwrap().text("metadata.annotations.plugin"), "again");
    assert_eq!(fixture.called(), ["a", "c", "c"]);
}

#[tokio::test]
async fn patched_objects_are_checked_and_completed() {
    let fixture = Fixture::new(|_, _| {
        Ok(patch(&json!([
            {"op": "add", "path": "/spec/ports/-", "value": {"name": "b", "port": 81}},
            {"op": "add", "path": "/spec/frob", "value": 1},
            {"op": "replace", "path": "/kind", "value": "Pod"},
        ])))
    });
    fixture.mutating("a", json!({})).await;
    let object = mutate(&fixture, &unchanged).await.0.unwrap();
    assert_eq!(object.items("spec.ports")[1].text("protocol"), "TCP", "defaults are filled in");
    assert!(!object.has("spec.frob") && object.text("kind") == "Service");
    let fixture = Fixture::new(|_, _| Ok(patch(&json!([{"op": "add", "path": "/spec/ports", "value": "x"}]))));
    fixture.mutating("a", json!({})).await;
    let status = mutate(&fixture, &unchanged).await.0.unwrap_err();
    assert_eq!(status.code, 500);
    assert!(status.message.starts_with("Internal error occurred: json: cannot unmarshal string"), "{status}");
}

#[tokio::test]
async fn invalid_patches_are_failures() {
    let told = |patch: Value, policy: &'static str| async move {
        let fixture = Fixture::new(move |_, _| Ok(patch.clone()));
        fixture.mutating("a", json!({"failurePolicy": policy})).await;
        mutate(&fixture, &unchanged).await.0.map(drop).map_err(|status| status.message)
    };
    let failed = "Internal error occurred: failed calling webhook \"a.example.com\": ";
    let no_list = patch(&json!({}));
    assert_eq!(
        told(no_list.clone(), "Fail").await,
        Err(format!(
            "{failed}received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type \
             jsonpatch.Patch"
        ))
    );
    assert_eq!(told(no_list, "Ignore").await, Ok(()));
    let mut merge = patch(&json!([{"op": "test", "path": "", "value": {}}]));
    merge.put("patchType", "Merge");
    assert_eq!(told(merge, "Fail").await, Err(format!("{failed}unsupported patch type \"Merge\"")));
    let does_not_fit = patch(&json!([{"op": "remove", "path": "/none"}]));
    assert!(told(does_not_fit, "Ignore").await.is_err_and(|why| why.starts_with("Internal error occurred: ")));
    assert_eq!(told(patch(&json!([])), "Fail").await, Ok(()));
}

#[tokio::test]
async fn failure_policies_are_applied() {
    let unreachable = |_: &str, _: &Value| Err("nobody there".to_owned());
    let fixture = Fixture::new(unreachable);
    fixture.mutating("a", json!({"failurePolicy": "Ignore"})).await;
    let (object, notes) = mutate(&fixture, &unchanged).await;
    assert_eq!(object, Ok(web()));
    let key = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0";
    assert_eq!(notes.annotations[1], (key.to_owned(), "a.example.com".to_owned()));
    fixture.mutating("a", json!({})).await;
    let status = mutate(&fixture, &unchanged).await.0.unwrap_err();
    let message = "failed calling webhook \"a.example.com\": failed to call webhook: nobody there";
    assert_eq!((status.code, status.message), (500, format!("Internal error occurred: {message}")));
    assert_eq!(status.details, Some(json!({"causes": [{"message": message}]})));
}

#[tokio::test]
async fn nothing_is_changed_where_there_is_no_object() {
    let fixture = Fixture::new(|_, _| Ok(label("a", "b")));
    fixture.mutating("a", json!({"failurePolicy": "Ignore"})).await;
    let old = web();
    let deletion =
        Request { operation: api::dynamic_admission::request::Operation::Delete, old_object: &old, ..creation(NULL) };
    let (mut object, mut notes) = (Value::Null, Notes::default());
    let done = fixture.admission.mutate(&deletion, &alice(), &mut object, &unchanged, &mut notes).await;
    assert_eq!(
        done.unwrap_err().message,
        "Internal error occurred: admission webhook \"a.example.com\" attempted to modify the object, which is not \
         supported for this operation"
    );
}

#[tokio::test]
async fn dry_runs_need_webhooks_without_side_effects() {
    let fixture = Fixture::new(|_, _| Ok(json!({"allowed": true})));
    fixture.mutating("a", json!({"sideEffects": "Some", "failurePolicy": "Ignore"})).await;
    let (mut object, mut notes) = (web(), Notes::default());
    let dry = Request { dry_run: true, ..creation(NULL) };
    let refused = fixture.admission.mutate(&dry, &alice(), &mut object, &unchanged, &mut notes).await.unwrap_err();
    let message = "admission webhook \"a.example.com\" does not support dry run";
    assert_eq!((refused.code, refused.message.as_str()), (400, message));
    assert!(fixture.called().is_empty());
    fixture.mutating("a", json!({"sideEffects": "NoneOnDryRun"})).await;
    fixture.admission.mutate(&dry, &alice(), &mut object, &unchanged, &mut notes).await.unwrap();
    assert!(fixture.calls.lock()[0].1.flag("dryRun"));
}

#[tokio::test]
async fn an_equivalent_kind_is_shown_and_read_back() {
    let fixture = Fixture::new(|_, _| Ok(patch(&json!([{"op": "replace", "path": "/note", "value": "changed"}]))));
    let rule =
        json!({"apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["events"]});
    fixture.mutating("a", json!({"rules": [rule]})).await;
    let mut event = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "n"},
        "message": "m", "involvedObject": {"kind": "Pod"}});
    let request = Request { kind: &kinds::event::KIND, name: "e", ..creation(NULL) };
    let mut notes = Notes::default();
    fixture.admission.mutate(&request, &alice(), &mut event, &unchanged, &mut notes).await.unwrap();
    assert_eq!((event.text("message"), event.text("apiVersion")), ("changed", "v1"));
    assert_eq!(fixture.calls.lock()[0].1.text("kind.group"), "events.k8s.io");
}
