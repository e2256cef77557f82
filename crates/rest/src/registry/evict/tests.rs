use std::sync::Arc;

use api::admission::Plugins;
use api::kind::Kind;
use api::kinds::{pod, poddisruptionbudget};
use api::value::ValueExt as _;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use store::allocation::Ranges;
use store::{Embedded, KindCatalog, Op, Options, Store};

use super::*;
use crate::authz::Authorizer;
use crate::conversion::Converter;
use crate::dial::DialPolicy;

use crate::dynamic_admission::DynamicAdmission;
use crate::pki::scratch::Scratch;
use crate::registry::key;
use crate::webhooks::Caller;
use crate::webhooks::client::WebhookClient;

struct Fixture {
    registry: Registry,
    _scratch: Scratch,
}

impl Fixture {
    fn new() -> Self {
        let scratch = Scratch::new();
        let index = |_: &str, _: &[u8]| api::facts::Facts::default();
        let store = Embedded::open(scratch.path().join("store"), index, Options::default()).expect("a store");
        let store: Arc<dyn Store> = Arc::new(store);
        let (authorizer, plugins) = (Arc::new(Authorizer::new(store.clone())), Plugins::default());
        let ranges = Ranges { addresses: vec!["10.96.0.0/16".parse().expect("a range")], ports: 30000..=32767 };
        let dial = Arc::new(DialPolicy::new(Vec::new(), None));
        let webhooks: Arc<dyn Caller> = Arc::new(WebhookClient::new(store.clone(), ranges.clone(), dial));
        let conversion = Arc::new(Converter::new(webhooks.clone()));
        let dynamic = DynamicAdmission::new(store.clone(), authorizer.clone(), webhooks, conversion.clone(), &plugins);
        let registry = Registry {
            catalog: KindCatalog::new(&*store),
            ranges,
            authorizer,
            plugins,
            dynamic: Arc::new(dynamic),
            conversion,
            allocates_pod_cidrs: false,
            store,
        };
        Self { registry, _scratch: scratch }
    }

    async fn put(&self, kind: &'static Kind, mut object: Value) {
        let name = object.text("metadata.name").to_owned();
        object.put("metadata.namespace", "default");
        object.put("metadata.uid", name.as_str());
        object.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z");
        let (key, value) = (key(kind, "default", &name), object::encode(&object));
        let op = Op::Put { key, value, facts: Arc::new(kind.facts(&object)), ttl: None };
        self.registry.store.commit(Txn { compares: Vec::new(), ops: vec![op] }).await.expect("stored");
    }

    async fn put_pod(&self, name: &str, phase: &str, ready: bool) {
        let ready = if ready { "True" } else { "False" };
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        let spec = json!({"nodeName": "n1", "terminationGracePeriodSeconds": 30});
        let metadata = json!({"name": name, "labels": {"app": "web"}});
        self.put(&pod::KIND, json!({"metadata": metadata, "spec": spec, "status": status})).await;
    }

    async fn put_budget(&self, allowed: i64) {
        let status = json!({
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 3 - allowed,
            "expectedPods": 3,
        });
        let spec = json!({"minAvailable": 3 - allowed, "selector": {"matchLabels": {"app": "web"}}});
        let managed = json!({
            "manager": "kubectl", "operation": "Update", "apiVersion": "policy/v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:minAvailable": {}, "f:selector": {}}},
        });
        let metadata = json!({"name": "b", "generation": 1, "managedFields": [managed]});
        self.put(&poddisruptionbudget::KIND, json!({"metadata": metadata, "spec": spec, "status": status})).await;
    }

    fn get(&self, kind: &'static Kind, name: &str) -> Option<Value> {
        let entry = self.registry.store.get(&key(kind, "default", name))?;
        Some(old_object(kind, &entry))
    }

    /// The disruptions that are left, and the Pods that have used some.
    fn budget(&self) -> (i64, Vec<String>) {
        let budget = self.get(&poddisruptionbudget::KIND, "b").expect("a budget");
        let disrupted = budget.map("status.disruptedPods").into_iter().flatten().map(|(name, _)| name.clone());
        (budget.int("status.disruptionsAllowed"), disrupted.collect())
    }

    fn is_deleting(&self, name: &str) -> bool {
        self.get(&pod::KIND, name).expect("a Pod").has("metadata.deletionTimestamp")
    }

    async fn evict(&self, user: &User, dry_run: bool, name: &str, deletion: Deletion) -> Result<(), Status> {
        let call = Call {
            kind: &pod::KIND,
            namespace: "default",
            subresource: pod::KIND.subresource("eviction"),
            manager: "",
            dry_run,
            now: Timestamp::UNIX_EPOCH,
            user,
            audit: None,
        };
        self.registry.evict(&call, name, &deletion, &mut Vec::new()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_evictions_one_gets_the_last_disruption() {
    let (fixture, user) = (Fixture::new(), User::local());
    fixture.put_budget(1).await;
    let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    for name in &names {
        fixture.put_pod(name, "Running", true).await;
    }
    let all = names.iter().map(|name| fixture.evict(&user, false, name, Deletion::default()));
    let done = join_all(all).await;
    let (allowed, disrupted) = fixture.budget();
    assert_eq!((allowed, disrupted.len()), (0, 1));
    for (name, done) in names.iter().zip(done) {
        assert_eq!((done.is_ok(), fixture.is_deleting(name)), (*name == disrupted[0], *name == disrupted[0]), "{name}");
        assert_eq!(done.err().map(|status| status.code), (*name != disrupted[0]).then_some(429));
    }
    let evicted = fixture.get(&pod::KIND, &disrupted[0]).expect("a Pod");
    let target = &evicted.items("status.conditions")[1];
    assert_eq!((target.text("type"), target.text("reason")), (disruption::TARGET, CONDITION.0));
    let budget = fixture.get(&poddisruptionbudget::KIND, "b").expect("a budget");
    let managers: Vec<&str> =
        budget.items("metadata.managedFields").iter().map(|entry| entry.text("manager")).collect();
    assert!(managers.contains(&MANAGER), "{managers:?}");
}

#[tokio::test]
async fn what_is_refused_uses_no_disruption() {
    let (fixture, user) = (Fixture::new(), User::local());
    let other_node = User { name: "system:node:n2".into(), groups: vec!["system:nodes".into()], ..User::default() };
    fixture.put_budget(1).await;
    fixture.put_pod("p", "Running", true).await;
    let refused = fixture.evict(&other_node, false, "p", Deletion::default()).await.expect_err("a Pod of another node");
    assert_eq!(refused.code, 403, "{refused}");
    let uid = Deletion { uid: Some("another".into()), ..Deletion::default() };
    assert_eq!(fixture.evict(&user, false, "p", uid).await.expect_err("another Pod").code, 409);
    let revision = Deletion { revision: Some("1".into()), ..Deletion::default() };
    assert_eq!(fixture.evict(&user, false, "p", revision).await.expect_err("an older Pod").code, 409);
    assert_eq!(fixture.evict(&user, true, "p", Deletion::default()).await, Ok(()));
    assert_eq!((fixture.budget(), fixture.is_deleting("p")), ((1, Vec::new()), false));
    assert_eq!(fixture.get(&pod::KIND, "p").expect("a Pod").items("status.conditions").len(), 1);
    fixture.put_budget(0).await;
    for dry_run in [true, false] {
        let refused = fixture.evict(&user, dry_run, "p", Deletion::default()).await.expect_err("used up");
        assert_eq!((refused.code, refused.reason), (429, Some("TooManyRequests")));
    }
    assert!(!fixture.is_deleting("p"));
}

#[tokio::test]
async fn pods_that_are_not_protected_are_evicted() {
    let (fixture, user) = (Fixture::new(), User::local());
    fixture.put_budget(0).await;
    for (name, phase) in [("pending", "Pending"), ("unready", "Running"), ("ended", "Failed")] {
        fixture.put_pod(name, phase, false).await;
        assert_eq!(fixture.evict(&user, false, name, Deletion::default()).await, Ok(()), "{name}");
        // A terminated Pod has no process to stop: deleted at once.
        assert!(fixture.get(&pod::KIND, name).is_none_or(|pod| pod.has("metadata.deletionTimestamp")), "{name}");
    }
    assert_eq!(fixture.evict(&user, false, "unready", Deletion::default()).await, Ok(()), "again");
    assert_eq!(fixture.budget(), (0, Vec::new()));
    let now = fixture.get(&pod::KIND, "pending").expect("a Pod");
    let revision = Deletion { revision: Some(now.text("metadata.resourceVersion").into()), ..Deletion::default() };
    assert_eq!(fixture.evict(&user, false, "pending", revision).await, Ok(()), "under its revision");
    assert_eq!(fixture.evict(&user, false, "gone", Deletion::default()).await.expect_err("no Pod").code, 404);
}
