//! Release of addresses; no address is assigned twice.

use super::*;
use crate::testing::Cluster;

fn with_two() -> Cluster {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/29"], &json!({})));
    cluster.put(SERVICES, balancer("one", &[]));
    cluster.put(SERVICES, balancer("two", &[]));
    cluster.converge();
    assert_eq!(claimed(&cluster).len(), 2);
    cluster
}

#[test]
fn s39_another_type_releases_the_address() {
    let mut cluster = with_two();
    let mut changed = cluster.get(SERVICES, "default/one").expect("the Service");
    // The server clears the status itself.
    changed.put("spec.type", "ClusterIP");
    changed.put("status.loadBalancer", json!({}));
    cluster.put(SERVICES, changed);
    cluster.converge();
    let service = cluster.get(SERVICES, "default/one").expect("the Service");
    assert!(!service.has("metadata.finalizers") && !service.has("status.conditions"), "{service}");
    assert!(has_event(&cluster, "DeletingLoadBalancer", "") && has_event(&cluster, "DeletedLoadBalancer", ""));
    assert_eq!(claimed(&cluster), BTreeMap::from([("192.0.2.1".to_owned(), vec!["two".to_owned()])]));
    let mut back = service;
    back.put("spec.type", "LoadBalancer");
    cluster.put(SERVICES, back);
    cluster.converge();
    assert_eq!(shown(&cluster, "one"), "192.0.2.0");
    assert_agreed(&cluster);
}

#[test]
fn deleting_waits_for_the_address_to_be_free() {
    let mut cluster = with_two();
    let mut going = cluster.get(SERVICES, "default/one").expect("the Service");
    going.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    going.put("metadata.finalizers", json!([FINALIZER, "example.com/other"]));
    cluster.put(SERVICES, going);
    cluster.converge();
    let held = cluster.get(SERVICES, "default/one").expect("somebody else still holds it");
    assert_eq!(held.texts("metadata.finalizers"), ["example.com/other"]);
    assert_eq!((shown(&cluster, "one").as_str(), claimed(&cluster).len()), ("", 1));
    assert!(has_event(&cluster, "DeletedLoadBalancer", "192.0.2.0 is free again"));
}

#[test]
fn claims_without_a_service_are_released_at_startup() {
    let mut cluster = with_two();
    // The finalizer is removed and the Service is deleted while no controller runs.
    cluster.remove(SERVICES, "default/one");
    // Another Service of the same name does not own the address.
    cluster.remove(SERVICES, "default/two");
    let mut reborn = balancer("two", &[("spec.loadBalancerIP", json!("192.0.2.5"))]);
    reborn.put("metadata.uid", "another");
    cluster.put(SERVICES, reborn);
    cluster.restart();
    cluster.converge();
    assert_eq!(claimed(&cluster), BTreeMap::from([("192.0.2.5".to_owned(), vec!["two".to_owned()])]));
    assert_agreed(&cluster);
}

/// A pending Service: no pool has a free address.
fn with_one_that_waits() -> Cluster {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("tiny", &["192.0.2.1"], &json!({})));
    cluster.put(SERVICES, balancer("first", &[]));
    cluster.converge();
    cluster.put(SERVICES, balancer("waits", &[]));
    cluster.converge();
    let waits = cluster.get(SERVICES, "default/waits").expect("the Service");
    assert_eq!((shown(&cluster, "waits").as_str(), waits.texts("metadata.finalizers")), ("", vec![FINALIZER]));
    assert_eq!(claimed(&cluster).len(), 1);
    cluster
}

#[test]
fn s43_a_pending_service_is_kept_until_it_is_cleaned_up_also_when_disabled() {
    for enabled in [true, false] {
        let mut cluster = with_one_that_waits();
        cluster.settings.load_balancer.enabled = enabled;
        cluster.restart();
        let mut going = cluster.get(SERVICES, "default/waits").expect("the Service");
        going.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
        cluster.put(SERVICES, going);
        cluster.converge();
        assert!(cluster.get(SERVICES, "default/waits").is_none(), "nothing holds it");
        assert!(has_event(&cluster, "DeletedLoadBalancer", ""));
    }
}

#[test]
fn s39_a_pending_service_that_becomes_another_type_loses_the_finalizer_once() {
    let mut cluster = with_one_that_waits();
    let mut changed = cluster.get(SERVICES, "default/waits").expect("the Service");
    changed.put("spec.type", "ClusterIP");
    cluster.put(SERVICES, changed);
    cluster.converge();
    let mut service = cluster.get(SERVICES, "default/waits").expect("the Service");
    assert!(!service.has("metadata.finalizers") && !service.has("status.conditions"), "{service}");
    // It belongs to another controller now.
    service.put("metadata.finalizers", json!([FINALIZER]));
    cluster.put(SERVICES, service);
    cluster.converge();
    let service = cluster.get(SERVICES, "default/waits").expect("the Service");
    assert_eq!(service.texts("metadata.finalizers"), [FINALIZER]);
}

#[test]
fn s46_a_service_that_moved_to_another_class_during_downtime_releases_the_address() {
    let mut cluster = with_two();
    let mut theirs = cluster.get(SERVICES, "default/one").expect("the Service");
    theirs.put("spec.loadBalancerClass", "example.com/lb");
    theirs.put("status.loadBalancer", json!({"ingress": [{"ip": "198.51.100.1", "ipMode": "VIP"}]}));
    cluster.put(SERVICES, theirs);
    cluster.converge();
    assert_eq!(claimed(&cluster), BTreeMap::from([("192.0.2.1".to_owned(), vec!["two".to_owned()])]));
    assert_eq!(shown(&cluster, "one"), "198.51.100.1", "what the other gave stays");
}

#[test]
fn the_finalizer_of_another_controller_is_kept() {
    let mut cluster = cluster();
    let foreign = [
        ("spec.type", json!("ClusterIP")),
        ("metadata.finalizers", json!([FINALIZER])),
        ("metadata.deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ];
    cluster.put(SERVICES, balancer("theirs", &foreign));
    cluster.converge();
    assert!(cluster.get(SERVICES, "default/theirs").is_some());
}

#[test]
fn a_status_of_another_writer_is_corrected() {
    let mut cluster = with_two();
    let mut forged = cluster.get(SERVICES, "default/one").expect("the Service");
    forged.put("status.loadBalancer", json!({"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}));
    cluster.put(SERVICES, forged);
    cluster.converge();
    assert_eq!((shown(&cluster, "one").as_str(), shown(&cluster, "two").as_str()), ("192.0.2.0", "192.0.2.1"));
    assert_agreed(&cluster);
}

#[test]
fn two_controllers_with_stale_caches_cannot_assign_one_address() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("tiny", &["192.0.2.1"], &json!({})));
    cluster.put(SERVICES, balancer("one", &[]));
    cluster.put(SERVICES, balancer("two", &[]));
    cluster.deliver_all();
    // Both decide on the same cache; the transaction of the second fails because the address is claimed.
    let outcomes = ["default/one", "default/two"].map(|key| cluster.reconcile(&CONTROLLER, key));
    let results = outcomes.map(|outcome| cluster.try_commit(&outcome.transactions[0]));
    assert_eq!(results, [true, false]);
    cluster.converge();
    assert_eq!((shown(&cluster, "one").as_str(), shown(&cluster, "two").as_str()), ("192.0.2.1", ""));
    assert_agreed(&cluster);
}
