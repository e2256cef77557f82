use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::garbage;
use crate::testing::Cluster;
use crate::workloads::testing::{edit, owner, play_the_node, settle, start};

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER, &REPLICATION, &garbage::CONTROLLER])
}

fn status(cluster: &Cluster, table: &'static str) -> Value {
    cluster.get(table, "default/web").expect("the owner").at("status").clone()
}

#[test]
fn missing_pods_are_made_and_counted() {
    for table in ["replicasets", "controllers"] {
        let mut cluster = cluster();
        cluster.put(table, owner(table, "web", 3, "i"));
        cluster.settle();
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
        settle(&mut cluster);
        let now = status(&cluster, table);
        let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
        assert_eq!(counts.map(|field| now.int(field)), [3, 3, 3, 3, 1], "{table}");
        assert_eq!(now.has("terminatingReplicas"), table == "replicasets");
        assert_eq!(cluster.events.iter().filter(|(reason, _)| reason == "SuccessfulCreate").count(), 3);
        cluster.written.clear();
        cluster.restart();
        cluster.settle();
        assert_eq!(cluster.written, [], "{table}: nothing to do after a restart");
    }
}

#[test]
fn pods_that_end_or_go_are_replaced() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 2, "i"));
    settle(&mut cluster);
    let names: Vec<String> = cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect();
    cluster.remove("pods", &format!("default/{}", names[0]));
    let mut failed = cluster.get("pods", &format!("default/{}", names[1])).expect("a Pod");
    failed.put("status.phase", "Failed");
    cluster.put("pods", failed);
    settle(&mut cluster);
    let running = cluster.all("pods").iter().filter(|pod| pod.text("status.phase") == "Running").count();
    assert_eq!((running, cluster.all("pods").len()), (2, 3), "the failed one stays to be looked at");
}

#[test]
fn the_idle_go_first_when_there_are_too_many() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 3, "i"));
    cluster.settle();
    let names: Vec<String> = cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect();
    start(&mut cluster, &format!("default/{}", names[1]));
    cluster.settle();
    edit(&mut cluster, "replicasets", "default/web", |set| set.put("spec.replicas", 1));
    cluster.settle();
    let left: Vec<String> = cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect();
    assert_eq!(left, [names[1].clone()], "those without a node went at once");
    assert_eq!(status(&cluster, "replicasets").int("observedGeneration"), 2);
    edit(&mut cluster, "replicasets", "default/web", |set| set.put("spec.replicas", 0));
    cluster.settle();
    let going = cluster.get("pods", &format!("default/{}", names[1])).expect("it has time to end");
    assert!(going.has("metadata.deletionTimestamp"));
    let now = status(&cluster, "replicasets");
    assert_eq!((now.int("replicas"), now.int("terminatingReplicas")), (0, 1));
    assert!(play_the_node(&mut cluster));
    cluster.settle();
    assert_eq!(status(&cluster, "replicasets").int("terminatingReplicas"), 0);
}

#[test]
fn strangers_are_adopted_and_runaways_released() {
    let mut cluster = cluster();
    let mut stranger = crate::testing::pod("stranger", "web", 1, true);
    stranger.put("spec.restartPolicy", "Always");
    api::kinds::pod::KIND.rules.default(&mut stranger);
    cluster.put("pods", stranger);
    cluster.put("replicasets", owner("replicasets", "web", 2, "i"));
    settle(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 2, "one was there already");
    let adopted = cluster.get("pods", "default/stranger").expect("the stranger");
    assert_eq!(adopted.items("metadata.ownerReferences")[0].text("name"), "web");
    let mut runaway = adopted;
    runaway.put("metadata.labels", json!({"app": "other"}));
    cluster.put("pods", runaway);
    settle(&mut cluster);
    let released = cluster.get("pods", "default/stranger").expect("it stays");
    assert!(!released.has("metadata.ownerReferences"));
    assert_eq!(cluster.all("pods").len(), 3, "and was replaced");
    assert_eq!(status(&cluster, "replicasets").int("replicas"), 2);
}

#[test]
fn a_pod_of_another_is_nobody_elses() {
    let mut cluster = cluster();
    let mut owned = crate::testing::pod("owned", "web", 1, true);
    owned.put(
        "metadata.ownerReferences",
        json!([{"apiVersion": "x/v1", "kind": "Other", "name": "o", "uid": "u", "controller": true}]),
    );
    cluster.put("pods", owned);
    cluster.put("replicasets", owner("replicasets", "web", 1, "i"));
    settle(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 2);
}

#[test]
fn a_pod_counts_as_available_only_after_a_while() {
    let mut cluster = cluster();
    let mut set = owner("replicasets", "web", 1, "i");
    set.put("spec.minReadySeconds", 30);
    cluster.put("replicasets", set);
    settle(&mut cluster);
    let now = status(&cluster, "replicasets");
    assert_eq!((now.int("readyReplicas"), now.int("availableReplicas")), (1, 0));
    let verdict = cluster.judge(&CONTROLLER, "default/web");
    assert_eq!(verdict.again, Some(Duration::from_secs(30)));
}

#[test]
fn many_pods_are_made_in_growing_steps() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 1000, "i"));
    cluster.deliver_all();
    let verdict = cluster.judge(&CONTROLLER, "default/web");
    let sizes: Vec<usize> = verdict.transactions.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 1, 2, 4, 8, 16, 32, 64, 128, 245], "the status, then 500 Pods");
    cluster.settle();
    assert_eq!(cluster.all("pods").len(), 1000);
}

#[test]
fn deleting_the_set_deletes_its_pods_and_makes_no_new_ones() {
    let mut cluster = cluster();
    cluster.put("replicasets", owner("replicasets", "web", 2, "i"));
    settle(&mut cluster);
    cluster.remove("replicasets", "default/web");
    settle(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 0);
}
