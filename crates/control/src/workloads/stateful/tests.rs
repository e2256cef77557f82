use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::garbage;
use crate::testing::Cluster;
use crate::workloads::testing::{converge, edit, owner, start};

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER, &garbage::CONTROLLER])
}

fn set_of(replicas: i64, change: impl FnOnce(&mut Value)) -> Value {
    let mut set = owner("statefulsets", "db", replicas, "i:1");
    set.put("spec.serviceName", "db");
    change(&mut set);
    set
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect()
}

fn images(cluster: &Cluster) -> Vec<String> {
    let image = |pod: &Value| pod.items("spec.containers")[0].text("image").to_owned();
    cluster.all("pods").iter().map(image).collect()
}

fn status(cluster: &Cluster) -> Value {
    cluster.get("statefulsets", "default/db").expect("the set").at("status").clone()
}

fn set_image(cluster: &mut Cluster, image: &str) {
    edit(cluster, "statefulsets", "default/db", |set| {
        set.items_mut("spec.template.spec.containers")[0].put("image", image);
    });
}

#[test]
fn pods_are_created_in_order_with_stable_names() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(3, |_| {}));
    cluster.converge();
    assert_eq!(names(&cluster), ["db-0"], "the next waits until it is ready");
    start(&mut cluster, "default/db-0");
    cluster.converge();
    assert_eq!(names(&cluster), ["db-0", "db-1"]);
    converge(&mut cluster);
    assert_eq!(names(&cluster), ["db-0", "db-1", "db-2"]);
    let pod = cluster.get("pods", "default/db-1").expect("a Pod");
    let revision = status(&cluster).text("updateRevision").to_owned();
    assert_eq!(
        pod.at("metadata.labels"),
        &json!({
            "app": "db", "apps.kubernetes.io/pod-index": "1", "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "db-1",
        })
    );
    assert_eq!((pod.text("spec.hostname"), pod.text("spec.subdomain")), ("db-1", "db"));
    let now = status(&cluster);
    let counts = ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"];
    assert_eq!(counts.map(|field| now.int(field)), [3, 3, 3, 3, 3]);
    assert_eq!(now.text("currentRevision"), revision);
    cluster.written.clear();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.written, [], "nothing to do after a restart");
}

#[test]
fn the_last_pods_are_deleted_first_and_lost_pods_are_replaced() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(3, |_| {}));
    converge(&mut cluster);
    edit(&mut cluster, "statefulsets", "default/db", |set| set.put("spec.replicas", 1));
    cluster.converge();
    let going: Vec<String> = cluster
        .all("pods")
        .iter()
        .filter(|pod| pod.has("metadata.deletionTimestamp"))
        .map(|pod| pod.text("metadata.name").to_owned())
        .collect();
    assert_eq!(going, ["db-2"]);
    converge(&mut cluster);
    assert_eq!(names(&cluster), ["db-0"]);
    cluster.remove("pods", "default/db-0");
    converge(&mut cluster);
    assert_eq!(names(&cluster), ["db-0"]);
}

#[test]
fn parallel_sets_do_not_wait() {
    let mut cluster = cluster();
    cluster.put(
        "statefulsets",
        set_of(3, |set| {
            set.put("spec.podManagementPolicy", "Parallel");
            set.put("spec.ordinals.start", 5);
        }),
    );
    cluster.converge();
    assert_eq!(names(&cluster), ["db-5", "db-6", "db-7"]);
    converge(&mut cluster);
    edit(&mut cluster, "statefulsets", "default/db", |set| set.put("spec.replicas", 0));
    cluster.converge();
    assert!(cluster.all("pods").iter().all(|pod| pod.has("metadata.deletionTimestamp")));
}

#[test]
fn updates_are_in_reverse_order() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(3, |_| {}));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    cluster.converge();
    let going = cluster.get("pods", "default/db-2").expect("the last");
    assert!(going.has("metadata.deletionTimestamp"));
    cluster.remove("pods", "default/db-2");
    cluster.converge();
    assert_eq!(images(&cluster), ["i:1", "i:1", "i:2"], "the next waits until it is ready");
    assert_ne!(status(&cluster).text("currentRevision"), status(&cluster).text("updateRevision"));
    converge(&mut cluster);
    assert_eq!(images(&cluster), ["i:2", "i:2", "i:2"]);
    assert_eq!(status(&cluster).text("currentRevision"), status(&cluster).text("updateRevision"));
    assert_eq!(cluster.all("controllerrevisions").len(), 2);
}

#[test]
fn a_partition_limits_an_update() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(3, |set| set.put("spec.updateStrategy.rollingUpdate.partition", 2)));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    assert_eq!(images(&cluster), ["i:1", "i:1", "i:2"]);
    cluster.remove("pods", "default/db-0");
    converge(&mut cluster);
    assert_eq!(images(&cluster), ["i:1", "i:1", "i:2"], "a lost one comes back as it was");
    assert_eq!(status(&cluster).int("updatedReplicas"), 1);
}

#[test]
fn on_delete_updates_only_deleted_pods() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(2, |set| set.put("spec.updateStrategy", json!({"type": "OnDelete"}))));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    assert_eq!(images(&cluster), ["i:1", "i:1"]);
    cluster.remove("pods", "default/db-1");
    converge(&mut cluster);
    assert_eq!(images(&cluster), ["i:1", "i:2"]);
}

#[test]
fn revisions_are_kept_for_rollbacks() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(1, |set| set.put("spec.revisionHistoryLimit", 1)));
    converge(&mut cluster);
    let first = status(&cluster).text("updateRevision").to_owned();
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    set_image(&mut cluster, "i:1");
    converge(&mut cluster);
    assert_eq!(status(&cluster).text("updateRevision"), first, "an equal one is found again");
    let numbers: Vec<i64> = cluster.all("controllerrevisions").iter().map(|one| one.int("revision")).collect();
    assert_eq!(numbers.iter().max(), Some(&3));
    for number in 3..6 {
        set_image(&mut cluster, &format!("i:{number}"));
        converge(&mut cluster);
    }
    assert_eq!(cluster.all("controllerrevisions").len(), 2, "the present one, and one to go back to");
}

#[test]
fn deleting_a_set_deletes_its_pods_and_revisions() {
    let mut cluster = cluster();
    cluster.put("statefulsets", set_of(2, |_| {}));
    converge(&mut cluster);
    cluster.remove("statefulsets", "default/db");
    converge(&mut cluster);
    assert_eq!((cluster.all("pods").len(), cluster.all("controllerrevisions").len()), (0, 0));
}
