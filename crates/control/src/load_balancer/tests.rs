//! Services, pools and Nodes in; addresses, claims and Events out.

mod addresses;
mod nodes;
mod release;

use std::collections::BTreeMap;

use api::value::ValueExt as _;
use api::view::service::{CLASS_L2, CLASS_PROXY};
use serde_json::{Value, json};

use super::*;
use crate::objects::load_balancer::{CONDITION, FINALIZER};
use crate::settings::LoadBalancing;
use crate::testing::Cluster;

/// A cluster with load balancers enabled.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER, &COMMAND_LINE]);
    cluster.settings.load_balancer = LoadBalancing { enabled: true, ..LoadBalancing::default() };
    cluster
}

/// A pool with these addresses and further fields.
fn pool(name: &str, addresses: &[&str], more: &Value) -> Value {
    let mut pool = json!({"metadata": {"name": name}, "spec": {"addresses": addresses}});
    for (key, value) in more.as_object().into_iter().flatten() {
        pool["spec"][key] = value.clone();
    }
    pool
}

/// A Service of type LoadBalancer on TCP port 80, with changes: dotted paths and values.
fn balancer(name: &str, changes: &[(&str, Value)]) -> Value {
    let mut service = json!({
        "metadata": {"name": name, "namespace": "default", "annotations": {}},
        "spec": {
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "selector": {"app": name},
            "sessionAffinity": "None",
        },
    });
    for (path, value) in changes {
        service.put(path, value.clone());
    }
    service
}

/// A Service with an annotation.
fn annotated(name: &str, key: &str, value: &str) -> Value {
    balancer(name, &[("metadata.annotations", json!({key: value}))])
}

fn dual(name: &str, policy: &str) -> Value {
    balancer(name, &[("spec.ipFamilies", json!(["IPv4", "IPv6"])), ("spec.ipFamilyPolicy", json!(policy))])
}

/// A Node with an address.
fn node(name: &str, address: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// The addresses in the status of a Service; empty if it does not exist.
fn shown(cluster: &Cluster, name: &str) -> String {
    let service = cluster.get(SERVICES, &format!("default/{name}")).unwrap_or_default();
    let ingress = service.items("status.loadBalancer.ingress").iter();
    ingress.map(|one| one.text("ip").to_owned()).collect::<Vec<_>>().join(",")
}

/// The condition of a Service: reason and message.
fn condition(cluster: &Cluster, name: &str) -> (String, String) {
    let service = cluster.get(SERVICES, &format!("default/{name}")).unwrap_or_default();
    let found = service.items("status.conditions").iter().find(|one| one.text("type") == CONDITION).cloned();
    let found = found.unwrap_or_default();
    (found.text("reason").to_owned(), found.text("message").to_owned())
}

/// Every claim: address, and its Services.
fn claimed(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let entries = store::Store::range(&cluster.store, store::Table::named(CLAIMS), "", None).expect("claims").entries;
    let claims = entries.iter().filter_map(|entry| Claim::read(entry));
    claims
        .map(|claim| {
            let owners = claim.owners.iter().map(|owner| owner.service.replace("default/", "")).collect();
            (claim.address.to_string(), owners)
        })
        .collect()
}

/// Asserts that status and claims of every Service agree, and that no address is assigned twice.
fn assert_agreed(cluster: &Cluster) {
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for service in cluster.all(SERVICES) {
        for ingress in service.items("status.loadBalancer.ingress") {
            assert!(service.texts("metadata.finalizers").contains(&FINALIZER), "{service}");
            wanted.entry(ingress.text("ip").to_owned()).or_default().push(service.text("metadata.name").to_owned());
        }
    }
    assert_eq!(claimed(cluster), wanted);
}

fn has_event(cluster: &Cluster, reason: &str, part: &str) -> bool {
    cluster.events.iter().any(|(have, message)| have == reason && message.contains(part))
}

#[test]
fn s43_a_service_gets_an_address_and_a_condition() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.8/30"], &json!({})));
    cluster.put(SERVICES, balancer("web", &[]));
    cluster.converge();
    let service = cluster.get(SERVICES, "default/web").expect("the Service");
    assert_eq!(service.at("status.loadBalancer"), &json!({"ingress": [{"ip": "192.0.2.8", "ipMode": "VIP"}]}));
    assert_eq!(service.texts("metadata.finalizers"), [FINALIZER]);
    assert_eq!(condition(&cluster, "web"), ("Assigned".into(), "192.0.2.8 from pool office".into()));
    assert!(has_event(&cluster, "EnsuringLoadBalancer", ""));
    assert!(has_event(&cluster, "EnsuredLoadBalancer", "192.0.2.8 from pool office"));
    let pool = cluster.get(POOLS, "office").expect("the pool");
    assert_eq!((pool.int("status.assigned"), pool.text("status.capacity")), (1, "4"));
    assert_agreed(&cluster);
    let _ = (cluster.writes_to(SERVICES), cluster.writes_to(POOLS));
    cluster.restart();
    cluster.converge();
    assert_eq!((cluster.writes_to(SERVICES), cluster.writes_to(POOLS)), (0, 0), "a restart changes nothing");
}

#[test]
fn s46_other_classes_are_ignored() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.8/30"], &json!({})));
    cluster.put(SERVICES, balancer("theirs", &[("spec.loadBalancerClass", json!("example.com/lb"))]));
    cluster.put(SERVICES, balancer("ours", &[("spec.loadBalancerClass", json!(CLASS_L2))]));
    cluster.converge();
    assert_eq!((shown(&cluster, "theirs").as_str(), shown(&cluster, "ours").as_str()), ("", "192.0.2.8"));
    let theirs = cluster.get(SERVICES, "default/theirs").expect("the Service");
    assert!(!theirs.has("metadata.finalizers") && !theirs.has("status.conditions"), "{theirs}");
}

#[test]
fn when_disabled_assigned_addresses_are_released() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.8/30"], &json!({})));
    cluster.put(SERVICES, balancer("web", &[]));
    cluster.converge();
    cluster.settings.load_balancer.enabled = false;
    cluster.put(SERVICES, balancer("later", &[]));
    cluster.restart();
    let _ = cluster.writes_to(SERVICES);
    cluster.converge();
    assert_eq!((cluster.writes_to(SERVICES), shown(&cluster, "web").as_str()), (0, "192.0.2.8"));
    assert_eq!(shown(&cluster, "later"), "");
    let mut going = cluster.get(SERVICES, "default/web").expect("the Service");
    going.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    cluster.put(SERVICES, going);
    cluster.converge();
    assert!(cluster.get(SERVICES, "default/web").is_none(), "nothing holds it");
    assert!(claimed(&cluster).is_empty());
}

#[test]
fn concurrent_services_get_one_address_each_in_order() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("small", &["192.0.2.0/29"], &json!({"priority": -1})));
    cluster.put(POOLS, pool("large", &["198.51.100.0/24"], &json!({})));
    for number in 0..40 {
        cluster.put(SERVICES, balancer(&format!("s{number:02}"), &[]));
    }
    cluster.deliver_all();
    // All are reconciled before the cache has any of their writes.
    for (index, key) in cluster.queued.clone() {
        cluster.run(index, &key);
    }
    assert_eq!(claimed(&cluster).len(), 40, "nobody had to try twice");
    cluster.converge();
    assert_eq!((shown(&cluster, "s00").as_str(), shown(&cluster, "s08").as_str()), ("192.0.2.0", "198.51.100.0"));
    assert_agreed(&cluster);
}
