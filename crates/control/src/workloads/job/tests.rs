//! Fixtures: Jobs as the server stores them, and their Pods.

mod cluster;
mod endings;
mod planning;

use api::kinds::{self, job};
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::Cluster;

/// A Job with defaults and a generated selector.
fn stored(changes: &[(&str, Value)]) -> Value {
    let mut object = json!({
        "metadata": {"name": "pi", "namespace": "default", "uid": "job-uid", "generation": 1},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    for (field, value) in changes.iter().filter(|(field, _)| field.starts_with("spec")) {
        object.put(field, value.clone());
    }
    let rules = job::KIND.rules;
    rules.default(&mut object);
    rules.prepare_create(&mut object);
    for (field, value) in changes.iter().filter(|(field, _)| !field.starts_with("spec")) {
        object.put(field, value.clone());
    }
    api::decode::prune(job::KIND.type_id(), &mut object);
    object
}

fn indexed(completions: i64, parallelism: i64) -> Vec<(&'static str, Value)> {
    vec![
        ("spec.completionMode", json!("Indexed")),
        ("spec.completions", json!(completions)),
        ("spec.parallelism", json!(parallelism)),
    ]
}

/// A Pod of the Job that runs on a node.
fn pod_of(owner: &Value, name: &str) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": owner.at("spec.template.metadata.labels"),
            "finalizers": [TRACKING_FINALIZER], "ownerReferences": [KIND.reference(owner)],
            "creationTimestamp": "1970-01-01T00:00:00Z",
        },
        "spec": owner.at("spec.template.spec"),
        "status": {"phase": "Running"},
    });
    pod.put("spec.nodeName", "node");
    kinds::pod::KIND.rules.default(&mut pod);
    pod
}

/// Sets the state of a Pod whose container ended with an exit code.
fn end(pod: &mut Value, code: i64, at: &str) {
    pod.put("spec.nodeName", "node");
    pod.put("status.phase", if code == 0 { "Succeeded" } else { "Failed" });
    pod.put(
        "status.containerStatuses",
        json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "finishedAt": at}}}]),
    );
}

fn cluster(job: Value) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER, &ORPHANS, &TTL, &crate::garbage::CONTROLLER]);
    cluster.put("jobs", job);
    cluster.converge();
    cluster
}

/// The Job as it is stored.
fn now(cluster: &Cluster) -> Value {
    cluster.get("jobs", "default/pi").expect("the Job")
}

/// Pods that have neither ended nor are being deleted.
fn active(cluster: &Cluster) -> Vec<Value> {
    let mut pods = cluster.all("pods");
    pods.retain(|pod| {
        !matches!(pod.text("status.phase"), "Succeeded" | "Failed") && !pod.has("metadata.deletionTimestamp")
    });
    pods
}

/// Ends an active Pod, long ago, and converges.
fn finish(cluster: &mut Cluster, number: usize, code: i64) -> String {
    let mut pod = active(cluster).swap_remove(number);
    end(&mut pod, code, "1969-01-01T00:00:00Z");
    let name = pod.text("metadata.name").to_owned();
    cluster.put("pods", pod);
    cluster.converge();
    name
}

fn is(job: &Value, kind: &str) -> Option<String> {
    let found = job.items("status.conditions").iter().find(|one| one.text("type") == kind)?;
    Some(format!("{} {}", found.text("status"), found.text("reason")))
}

fn reasons(cluster: &Cluster) -> Vec<&str> {
    cluster.events.iter().map(|(reason, _)| reason.as_str()).collect()
}

fn is_tracked(pod: &Value) -> bool {
    pod.texts("metadata.finalizers").contains(&TRACKING_FINALIZER)
}
