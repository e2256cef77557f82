//! Deletion of namespaces in a simulated cluster.

use serde_json::{Value, json};

use super::*;
use crate::testing::Cluster;

const MAPS: &str = "configmaps";
const NOW: &str = "1970-01-01T00:00:00Z";

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("namespaces", shop());
    cluster
}

fn shop() -> Value {
    json!({"metadata": {"name": "shop"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
}

/// Starts the deletion of the namespace.
fn end(cluster: &mut Cluster) {
    let mut shop = cluster.get("namespaces", "shop").expect("it is there");
    shop.put("metadata.deletionTimestamp", "2026-01-02T00:00:00Z");
    shop.put("status.phase", "Terminating");
    cluster.put("namespaces", shop);
}

fn object(name: &str, finalizers: &[&str]) -> Value {
    let mut object = json!({"metadata": {"name": name, "namespace": "shop"}});
    if !finalizers.is_empty() {
        object.put("metadata.finalizers", finalizers.to_vec());
    }
    object
}

fn is_gone(cluster: &Cluster) -> bool {
    cluster.get("namespaces", "shop").is_none()
}

fn condition(cluster: &Cluster, name: &str) -> Value {
    let shop = cluster.get("namespaces", "shop").expect("it is there");
    let conditions = shop.items("status.conditions");
    assert!(conditions.is_empty() || conditions.len() == 5, "{conditions:?}");
    conditions.iter().find(|condition| condition.text("type") == name).cloned().unwrap_or_default()
}

#[test]
fn a_namespace_that_is_not_deleted_is_unchanged() {
    let mut cluster = cluster();
    cluster.put(MAPS, object("a", &[]));
    cluster.converge();
    assert!(cluster.written.is_empty() && cluster.get(MAPS, "shop/a").is_some());
    assert_eq!(cluster.reconcile(&CONTROLLER, "none"), Outcome::done());
}

#[test]
fn content_is_deleted_before_the_namespace() {
    let mut cluster = cluster();
    let mut service = crate::testing::service("web", "web");
    service.put("metadata.namespace", "shop");
    cluster.put("services/specs", service);
    cluster.put("ipaddresses", json!({"metadata": {"name": "10.96.0.9"}}));
    cluster.put(MAPS, object("a", &[]));
    cluster.put("events", object("an-event", &[]));
    cluster.put("pods", json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": []}}));
    let mut neighbour = object("a", &[]);
    neighbour.put("metadata.namespace", "shop-2");
    cluster.put(MAPS, neighbour);
    end(&mut cluster);
    cluster.converge();
    assert!(is_gone(&cluster));
    assert_eq!(cluster.all("services/specs").len() + cluster.all("events").len() + cluster.all("pods").len(), 0);
    assert!(cluster.get("ipaddresses", "10.96.0.9").is_none(), "the address is free");
    assert_eq!(cluster.all(MAPS).len(), 1, "a namespace whose name begins alike keeps what it has");
    assert_eq!(cluster.writes_to("namespaces"), 1, "nobody is told what took no time");
}

#[test]
fn an_empty_namespace_is_deleted_immediately() {
    let mut cluster = cluster();
    end(&mut cluster);
    cluster.converge();
    assert!(is_gone(&cluster));
    assert_eq!(cluster.written.len(), 1);
}

#[test]
fn remaining_objects_are_reported_and_waited_for() {
    let mut cluster = cluster();
    for name in ["a", "b"] {
        cluster.put(MAPS, object(name, &["example.com/hold"]));
    }
    cluster.put("secrets", object("s", &["example.com/other", "example.com/hold"]));
    cluster.put(MAPS, object("c", &[]));
    end(&mut cluster);
    cluster.converge();
    let remaining = condition(&cluster, "NamespaceContentRemaining");
    assert_eq!(
        remaining,
        json!({
            "type": "NamespaceContentRemaining", "status": "True", "lastTransitionTime": NOW,
            "reason": "SomeResourcesRemain",
            "message": "Some resources are remaining: configmaps. has 2 resource instances, secrets. has 1 resource \
                        instances",
        })
    );
    assert_eq!(
        condition(&cluster, "NamespaceFinalizersRemaining").text("message"),
        "Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances, \
         example.com/other in 1 resource instances"
    );
    assert_eq!(condition(&cluster, "NamespaceDeletionContentFailure").text("reason"), "ContentDeleted");
    assert_eq!(condition(&cluster, "NamespaceDeletionDiscoveryFailure").text("status"), "False");
    let writes = cluster.written.len();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.written.len(), writes, "what is marked and told needs no further write");

    cluster.remove(MAPS, "shop/a");
    cluster.remove("secrets", "shop/s");
    cluster.converge();
    let remaining = condition(&cluster, "NamespaceContentRemaining");
    assert_eq!(remaining.text("message"), "Some resources are remaining: configmaps. has 1 resource instances");
    cluster.remove(MAPS, "shop/b");
    cluster.converge();
    assert!(is_gone(&cluster));
}

#[test]
fn endpoints_are_kept_until_pods_have_ended() {
    let mut cluster = cluster();
    let pod = json!({"metadata": {"name": "p", "namespace": "shop"},
                     "spec": {"nodeName": "one", "terminationGracePeriodSeconds": 30, "containers": []}});
    cluster.put("pods", pod);
    cluster.put(MAPS, object("a", &[]));
    end(&mut cluster);
    cluster.converge();
    let pod = cluster.get("pods", "shop/p").expect("it has time to end");
    assert_eq!(pod.int("metadata.deletionGracePeriodSeconds"), 30);
    assert!(cluster.get(MAPS, "shop/a").is_some_and(|map| !map.has("metadata.deletionTimestamp")));
    let message = condition(&cluster, "NamespaceContentRemaining");
    assert_eq!(message.text("message"), "Some resources are remaining: pods. has 1 resource instances");
    cluster.remove("pods", "shop/p");
    cluster.converge();
    assert!(is_gone(&cluster) && cluster.all(MAPS).is_empty());
}

#[test]
fn other_finalizers_keep_the_namespace() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    let mut shop = shop();
    shop.put("spec.finalizers", json!(["example.com/audit", "kubernetes"]));
    cluster.put("namespaces", shop);
    cluster.put(MAPS, object("a", &["example.com/hold"]));
    end(&mut cluster);
    cluster.converge();
    assert_eq!(condition(&cluster, "NamespaceContentRemaining").text("status"), "True");
    cluster.remove(MAPS, "shop/a");
    cluster.converge();
    let shop = cluster.get("namespaces", "shop").expect("it is kept");
    assert_eq!(*shop.at("spec.finalizers"), json!(["example.com/audit"]));
    assert_eq!(condition(&cluster, "NamespaceContentRemaining").text("reason"), "ContentRemoved");
    assert_eq!(condition(&cluster, "NamespaceFinalizersRemaining").text("status"), "False");
    // Objects that were created before creation was refused are deleted, too.
    cluster.put(MAPS, object("late", &[]));
    cluster.converge();
    assert!(cluster.all(MAPS).is_empty());
}

#[test]
fn a_condition_keeps_its_time_while_it_holds() {
    let mut remains = RemainingContent::default();
    let kind = kinds::by_table(MAPS).expect("a kind");
    remains.add(kind, &[]);
    let mut shop = shop();
    remains.write_conditions(&mut shop, "2026-01-01T00:00:00Z");
    remains.add(kind, &[]);
    remains.write_conditions(&mut shop, "2026-01-02T00:00:00Z");
    let find = |shop: &Value| {
        let conditions = shop.items("status.conditions").iter();
        let mut content = conditions.filter(|condition| condition.text("type") == "NamespaceContentRemaining");
        content.next().cloned().unwrap_or_default()
    };
    assert_eq!(find(&shop).text("lastTransitionTime"), "2026-01-01T00:00:00Z");
    assert!(find(&shop).text("message").ends_with("configmaps. has 2 resource instances"));
    RemainingContent::default().write_conditions(&mut shop, "2026-01-03T00:00:00Z");
    assert_eq!(find(&shop).text("lastTransitionTime"), "2026-01-03T00:00:00Z");
}

#[test]
fn a_large_namespace_is_deleted_in_batches() {
    let mut cluster = cluster();
    for number in 0..BATCH_SIZE + 1 {
        cluster.put(MAPS, object(&format!("m{number}"), &[]));
    }
    end(&mut cluster);
    cluster.deliver_all();
    let outcome = cluster.reconcile(&CONTROLLER, "shop");
    assert_eq!(outcome.transactions.len(), BATCH_SIZE / TRANSACTION_SIZE);
    assert!(outcome.transactions.iter().all(|writes| writes.len() == TRANSACTION_SIZE));
    assert_eq!(outcome.requeue_after, Some(Duration::ZERO));
    cluster.converge();
    assert!(is_gone(&cluster) && cluster.all(MAPS).is_empty());
}
