use std::sync::Arc;

use api::admission::Plugins;
use api::kinds::{configmap, deployment, namespace};
use jiff::Timestamp;
use store::allocation::Ranges;

use super::super::{Change, Outcome, Shown, Source};
use super::*;
use crate::auth::User;
use crate::authz::Authorizer;
use crate::dynamic_admission::testing::{Fixture, alice, patch};
use crate::view;

/// A registry whose webhooks answer from a function.
struct Cluster {
    registry: Registry,
    calls: Arc<parking_lot::Mutex<Vec<(String, Value)>>>,
    fixture: Fixture,
    user: User,
}

impl Cluster {
    async fn new(answering: impl Fn(&str, &Value) -> Result<Value, String> + Send + Sync + 'static) -> Self {
        let fixture = Fixture::new(answering);
        fixture.put(&namespace::KIND, json!({"metadata": {"name": "n"}})).await;
        let store = fixture.store.clone();
        let calls = fixture.calls.clone();
        let registry = Registry {
            authorizer: Arc::new(Authorizer::new(store.clone())),
            dynamic: Arc::new(fixture.again()),
            conversion: fixture.converter(),
            catalog: store::KindCatalog::new(&*store),
            store,
            ranges: Ranges { addresses: vec!["10.96.0.0/16".parse().unwrap()], ports: 30000..=32767 },
            plugins: Plugins::none(),
            allocates_pod_cidrs: false,
        };
        Self { registry, calls, fixture, user: alice() }
    }

    fn call(&self, kind: &'static Kind) -> Call<'_> {
        Call {
            kind,
            namespace: "n",
            subresource: None,
            manager: "test",
            dry_run: false,
            now: Timestamp::UNIX_EPOCH,
            user: &self.user,
            audit: None,
        }
    }

    async fn create(&self, name: &str) -> Result<Value, Status> {
        let object = json!({"metadata": {"name": name}, "data": {"a": "b"}});
        let call = self.call(&configmap::KIND);
        Ok(object_of(self.registry.create(&call, object, &mut Vec::new()).await?))
    }

    fn operations(&self) -> Vec<String> {
        self.calls.lock().iter().map(|(host, request)| format!("{host} {}", request.text("operation"))).collect()
    }
}

fn object_of(outcome: Outcome) -> Value {
    match outcome.shown {
        Shown::Entry(entry) => view::read(&configmap::KIND, &entry),
        Shown::Object(object) | Shown::Status(object) => object,
    }
}

fn add(path: &str, value: &str) -> Value {
    patch(&json!([{"op": "add", "path": path, "value": value}]))
}

#[tokio::test]
async fn a_new_object_is_changed_and_then_checked() {
    let cluster = Cluster::new(|host, _| match host {
        "m" => Ok(add("/data/by", "webhook")),
        _ => Ok(json!({"allowed": true})),
    });
    let cluster = cluster.await;
    cluster.fixture.mutating("m", json!({})).await;
    cluster.fixture.validating("v", json!({})).await;
    let object = cluster.create("x").await.unwrap();
    assert_eq!((object.text("data.a"), object.text("data.by")), ("b", "webhook"));
    let calls = cluster.calls.lock();
    let (seen_first, seen_last) = (&calls[0].1, &calls[1].1);
    assert!(!seen_first.has("object.metadata.uid") && seen_last.has("object.metadata.uid"));
    assert_eq!(seen_last.text("object.data.by"), "webhook");
    assert_eq!((seen_last.text("object.kind"), seen_last.text("name")), ("ConfigMap", "x"));
    assert_eq!(seen_last.at("options").text("kind"), "CreateOptions");
    assert_eq!(seen_last.at("userInfo"), &json!({"username": "alice"}));
}

#[tokio::test]
async fn refused_objects_are_not_stored() {
    let cluster = Cluster::new(|_, _| Ok(json!({"allowed": false, "status": {"message": "no"}}))).await;
    cluster.fixture.validating("v", json!({})).await;
    let status = cluster.create("x").await.unwrap_err();
    assert_eq!(status.message, "admission webhook \"v.example.com\" denied the request: no");
    let call = cluster.call(&configmap::KIND);
    assert!(cluster.registry.get(&call, "x").is_err());
}

#[tokio::test]
async fn updates_and_deletions_are_admitted() {
    let cluster = Cluster::new(|host, request| match (host, request.text("operation")) {
        ("m", "UPDATE") => Ok(add("/data/by", "webhook")),
        ("v", "DELETE") => Ok(json!({"allowed": false, "warnings": ["careful"]})),
        _ => Ok(json!({"allowed": true})),
    });
    let cluster = cluster.await;
    cluster.create("x").await.unwrap();
    cluster.fixture.mutating("m", json!({})).await;
    cluster.fixture.validating("v", json!({})).await;
    let call = cluster.call(&configmap::KIND);
    let body = json!({"metadata": {"name": "x", "namespace": "n"}, "data": {"a": "c"}});
    let change = Change { name: "x", source: Source::Body(&body) };
    let mut warnings = Vec::new();
    let updated = object_of(cluster.registry.update(&call, &change, &mut warnings).await.unwrap());
    assert_eq!((updated.text("data.a"), updated.text("data.by")), ("c", "webhook"));
    let deleted = cluster.registry.delete(&call, "x", &Deletion::default(), &mut warnings).await;
    assert_eq!(
        deleted.map(|_| ()).unwrap_err().message,
        "admission webhook \"v.example.com\" denied the request without explanation"
    );
    assert_eq!(warnings, ["careful"]);
    assert_eq!(cluster.operations(), ["m UPDATE", "v UPDATE", "m DELETE", "v DELETE"]);
    let calls = cluster.calls.lock();
    assert_eq!((calls[1].1.text("oldObject.data.a"), calls[1].1.text("object.data.a")), ("b", "c"));
    assert_eq!((calls[3].1.at("object"), calls[3].1.text("oldObject.data.by")), (&Value::Null, "webhook"));
    assert_eq!(calls[3].1.text("options.kind"), "DeleteOptions");
}

#[tokio::test]
async fn a_conflict_runs_admission_again_with_the_new_object() {
    let cluster = Arc::new(Cluster::new(|_, _| Ok(json!({"allowed": true}))).await);
    let before = cluster.create("x").await.unwrap();
    cluster.fixture.validating("v", json!({})).await;
    // Another writer is faster the first time: the patch runs again on what it wrote.
    let raced = std::sync::atomic::AtomicBool::new(false);
    let (store, key) = (cluster.registry.store.clone(), cluster.call(&configmap::KIND).key("x"));
    let patch = |old: &Value, _: &mut Vec<String>| {
        let mut new = old.clone();
        new.put("data.a", "patched");
        if !raced.swap(true, std::sync::atomic::Ordering::SeqCst) {
            let mut other = before.clone();
            other.put("data.other", "writer");
            let op = store::Op::Put {
                key: key.clone(),
                value: api::object::encode(&other),
                facts: Arc::default(),
                ttl: None,
            };
            // The transaction is handed over by the call; its answer is not needed.
            drop(store.commit(store::Txn { compares: Vec::new(), ops: vec![op] }));
        }
        Ok(new)
    };
    let call = cluster.call(&configmap::KIND);
    let change = Change { name: "x", source: Source::Patch(&patch) };
    cluster.registry.update(&call, &change, &mut Vec::new()).await.unwrap();
    let calls = cluster.calls.lock();
    let last = &calls.last().unwrap().1;
    assert_eq!((last.text("object.data.a"), last.text("object.data.other")), ("patched", "writer"));
    assert_eq!(calls.len(), 2);
}

#[tokio::test]
async fn a_scale_is_shown_as_a_scale() {
    let cluster = Cluster::new(|host, request| match (host, request.text("subResource")) {
        ("m", "scale") => Ok(patch(&json!([{"op": "replace", "path": "/spec/replicas", "value": 7}]))),
        _ => Ok(json!({"allowed": true})),
    });
    let cluster = cluster.await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let object = json!({"metadata": {"name": "d", "namespace": "n", "uid": "u"}, "spec":
        {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    cluster.fixture.put(&deployment::KIND, object).await;
    cluster.fixture.mutating("m", json!({})).await;
    cluster.fixture.validating("v", json!({})).await;
    let call = Call { subresource: deployment::KIND.subresource(SCALE), ..cluster.call(&deployment::KIND) };
    let patch = |old: &Value, _: &mut Vec<String>| {
        let mut new = old.clone();
        new.put("spec.replicas", 3);
        Ok(new)
    };
    let change = Change { name: "d", source: Source::Patch(&patch) };
    cluster.registry.update(&call, &change, &mut Vec::new()).await.unwrap();
    let calls = cluster.calls.lock();
    assert_eq!(calls[0].1.at("kind"), &json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!((calls[0].1.int("object.spec.replicas"), calls[0].1.int("oldObject.spec.replicas")), (3, 1));
    assert_eq!((calls[1].1.int("object.spec.replicas"), calls[1].1.text("object.kind")), (7, "Scale"));
}

#[tokio::test]
async fn messages_are_admitted_on_their_own() {
    let cluster = Cluster::new(|host, _| match host {
        "m" => Ok(patch(&json!([{"op": "add", "path": "/target/name", "value": "other"}]))),
        _ => Ok(json!({"allowed": true})),
    });
    let cluster = cluster.await;
    cluster.fixture.mutating("m", json!({})).await;
    cluster.fixture.validating("v", json!({})).await;
    let pods = &api::kinds::pod::KIND;
    let mut binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let about = About { operation: Operation::Create, kind: pods, subresource: pods.subresource("binding"), name: "p" };
    cluster.registry.admit_message(&cluster.call(pods), about, &mut binding, &mut Vec::new()).await.unwrap();
    assert_eq!(binding.text("target.name"), "other");
    let calls = cluster.calls.lock();
    assert_eq!((calls[1].1.text("subResource"), calls[1].1.text("kind.kind")), ("binding", "Binding"));
    assert_eq!(calls[1].1.text("operation"), "CREATE");
    let bound = Call { subresource: pods.subresource("binding"), ..cluster.call(pods) };
    assert!(!is_whole(&bound), "the change of the Pod that it becomes is not asked about again");
}

#[tokio::test]
async fn parameters_must_be_readable_by_the_author_of_a_policy() {
    use api::kinds::admissionregistration::{binding, policy};
    let cluster = Cluster::new(|_, _| Ok(json!({"allowed": true}))).await;
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}]);
    let object = json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "true"}]}});
    let mut defaulted = object.clone();
    policy::KIND.rules.default(&mut defaulted);
    let call = Call { namespace: "", ..cluster.call(&policy::KIND) };
    let refused = cluster.registry.create(&call, defaulted, &mut Vec::new()).await.map(|_| ()).unwrap_err();
    assert_eq!(
        refused.message,
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: user &{alice  \
         [] map[]} must have \"get\" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)"
    );
    let spec = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef":
        {"name": "c", "parameterNotFoundAction": "Deny"}});
    let call = Call { namespace: "", ..cluster.call(&binding::KIND) };
    let object = json!({"metadata": {"name": "b"}, "spec": spec});
    let refused = cluster.registry.create(&call, object, &mut Vec::new()).await.map(|_| ()).unwrap_err();
    assert!(refused.message.ends_with(
        "spec.paramRef: Forbidden: unable to get policy p to determine minimum required permissions and user &{alice  [] \
         map[]} does not have \"get\" permission for all groups, versions and resources"
    ));
}
