use api::kinds::{configmap, pod};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use store::{Compare, Key, Table};

use super::*;

/// Adds a label, and refuses Pods named `bad`.
struct Labels;

impl AdmitNew for Labels {
    fn is_needed(&self) -> bool {
        true
    }

    fn mutate<'a>(&'a self, _: Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<(), Status>> {
        object.put("metadata.labels.seen", "true");
        futures_util::future::ready(Ok(())).boxed()
    }

    fn validate<'a>(&'a self, request: Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<(), Status>> {
        assert_eq!((object.text("kind"), request.user), (request.kind.kind, USER));
        let refused = request.name == "bad";
        let why = || Status::forbidden(request.kind.resource(), request.name, "it is bad");
        futures_util::future::ready(if refused { Err(why()) } else { Ok(()) }).boxed()
    }
}

fn put(table: &str, name: &str, modified: u64, txn: &mut Txn) {
    let key = Key::new(Table::named(table), format!("n/{name}"));
    let object = json!({"metadata": {"name": name, "namespace": "n", "ownerReferences": [{"kind": "ReplicaSet"}]}});
    txn.compares.push(Compare { key: key.clone(), modified });
    let value = Bytes::from(object.to_string());
    txn.ops.push(Op::Put { key, value, facts: std::sync::Arc::default(), ttl: None });
}

#[test]
fn new_objects_are_changed_and_no_others() {
    let pod = |modified| Write::Object { table: pod::KIND.table, object: Box::new(json!({"metadata": {}})), modified };
    let mut writes = [pod(0), pod(7)];
    assert_eq!(mutate(&Labels, &mut writes).now_or_never(), Some(Ok(())));
    let labels = writes.map(|write| match write {
        Write::Object { object, .. } => object.at("metadata.labels").clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(labels, [json!({"seen": "true"}), Value::Null]);
}

/// Moves objects to another namespace.
struct Moves;

impl AdmitNew for Moves {
    fn is_needed(&self) -> bool {
        true
    }

    fn mutate<'a>(&'a self, _: Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<(), Status>> {
        object.put("metadata.namespace", "kube-system");
        futures_util::future::ready(Ok(())).boxed()
    }

    fn validate<'a>(&'a self, _: Request<'a>, _: &'a Value) -> BoxFuture<'a, Result<(), Status>> {
        futures_util::future::ready(Ok(())).boxed()
    }
}

#[test]
fn a_webhook_does_not_move_an_object_to_another_namespace() {
    let object = json!({"metadata": {"namespace": "n", "generateName": "a-"}});
    let mut writes = [Write::Object { table: pod::KIND.table, object: Box::new(object), modified: 0 }];
    let refused = mutate(&Moves, &mut writes).now_or_never().expect("it does not wait").expect_err("refused");
    assert!(refused.why.ends_with("a webhook changed the name or namespace of the object"), "{}", refused.why);
}

#[test]
fn a_refusal_names_the_owner() {
    let mut txn = Txn::default();
    put(configmap::KIND.table, "good", 0, &mut txn);
    put(pod::KIND.table, "bad", 7, &mut txn);
    assert_eq!(validate(&Labels, &txn).now_or_never(), Some(Ok(())), "an update is not asked about");
    put(pod::KIND.table, "bad", 0, &mut txn);
    let refused = validate(&Labels, &txn).now_or_never().expect("it does not wait").expect_err("refused");
    assert_eq!((refused.namespace.as_str(), refused.owner.text("kind")), ("n", "ReplicaSet"));
    assert_eq!(refused.why, "pods \"bad\" is forbidden: it is bad");
}

#[test]
fn without_policies_nothing_is_evaluated() {
    assert!(needed(None).is_none());
    assert!(needed(Some(&Dynamic(std::sync::Arc::new(Labels)))).is_some());
}
