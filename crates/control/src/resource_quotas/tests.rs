use api::quota::{Request, check_request};

use super::*;
use crate::testing::{Cluster, pod, service};

const QUOTAS: &str = "resourcequotas";

fn cluster(hard: &Value) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster
        .put(QUOTAS, json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}, "status": {}}));
    cluster
}

fn status(cluster: &Cluster) -> Value {
    cluster.get(QUOTAS, "default/q").expect("a quota").at("status").clone()
}

/// The delays of the recalculations that a change of an object causes.
fn delays(cluster: &Cluster, table: &str, old: Option<&Value>, new: &Value, deleted: bool) -> Vec<Duration> {
    let entry = |object: &Value, modified| {
        let key = Key::new(Table::named(table), format!("default/{}", object.text("metadata.name")));
        let (value, facts) = (object::encode(object), Arc::default());
        Arc::new(Entry { key, created: 1, modified, expires: None, value, facts })
    };
    let mut cache = crate::Cache::default();
    let previous = old.map(|old| entry(old, 1));
    let change = cache.apply(&cluster.store, &entry(new, 2), previous.as_ref(), deleted, cluster.instant);
    let mut affected = Vec::new();
    affected_keys(&cluster.view(None), &change, &mut AffectedKeys::new(&mut affected));
    affected.into_iter().map(|item| item.delay).collect()
}

#[test]
fn status_is_the_usage_of_all_objects() {
    let hard =
        json!({"services": "5", "services.nodeports": "3", "count/configmaps": "1", "requests.cpu": "1", "pods": "9"});
    let mut cluster = cluster(&hard);
    let mut open = service("b", "b");
    open.put("spec.type", "NodePort");
    let mut busy = pod("p", "a", 1, true);
    busy.put("spec.containers", json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "300m"}}}]));
    let mut other = service("elsewhere", "a");
    other.put("metadata.namespace", "other");
    for (table, object) in [
        ("services/specs", service("a", "a")),
        ("services/specs", open),
        ("services/specs", other),
        ("pods", busy.clone()),
    ] {
        cluster.put(table, object);
    }
    cluster.converge();
    let used = |services: &str, ports: &str, pods: &str, cpu: &str| {
        json!({
            "services": services, "services.nodeports": ports, "count/configmaps": "0", "pods": pods,
            "requests.cpu": cpu,
        })
    };
    assert_eq!(status(&cluster), json!({"hard": hard, "used": used("2", "1", "1", "300m")}));
    assert_eq!(cluster.writes_to(QUOTAS), 1);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to(QUOTAS), 0, "no write without a change");

    cluster.remove("services/specs", "default/b");
    busy.put("status.phase", "Succeeded");
    cluster.put("pods", busy);
    cluster.converge();
    assert_eq!(status(&cluster).at("used"), &used("1", "0", "0", "0"));
}

#[test]
fn a_changed_spec_is_recalculated() {
    let mut cluster = cluster(&json!({"services": "5"}));
    cluster.converge();
    let mut quota = cluster.get(QUOTAS, "default/q").expect("a quota");
    quota.put("spec.hard", json!({"resourcequotas": "2", "count/frobs.example.com": "1"}));
    cluster.put(QUOTAS, quota.clone());
    cluster.converge();
    let status_now = status(&cluster);
    assert_eq!(status_now.at("hard"), quota.at("spec.hard"));
    assert_eq!(status_now.at("used"), &json!({"resourcequotas": "1"}), "the usage of unknown kinds is unknown");
}

#[test]
fn a_quota_without_limits_is_not_written() {
    let mut cluster = cluster(&json!({}));
    cluster.converge();
    assert_eq!((cluster.writes_to(QUOTAS), status(&cluster)), (0, json!({})));
}

#[test]
fn a_charge_during_a_recalculation_is_kept() {
    let mut cluster = cluster(&json!({"services": "5"}));
    cluster.converge();
    cluster.put("services/specs", service("a", "a"));
    let Outcome { transactions, .. } = cluster.reconcile(&CONTROLLER, "default/q");
    let mut quota = cluster.get(QUOTAS, "default/q").expect("a quota");
    let new = service("b", "b");
    let request =
        Request { group: "", plural: "services", subresource: "", old: None, new: &new, now: Timestamp::UNIX_EPOCH };
    let charges = check_request(std::slice::from_ref(&quota), &request).expect("room");
    quota.put("status.used", charges[0].used.clone());
    cluster.put(QUOTAS, quota);
    cluster.put("services/specs", new);
    assert!(!cluster.try_commit(&transactions[0]), "the quota has changed");
    cluster.converge();
    assert_eq!(status(&cluster).at("used"), &json!({"services": "2"}));
}

#[test]
fn a_pod_past_its_grace_period_is_not_counted() {
    let mut cluster = cluster(&json!({"pods": "5"}));
    let mut stuck = pod("p", "a", 1, true);
    stuck.put("metadata.deletionTimestamp", "1970-01-01T00:00:00Z");
    stuck.put("metadata.deletionGracePeriodSeconds", 30);
    cluster.put("pods", stuck);
    let outcome = cluster.reconcile(&CONTROLLER, "default/q");
    assert_eq!(outcome.requeue_after, Some(Duration::from_secs(30) + AFTER_END));
    let after = |seconds| View { now: Timestamp::from_second(seconds).expect("a time"), ..cluster.view(None) };
    let used = |outcome: &Outcome| match outcome.transactions[0].as_slice() {
        [Write::Subresource { object, .. }] => object.text("status.used.pods").to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (used(&reconcile(&after(30), "default/q")), used(&reconcile(&after(31), "default/q"))),
        ("1".into(), "0".into())
    );
}

#[test]
fn only_changes_of_usage_lead_to_a_recalculation() {
    let mut cluster = cluster(&json!({"pods": "5"}));
    cluster.converge();
    let old = pod("p", "a", 1, true);
    let changed = |path: &str, value: Value| {
        let mut new = old.clone();
        new.put(path, value);
        delays(&cluster, "pods", Some(&old), &new, false)
    };
    assert!(changed("metadata.labels", json!({"a": "b"})).is_empty());
    assert_eq!(changed("status.phase", json!("Failed")), [REPLENISH_DELAY]);
    assert_eq!(changed("spec.activeDeadlineSeconds", json!(5)), [REPLENISH_DELAY]);
    assert_eq!(delays(&cluster, "pods", Some(&old), &old, true), [REPLENISH_DELAY]);
    assert_eq!(delays(&cluster, "pods", None, &old, false), [AUDIT_DELAY]);
}

#[test]
fn a_changed_spec_comes_before_a_changed_status() {
    let mut cluster = cluster(&json!({"pods": "5"}));
    cluster.converge();
    let old = cluster.get(QUOTAS, "default/q").expect("a quota");
    let changed = |path: &str, value: Value| {
        let mut new = old.clone();
        new.put(path, value);
        delays(&cluster, QUOTAS, Some(&old), &new, false)
    };
    assert_eq!(changed("spec.hard", json!({"pods": "6"})), [Duration::ZERO]);
    assert_eq!(changed("status.used", json!({"pods": "1"})), [AUDIT_DELAY]);
    assert!(delays(&cluster, QUOTAS, Some(&old), &old, true).is_empty());
}

#[test]
fn custom_resources_are_counted_when_they_are_defined() {
    const NAME: &str = "count/widgets.example.com";
    const WIDGETS: &str = "example.com/widgets";
    let mut cluster = Cluster::new(&[&CONTROLLER, &crate::custom_resources::CONTROLLER]);
    cluster.put(
        QUOTAS,
        json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {NAME: "2"}}, "status": {}}),
    );
    cluster.converge();
    assert_eq!(status(&cluster).at("used").get(NAME), None);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    cluster.put(
        customresourcedefinition::KIND.table,
        json!({
            "metadata": {"name": "widgets.example.com", "generation": 1},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        }),
    );
    cluster.converge();
    assert_eq!(status(&cluster).at("used"), &json!({NAME: "0"}));
    cluster.put(WIDGETS, json!({"metadata": {"name": "a", "namespace": "default"}}));
    cluster.converge();
    assert_eq!(status(&cluster).at("used"), &json!({NAME: "1"}));
    cluster.remove(WIDGETS, "default/a");
    cluster.converge();
    assert_eq!(status(&cluster).at("used"), &json!({NAME: "0"}));
}
