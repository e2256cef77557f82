//! Pods, templates and a kubelet for the tests of workloads.

use std::sync::Arc;

use api::value::ValueExt as _;
use api::{kinds, object};
use serde_json::{Value, json};
use store::{Entry, Key, Table};

use crate::objects::pod::Pod;
use crate::testing::Cluster;

/// A reduced Pod.
pub(crate) fn stored_pod(object: &Value) -> Arc<Pod> {
    let key = format!("{}/{}", object.text("metadata.namespace"), object.text("metadata.name"));
    Arc::new(Pod::read(&Arc::new(Entry {
        key: Key::new(Table::named("pods"), key),
        created: 1,
        modified: 1,
        expires: None,
        value: object::encode(object),
        facts: Arc::new(kinds::pod::KIND.facts(object)),
    })))
}

/// A workload with defaults, as the server stores it.
pub(crate) fn owner(table: &'static str, name: &str, replicas: i64, image: &str) -> Value {
    let labels = json!({"app": name});
    let selector = if table == "controllers" { labels.clone() } else { json!({"matchLabels": labels}) };
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    });
    let kind = kinds::by_table(table).expect("a kind");
    kind.rules.default(&mut object);
    api::decode::prune(kind.type_id(), &mut object);
    object
}

/// Changes an object as a user would.
pub(crate) fn edit(cluster: &mut Cluster, table: &'static str, key: &str, change: impl FnOnce(&mut Value)) {
    let mut object = cluster.get(table, key).expect("an object");
    change(&mut object);
    object.put("metadata.generation", object.int("metadata.generation") + 1);
    cluster.put(table, object);
}

/// Simulates the node: the Pod becomes running and ready.
pub(crate) fn start(cluster: &mut Cluster, key: &str) {
    let mut pod = cluster.get("pods", key).expect("a Pod");
    if pod.text("spec.nodeName").is_empty() {
        pod.put("spec.nodeName", "node");
    }
    pod.put("status.phase", "Running");
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
    pod.put("status.conditions", ready);
    cluster.put("pods", pod);
}

/// Starts pending Pods and removes terminating ones; true when there was one.
pub(crate) fn play_the_node(cluster: &mut Cluster) -> bool {
    let mut did = false;
    for pod in cluster.all("pods") {
        let key = format!("default/{}", pod.text("metadata.name"));
        if pod.has("metadata.deletionTimestamp") {
            cluster.remove("pods", &key);
            did = true;
        } else if pod.text("status.phase") == "Pending" {
            start(cluster, &key);
            did = true;
        }
    }
    did
}

/// Runs controllers and simulated nodes until nothing changes.
pub(crate) fn converge(cluster: &mut Cluster) {
    cluster.converge();
    while play_the_node(cluster) {
        cluster.converge();
    }
}
