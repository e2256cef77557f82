use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::garbage;
use crate::testing::Cluster;
use crate::workloads::testing::{converge, edit, owner, play_the_node, start};

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER, &REPLICATION, &garbage::CONTROLLER])
}

fn status(cluster: &Cluster, table: &'static str) -> Value {
    cluster.get(table, "default/web").expect("the owner").at("status").clone()
}

#[test]
fn missing_pods_are_created_and_counted() {
    for table in ["replicasets", "controllers"] {
        let mut cluster = cluster();
        cluster.put(table, owner(table, "web", 3, "i"));
        cluster.converge();
        let pods = cluster.all("pods");
        assert_eq!(pods.len(), 3, "{table}");
        let pod = &pods[0];
        assert_eq!(pod.text("metadata.generateName"), "web-");
        assert_eq!(pod.at("metadata.labels"), &json!({"app": "web"}));
        let reference = &pod.items("metadata.ownerReferences")[0];
        assert!(reference.flag("controller") && reference.flag("blockOwnerDeletion"));
        assert_eq!(pod.text("status.phase"), "Pending");
        assert_eq!(pod.items("spec.tolerations").len(), 2, "as admission would have given them");
        assert_eq!(status(&cluster, table).int("replicas"), 3);
        assert_eq!(status(&cluster, table).int("readyReplicas"), 0);
        converge(&mut cluster);
        let now = status(&cluster, table);
        let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
        assert_eq!(counts.map(|field| now.int(field)), [3, 3, 3, 3, 1], "{table}");
        assert_eq!(now.has("terminatingReplicas"), table == "replicasets");
        assert_eq!(cluster.events.iter().filter(|(reason, _)| reason == "SuccessfulCreate").count(), 3);
        cluster.written.clear();
        cluster.restart();
        cluster.converge();
        assert_eq!(cluster.written, [], "{table}: nothing to do after a restart");
    }
}

#[test]
fn finished_and_deleted_pods_are_replaced() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 2, "i"));
    converge(&mut cluster);
    let names: Vec<String> = cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect();
    cluster.remove("pods", &format!("default/{}", names[0]));
    let mut failed = cluster.get("pods", &format!("default/{}", names[1])).expect("a Pod");
    failed.put("status.phase", "Failed");
    cluster.put("pods", failed);
    converge(&mut cluster);
    let running = cluster.all("pods").iter().filter(|pod| pod.text("status.phase") == "Running").count();
    assert_eq!((running, cluster.all("pods").len()), (2, 3), "the failed one stays to be looked at");
}

#[test]
fn excess_pods_that_are_not_running_are_deleted_first() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 3, "i"));
    cluster.converge();
    let names: Vec<String> = cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect();
    start(&mut cluster, &format!("default/{}", names[1]));
    cluster.converge();
    edit(&mut cluster, "replicasets", "default/web", |set| set.put("spec.replicas", 1));
    cluster.converge();
    let left: Vec<String> = cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect();
    assert_eq!(left, [names[1].clone()], "those without a node went at once");
    assert_eq!(status(&cluster, "replicasets").int("observedGeneration"), 2);
    edit(&mut cluster, "replicasets", "default/web", |set| set.put("spec.replicas", 0));
    cluster.converge();
    let going = cluster.get("pods", &format!("default/{}", names[1])).expect("it has time to end");
    assert!(going.has("metadata.deletionTimestamp"));
    let now = status(&cluster, "replicasets");
    assert_eq!((now.int("replicas"), now.int("terminatingReplicas")), (0, 1));
    assert!(play_the_node(&mut cluster));
    cluster.converge();
    assert_eq!(status(&cluster, "replicasets").int("terminatingReplicas"), 0);
}

#[test]
fn matching_pods_are_adopted_and_others_released() {
    let mut cluster = cluster();
    let mut stranger = crate::testing::pod("stranger", "web", 1, true);
    stranger.put("spec.restartPolicy", "Always");
    api::kinds::pod::KIND.rules.default(&mut stranger);
    cluster.put("pods", stranger);
    cluster.put("replicasets", owner("replicasets", "web", 2, "i"));
    converge(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 2, "one was there already");
    let adopted = cluster.get("pods", "default/stranger").expect("the stranger");
    assert_eq!(adopted.items("metadata.ownerReferences")[0].text("name"), "web");
    let mut runaway = adopted;
    runaway.put("metadata.labels", json!({"app": "other"}));
    cluster.put("pods", runaway);
    converge(&mut cluster);
    let released = cluster.get("pods", "default/stranger").expect("it stays");
    assert!(!released.has("metadata.ownerReferences"));
    assert_eq!(cluster.all("pods").len(), 3, "and was replaced");
    assert_eq!(status(&cluster, "replicasets").int("replicas"), 2);
}

#[test]
fn pods_of_another_owner_are_not_adopted() {
    let mut cluster = cluster();
    let mut owned = crate::testing::pod("owned", "web", 1, true);
    owned.put(
        "metadata.ownerReferences",
        json!([{"apiVersion": "x/v1", "kind": "Other", "name": "o", "uid": "u", "controller": true}]),
    );
    cluster.put("pods", owned);
    cluster.put("replicasets", owner("replicasets", "web", 1, "i"));
    converge(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 2);
}

#[test]
fn a_pod_is_available_after_min_ready_seconds() {
    let mut cluster = cluster();
    let mut set = owner("replicasets", "web", 1, "i");
    set.put("spec.minReadySeconds", 30);
    cluster.put("replicasets", set);
    converge(&mut cluster);
    let now = status(&cluster, "replicasets");
    assert_eq!((now.int("readyReplicas"), now.int("availableReplicas")), (1, 0));
    let outcome = cluster.reconcile(&CONTROLLER, "default/web");
    assert_eq!(outcome.requeue_after, Some(Duration::from_secs(30)));
}

#[test]
fn pods_are_created_with_slow_start() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 1000, "i"));
    cluster.deliver_all();
    let outcome = cluster.reconcile(&CONTROLLER, "default/web");
    let sizes: Vec<usize> = outcome.transactions.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 1, 2, 4, 8, 16, 32, 64, 128, 245], "the status, then 500 Pods");
    cluster.converge();
    assert_eq!(cluster.all("pods").len(), 1000);
}

#[test]
fn deleting_the_set_deletes_its_pods_and_creates_none() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 2, "i"));
    converge(&mut cluster);
    cluster.remove("replicasets", "default/web");
    converge(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 0);
}
