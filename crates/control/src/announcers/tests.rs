//! Deletion of expired Leases.

use serde_json::json;

use super::*;
use crate::testing::{Cluster, node};

const SERVICES: &str = "services/specs";
const IP: &str = "192.0.2.9";

fn lease(name: &str, holder: &str, life: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "kube-system", "annotations": {LIFE: life}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1},
    })
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.all(LEASES).iter().map(|lease| lease.text("metadata.name").to_owned()).collect()
}

/// Node n1 announces the address of a Service.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("namespaces", json!({"metadata": {"name": "kube-system"}, "spec": {"finalizers": ["kubernetes"]}}));
    cluster.put("minions", node("n1"));
    cluster.put(
        SERVICES,
        json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], "sessionAffinity": "None"},
            "status": {"loadBalancer": {"ingress": [{"ip": IP, "ipMode": "VIP"}]}},
        }),
    );
    cluster.put(LEASES, lease("waypost-announcer-n1", "n1", "a-1"));
    cluster.put(LEASES, lease(&format!("waypost-address-{IP}"), "n1", "a-1"));
    cluster.put(LEASES, lease("waypost-controllers", "n1", ""));
    cluster.converge();
    assert_eq!(names(&cluster).len(), 3);
    cluster
}

#[test]
fn the_lease_of_a_deleted_node_is_deleted_unless_renewed() {
    let mut cluster = cluster();
    cluster.remove("minions", "n1");
    cluster.deliver_all();
    // The announcer still runs: the Lease is renewed in time, and the queued revision is outdated.
    let old = cluster.queued.clone();
    cluster.put(LEASES, lease("waypost-announcer-n1", "n1", "a-2"));
    for (index, key) in old {
        cluster.run(index, &key);
    }
    assert!(names(&cluster).contains(&"waypost-announcer-n1".to_owned()), "it lives");
    cluster.converge();
    assert_eq!(names(&cluster), [format!("waypost-address-{IP}"), "waypost-controllers".to_owned()]);
}

#[test]
fn the_lease_of_an_existing_node_is_kept() {
    let mut cluster = cluster();
    cluster.put(LEASES, lease("waypost-announcer-n1", "", "a-1"));
    cluster.restart();
    cluster.converge();
    assert_eq!(names(&cluster).len(), 3);
}

#[test]
fn the_lease_of_an_unused_address_is_deleted_unless_renewed() {
    let mut cluster = cluster();
    cluster.remove(SERVICES, "default/web");
    cluster.converge();
    assert_eq!(names(&cluster).len(), 3, "its node lives, and gives it back by itself");
    cluster.put(LEASES, lease("waypost-announcer-n1", "n1", "b-1"));
    cluster.restart();
    cluster.converge();
    assert_eq!(names(&cluster), ["waypost-announcer-n1", "waypost-controllers"], "it was another life");
}

#[test]
fn the_lease_of_a_used_address_is_kept_without_its_node() {
    let mut cluster = cluster();
    cluster.remove("minions", "n1");
    cluster.restart();
    cluster.converge();
    assert_eq!(names(&cluster), [format!("waypost-address-{IP}"), "waypost-controllers".to_owned()]);
    let mut moved = cluster.get(SERVICES, "default/web").expect("the Service");
    moved.put("status.loadBalancer", json!({"ingress": [{"ip": "192.0.2.10", "ipMode": "VIP"}]}));
    cluster.put(SERVICES, moved);
    cluster.converge();
    assert_eq!(names(&cluster), ["waypost-controllers"]);
}
