use serde_json::json;

use super::*;
use crate::testing::{Cluster, node, pod};

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect()
}

#[test]
fn pods_of_a_deleted_node_are_deleted_after_the_quarantine() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("minions", node("node"));
    cluster.put("pods", pod("a", "app", 1, true));
    let mut elsewhere = pod("b", "app", 2, true);
    elsewhere.put("spec.nodeName", "never-was");
    cluster.put("pods", elsewhere);
    cluster.converge();
    cluster.remove("minions", "node");
    cluster.deliver_all();
    cluster.run(0, SINGLETON_KEY);
    assert_eq!(names(&cluster), ["a", "b"], "it may come back");
    cluster.advance(QUARANTINE);
    cluster.run(0, SINGLETON_KEY);
    assert_eq!(names(&cluster), ["b"], "Pods of nodes that we never saw are somebody else's");
}

#[test]
fn a_node_that_is_registered_again_keeps_its_pods() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("minions", node("node"));
    cluster.put("pods", pod("a", "app", 1, true));
    cluster.converge();
    cluster.remove("minions", "node");
    cluster.deliver_all();
    cluster.put("minions", node("node"));
    cluster.deliver_all();
    cluster.advance(QUARANTINE * 2);
    cluster.run(0, SINGLETON_KEY);
    assert_eq!(names(&cluster), ["a"]);
}

#[test]
fn deleted_pods_without_a_node_are_removed_immediately() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    let mut lost = pod("a", "app", 1, false);
    lost.put("spec.nodeName", "");
    lost.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    lost.put("metadata.deletionGracePeriodSeconds", 30);
    cluster.put("pods", lost);
    let mut held = pod("b", "app", 2, false);
    held.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    held.put("metadata.deletionGracePeriodSeconds", 30);
    held.put("status.conditions", json!([]));
    cluster.put("pods", held);
    cluster.converge();
    assert_eq!(names(&cluster), ["b"], "that one's node has to end it");
}

#[test]
fn pods_that_a_finalizer_keeps_fail_first() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("minions", node("node"));
    let mut kept = pod("a", "app", 1, true);
    kept.put("metadata.finalizers", json!(["batch.kubernetes.io/job-tracking"]));
    cluster.put("pods", kept);
    cluster.converge();
    cluster.remove("minions", "node");
    cluster.deliver_all();
    cluster.advance(QUARANTINE);
    cluster.run(0, SINGLETON_KEY);
    let failed = cluster.get("pods", "default/a").expect("it is kept");
    assert_eq!((failed.text("status.phase"), failed.has("metadata.deletionTimestamp")), ("Failed", false));
    let is_disrupted = |condition: &serde_json::Value| condition.text("type") == "DisruptionTarget";
    assert!(failed.items("status.conditions").iter().any(is_disrupted), "{failed}");
    cluster.deliver_all();
    cluster.run(0, SINGLETON_KEY);
    assert!(cluster.get("pods", "default/a").expect("it is kept").has("metadata.deletionTimestamp"));
}
