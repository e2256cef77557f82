//! PriorityClasses: how Pods get their priority, and which Pod the scheduler takes first.

use serde_json::{Value, json};
use testbed::session::text;

use super::{PODS, Stage, cells, manifest, node};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn class(name: &str, value: i64, is_default: bool) -> Value {
    json!({"metadata": {"name": name}, "value": value, "globalDefault": is_default})
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "image:1"}]);
    pod
}

#[test]
fn pods_get_the_priority_of_their_class() {
    let stage = Stage::without_kubelet(&[]);
    let mut session = stage.server.session();
    let out = stage.ok("get pc");
    assert_eq!(cells(&out)[0], ["NAME", "VALUE", "GLOBAL-DEFAULT", "AGE", "PREEMPTIONPOLICY"]);
    assert_eq!(cells(&out)[1][..3], ["system-cluster-critical", "2000000000", "false"]);
    assert_eq!(cells(&out)[2][..3], ["system-node-critical", "2000001000", "false"]);
    let said = session.delete(&format!("{CLASSES}/system-node-critical")).refused(403);
    assert_eq!(
        said,
        "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and \
         cannot be deleted"
    );

    let plain = session.post(PODS, &pod("plain", &json!({}))).success();
    assert_eq!(plain["spec"]["priority"], 0);
    assert_eq!(plain["spec"]["preemptionPolicy"], "PreemptLowerPriority");
    let said = session.post(PODS, &pod("lost", &json!({"priorityClassName": "high"}))).refused(403);
    assert_eq!(said, "pods \"lost\" is forbidden: no PriorityClass with name high was found");
    let said = session.post(PODS, &pod("given", &json!({"priority": 7}))).refused(403);
    assert!(said.contains("the integer value of priority (7) must not be provided in pod spec"), "{said}");

    let _ = session.post(CLASSES, &class("high", 1000, false)).success();
    let _ = session.post(CLASSES, &class("usual", 10, true)).success();
    let said = session.post(CLASSES, &class("other", 20, true)).refused(403);
    assert!(said.ends_with("PriorityClass usual is already marked as default. Only one default can exist"), "{said}");
    let said = session.merge(&format!("{CLASSES}/high"), &json!({"value": 1})).refused(422);
    assert!(said.ends_with("value: Forbidden: may not be changed in an update."), "{said}");
    for (name, spec, expected) in [
        ("named", json!({"priorityClassName": "high"}), ("high", 1000)),
        ("unnamed", json!({}), ("usual", 10)),
        ("critical", json!({"priorityClassName": "system-node-critical"}), ("system-node-critical", 2_000_001_000)),
    ] {
        let made = session.post(PODS, &pod(name, &spec)).success();
        let found = (text(&made, "/spec/priorityClassName"), made["spec"]["priority"].as_i64());
        assert_eq!(found, (expected.0, Some(expected.1)), "{name}");
    }
    let class = "    spec:\n      priorityClassName: high\n";
    stage.ok_with("apply -f -", &manifest("ReplicaSet", "web", 1, "").replace("    spec:\n", class));
    let pods = stage.pods_until("app=web", |pods| !pods.is_empty());
    assert_eq!(pods[0]["spec"]["priority"], 1000, "Pods from templates too");
}

#[test]
fn the_scheduler_takes_pods_with_higher_priority_first() {
    let stage = Stage::without_kubelet(&[]);
    let mut session = stage.server.session();
    let _ = session.post(CLASSES, &class("high", 1000, false)).success();
    let _ = session.post(PODS, &pod("early", &json!({}))).success();
    let _ = session.post(PODS, &pod("late", &json!({"priorityClassName": "high"}))).success();
    let watching = stage.server.session();
    let mut watch = watching.watch(PODS, "");
    let mut small = node("small");
    small["status"]["allocatable"]["pods"] = json!("1");
    let _ = session.post("/api/v1/nodes", &small).success();
    let bound = watch.until(|_, pod| !text(pod, "/spec/nodeName").is_empty());
    assert_eq!(text(&bound, "/metadata/name"), "late");
    let refused = watch.until(|_, pod| !text(pod, "/status/conditions/0/message").is_empty());
    assert_eq!(text(&refused, "/metadata/name"), "early");
}
