//! What is given back, and that nothing is given twice.

use super::*;
use crate::testing::Cluster;

fn with_two() -> Cluster {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/29"], &json!({})));
    cluster.put(SERVICES, balancer("one", &[]));
    cluster.put(SERVICES, balancer("two", &[]));
    cluster.settle();
    assert_eq!(claimed(&cluster).len(), 2);
    cluster
}

#[test]
fn s39_another_type_gives_the_address_back() {
    let mut cluster = with_two();
    let mut changed = cluster.get(SERVICES, "default/one").expect("the Service");
    // As the server leaves it: it clears the status itself.
    changed.put("spec.type", "ClusterIP");
    changed.put("status.loadBalancer", json!({}));
    cluster.put(SERVICES, changed);
    cluster.settle();
    let service = cluster.get(SERVICES, "default/one").expect("the Service");
    assert!(!service.has("metadata.finalizers") && !service.has("status.conditions"), "{service}");
    assert!(has_event(&cluster, "DeletingLoadBalancer", "") && has_event(&cluster, "DeletedLoadBalancer", ""));
    assert_eq!(claimed(&cluster), BTreeMap::from([("192.0.2.1".to_owned(), vec!["two".to_owned()])]));
    let mut back = service;
    back.put("spec.type", "LoadBalancer");
    cluster.put(SERVICES, back);
    cluster.settle();
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
    cluster.settle();
    let held = cluster.get(SERVICES, "default/one").expect("somebody else still holds it");
    assert_eq!(held.texts("metadata.finalizers"), ["example.com/other"]);
    assert_eq!((shown(&cluster, "one").as_str(), claimed(&cluster).len()), ("", 1));
    assert!(has_event(&cluster, "DeletedLoadBalancer", "192.0.2.0 is free again"));
}

#[test]
fn a_claim_that_lost_its_service_is_given_back_at_the_start() {
    let mut cluster = with_two();
    // Somebody takes the finalizer away and deletes the Service while no controller looks.
    cluster.remove(SERVICES, "default/one");
    // Another of the same name is not the one that has the address.
    cluster.remove(SERVICES, "default/two");
    let mut reborn = balancer("two", &[("spec.loadBalancerIP", json!("192.0.2.5"))]);
    reborn.put("metadata.uid", "another");
    cluster.put(SERVICES, reborn);
    cluster.restart();
    cluster.settle();
    assert_eq!(claimed(&cluster), BTreeMap::from([("192.0.2.5".to_owned(), vec!["two".to_owned()])]));
    assert_agreed(&cluster);
}

/// A Service that waits: no pool has room for it.
fn with_one_that_waits() -> Cluster {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("tiny", &["192.0.2.1"], &json!({})));
    cluster.put(SERVICES, balancer("first", &[]));
    cluster.settle();
    cluster.put(SERVICES, balancer("waits", &[]));
    cluster.settle();
    let waits = cluster.get(SERVICES, "default/waits").expect("the Service");
    assert_eq!((shown(&cluster, "waits").as_str(), waits.texts("metadata.finalizers")), ("", vec![FINALIZER]));
    assert_eq!(claimed(&cluster).len(), 1);
    cluster
}

#[test]
fn s43_one_that_waits_is_kept_until_it_is_cleaned_up_also_when_switched_off_meanwhile() {
    for on in [true, false] {
        let mut cluster = with_one_that_waits();
        cluster.settings.load_balancer.on = on;
        cluster.restart();
        let mut going = cluster.get(SERVICES, "default/waits").expect("the Service");
        going.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
        cluster.put(SERVICES, going);
        cluster.settle();
        assert!(cluster.get(SERVICES, "default/waits").is_none(), "nothing holds it");
        assert!(has_event(&cluster, "DeletedLoadBalancer", ""));
    }
}

#[test]
fn s39_one_that_waits_and_becomes_another_type_loses_the_finalizer_once() {
    let mut cluster = with_one_that_waits();
    let mut changed = cluster.get(SERVICES, "default/waits").expect("the Service");
    changed.put("spec.type", "ClusterIP");
    cluster.put(SERVICES, changed);
    cluster.settle();
    let mut service = cluster.get(SERVICES, "default/waits").expect("the Service");
    assert!(!service.has("metadata.finalizers") && !service.has("status.conditions"), "{service}");
    // Whoever sets it now is another controller.
    service.put("metadata.finalizers", json!([FINALIZER]));
    cluster.put(SERVICES, service);
    cluster.settle();
    let service = cluster.get(SERVICES, "default/waits").expect("the Service");
    assert_eq!(service.texts("metadata.finalizers"), [FINALIZER]);
}

#[test]
fn s46_who_went_to_a_class_of_others_while_nobody_looked_gives_the_address_back() {
    let mut cluster = with_two();
    let mut theirs = cluster.get(SERVICES, "default/one").expect("the Service");
    theirs.put("spec.loadBalancerClass", "example.com/lb");
    theirs.put("status.loadBalancer", json!({"ingress": [{"ip": "198.51.100.1", "ipMode": "VIP"}]}));
    cluster.put(SERVICES, theirs);
    cluster.settle();
    assert_eq!(claimed(&cluster), BTreeMap::from([("192.0.2.1".to_owned(), vec!["two".to_owned()])]));
    assert_eq!(shown(&cluster, "one"), "198.51.100.1", "what the other gave stays");
}

#[test]
fn the_finalizer_of_another_controller_is_not_ours_to_take() {
    let mut cluster = cluster();
    let foreign = [
        ("spec.type", json!("ClusterIP")),
        ("metadata.finalizers", json!([FINALIZER])),
        ("metadata.deletionTimestamp", json!("2026-01-01T00:00:00Z")),
    ];
    cluster.put(SERVICES, balancer("theirs", &foreign));
    cluster.settle();
    assert!(cluster.get(SERVICES, "default/theirs").is_some());
}

#[test]
fn a_status_that_somebody_else_wrote_is_set_right() {
    let mut cluster = with_two();
    let mut forged = cluster.get(SERVICES, "default/one").expect("the Service");
    forged.put("status.loadBalancer", json!({"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}));
    cluster.put(SERVICES, forged);
    cluster.settle();
    assert_eq!((shown(&cluster, "one").as_str(), shown(&cluster, "two").as_str()), ("192.0.2.0", "192.0.2.1"));
    assert_agreed(&cluster);
}

#[test]
fn two_controllers_with_old_views_cannot_both_win() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("tiny", &["192.0.2.1"], &json!({})));
    cluster.put(SERVICES, balancer("one", &[]));
    cluster.put(SERVICES, balancer("two", &[]));
    cluster.deliver_all();
    // Both decide on the same world; the second finds at the store that the address is gone.
    let verdicts = ["default/one", "default/two"].map(|key| cluster.judge(&CONTROLLER, key));
    let results = verdicts.map(|verdict| cluster.carry_out(&verdict.transactions[0]));
    assert_eq!(results, [true, false]);
    cluster.settle();
    assert_eq!((shown(&cluster, "one").as_str(), shown(&cluster, "two").as_str()), ("192.0.2.1", ""));
    assert_agreed(&cluster);
}
