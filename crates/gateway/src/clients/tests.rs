//! Addresses and the Pods they belong to.

use api::view::Pod;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, advance};

use super::*;

fn pod(name: &str, uid: &str, more: &Value) -> Pod {
    let (namespace, short) = name.split_once('/').expect("a namespace");
    let mut object = json!({
        "metadata": {"namespace": namespace, "name": short, "uid": uid},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.244.0.7"}]},
    });
    for (path, value) in more.as_object().into_iter().flatten() {
        let (section, field) = path.split_once('.').expect("a section");
        object[section][field] = value.clone();
    }
    serde_json::from_value(object).expect("a Pod")
}

fn owner(table: &PodTable, ip: &str) -> Option<String> {
    table.by_address().get(&ip.parse::<IpAddr>().expect("an address")).map(|pod| pod.key.to_string())
}

/// Applies Pods in order; the last state of each counts.
fn table(pods: &[&Pod]) -> PodTable {
    let mut table = PodTable::default();
    for pod in pods {
        table.apply(&pod.metadata.key(), Some(pod));
    }
    table
}

#[test]
fn an_address_belongs_to_the_pod_that_has_it_now() {
    let first = pod("a/one", "1", &json!({}));
    let next = pod("b/two", "2", &json!({}));
    let leaving = pod("a/one", "1", &json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let ended = pod("a/one", "1", &json!({"status.phase": "Succeeded"}));
    let of = |pods: &[&Pod]| owner(&table(pods), "10.244.0.7").unwrap_or_default();
    assert_eq!(of(&[&first]), "a/one");
    assert_eq!(of(&[&leaving]), "a/one", "it may still send requests");
    assert_eq!(of(&[&ended]), "", "it has ended");
    assert_eq!(of(&[&first, &next]), "b/two", "the last to appear");
    assert_eq!(of(&[&first, &next, &first]), "b/two", "a change of the first is nothing new");
    assert_eq!(of(&[&first, &leaving, &next]), "b/two");
    assert_eq!(of(&[&next, &leaving]), "b/two", "one that stays");
    let again = pod("a/one", "3", &json!({}));
    assert_eq!(of(&[&first, &next, &again]), "a/one", "another Pod of the same name");
    let stopped = json!([{"name": "c", "state": {"terminated": {"exitCode": 0}}}]);
    let stopped = json!({"metadata.deletionTimestamp": "2026-01-01T00:00:00Z", "status.containerStatuses": stopped});
    assert_eq!(of(&[&pod("a/one", "1", &stopped)]), "", "its containers have stopped, its address is free");
    let shared = pod("a/host", "4", &json!({"spec.hostNetwork": true}));
    assert_eq!(of(&[&shared]), "", "the address of the node");
}

#[test]
fn only_what_decides_is_a_change() {
    let (mut table, first) = (PodTable::default(), pod("a/one", "1", &json!({})));
    assert!(table.apply("a/one", Some(&first)));
    assert!(!table.apply("a/one", Some(&first)));
    assert!(!table.apply("b/none", None));
    let moved = pod("a/one", "1", &json!({"status.podIPs": [{"ip": "10.244.0.8"}, {"ip": "fd00::8"}]}));
    assert!(table.apply("a/one", Some(&moved)));
    assert_eq!((owner(&table, "10.244.0.7"), owner(&table, "fd00::8")), (None, Some("a/one".to_owned())));
    assert!(table.apply("a/one", None));
    assert!(table.by_address().is_empty());
}

#[test]
fn workloads_are_named_after_what_users_write() {
    let owned = |kind: &str, name: &str| json!([{"kind": kind, "name": name, "controller": true}]);
    let workload = |more: &Value| {
        let table = table(&[&pod("shop/web-6d9f-x2k", "1", more)]);
        table.by_address().values().next().expect("a Pod").workload.to_string()
    };
    let of_deployment = json!({"metadata.ownerReferences": owned("ReplicaSet", "web-6d9f"), "metadata.labels": {"pod-template-hash": "6d9f"}});
    assert_eq!(workload(&of_deployment), "shop/web");
    assert_eq!(workload(&json!({"metadata.ownerReferences": owned("ReplicaSet", "web-6d9f")})), "shop/web-6d9f");
    assert_eq!(workload(&json!({"metadata.ownerReferences": owned("StatefulSet", "db")})), "shop/db");
    assert_eq!(workload(&json!({"metadata.labels": {"app": "old", "app.kubernetes.io/name": "cart"}})), "shop/cart");
    assert_eq!(workload(&json!({})), "shop/web-6d9f-x2k");
}

fn clients() -> LocalClients {
    let own: OwnAddresses = Arc::new(|| vec!["10.244.0.1".parse().expect("an address")]);
    LocalClients::new(watch::channel(Arc::from(["192.0.2.1".parse().expect("an address")])).1, own)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[tokio::test(start_paused = true)]
async fn the_node_and_its_pods_are_known_and_others_are_refused() {
    let clients = clients();
    clients.set_pods(table(&[&pod("a/one", "1", &json!({}))]).by_address());
    for own in ["192.0.2.1", "10.244.0.1", "127.0.0.1", "::ffff:192.0.2.1"] {
        assert_eq!(clients.identify(ip(own)).await, Some(Source::Node), "{own}");
    }
    let source = clients.identify(ip("::ffff:10.244.0.7")).await.expect("a Pod");
    assert_eq!((source.pod(), source.namespace().map(|name| &**name)), (Some("a/one"), Some("a")));
    let before = Instant::now();
    assert_eq!(clients.identify(ip("203.0.113.9")).await, None);
    assert_eq!(before.elapsed(), KNOWN_WITHIN);
    assert!(clients.waiting.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_known_yet_waits_for_its_status() {
    let clients = Arc::new(clients());
    let asking = tokio::spawn({
        let clients = Arc::clone(&clients);
        async move { clients.identify(ip("10.244.0.7")).await }
    });
    yield_now().await;
    advance(KNOWN_WITHIN / 2).await;
    clients.set_pods(table(&[&pod("a/one", "1", &json!({}))]).by_address());
    let source = asking.await.expect("no panic").expect("a Pod");
    assert_eq!(source.pod(), Some("a/one"));
}

#[tokio::test(start_paused = true)]
async fn few_connections_wait() {
    let clients = clients();
    let stranger = ip("203.0.113.9");
    let places: Vec<_> = (0..MAX_WAITING_PER_ADDRESS).map(|_| clients.wait(stranger).expect("a place")).collect();
    let before = Instant::now();
    assert_eq!(clients.identify(stranger).await, None);
    assert_eq!(before.elapsed(), Duration::ZERO, "refused at once");
    assert!(clients.wait(ip("203.0.113.10")).is_some(), "another address");
    drop(places);
    let all: Vec<_> = (0..=255u8).map(|last| clients.wait(ip(&format!("203.0.113.{last}")))).collect();
    assert!(all.iter().all(Option::is_some));
    assert!(clients.wait(ip("198.51.100.1")).is_none(), "{MAX_WAITING} wait");
}
