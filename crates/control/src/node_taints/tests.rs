use super::*;
use crate::testing::{Cluster, node, pod};

fn cluster() -> Cluster {
    Cluster::new(&[&TAINTS, &EVICTION])
}

fn with_ready(status: &str, reason: &str) -> Value {
    let mut object = node("node");
    object.put("status.conditions", json!([{"type": "Ready", "status": status, "reason": reason}]));
    object
}

fn taints(cluster: &Cluster) -> Vec<String> {
    let node = cluster.get("minions", "node").expect("the Node");
    let name = |taint: &Value| format!("{}:{}", taint.text("key"), taint.text("effect"));
    node.items("spec.taints").iter().map(name).collect()
}

#[test]
fn taints_follow_the_conditions() {
    let mut cluster = cluster();
    cluster.put("minions", with_ready("False", "KubeletNotReady"));
    cluster.converge();
    assert_eq!(taints(&cluster), [format!("{NOT_READY}:NoSchedule"), format!("{NOT_READY}:NoExecute")]);
    let mut object = cluster.get("minions", "node").expect("the Node");
    let own = json!({"key": "mine", "effect": "NoSchedule"});
    let mut all = object.items("spec.taints").to_vec();
    all.push(own);
    object.put("spec.taints", all);
    object.put("spec.unschedulable", true);
    object.put("status.conditions", json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]));
    cluster.put("minions", object);
    cluster.converge();
    let have = taints(&cluster);
    assert!(have.contains(&format!("{UNREACHABLE}:NoExecute")) && have.contains(&"mine:NoSchedule".to_owned()));
    assert!(have.contains(&format!("{UNSCHEDULABLE}:NoSchedule")) && !have.contains(&format!("{NOT_READY}:NoExecute")));
    let mut object = cluster.get("minions", "node").expect("the Node");
    object.put("spec.unschedulable", false);
    object.put("status.conditions", json!([{"type": "Ready", "status": "True"}]));
    cluster.put("minions", object);
    cluster.converge();
    assert_eq!(taints(&cluster), ["mine:NoSchedule"]);
}

#[test]
fn nodes_without_status_get_no_taints() {
    let mut cluster = cluster();
    cluster.put("minions", node("node"));
    cluster.converge();
    assert!(taints(&cluster).is_empty());
    cluster.put("minions", with_ready("Unknown", "NodeStatusNeverUpdated"));
    cluster.converge();
    assert!(taints(&cluster).is_empty());
    let mut new = node("node");
    new.put("spec.taints", json!([{"key": NOT_READY, "effect": "NoSchedule"}]));
    cluster.put("minions", new.clone());
    cluster.converge();
    assert_eq!(taints(&cluster), [format!("{NOT_READY}:NoSchedule")], "as admission gave it");
    new.put("status.conditions", json!([{"type": "Ready", "status": "True"}]));
    cluster.put("minions", new);
    cluster.converge();
    assert!(taints(&cluster).is_empty(), "it is ready now");
}

#[test]
fn pods_are_evicted_after_their_toleration() {
    let mut cluster = cluster();
    let put = |cluster: &mut Cluster, name: &str, tolerations: Value| {
        let mut object = pod(name, "app", 1, true);
        object.put("spec.tolerations", tolerations);
        cluster.put("pods", object);
    };
    put(&mut cluster, "now", json!([]));
    put(
        &mut cluster,
        "later",
        json!([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute",
                                       "tolerationSeconds": 300}]),
    );
    put(&mut cluster, "never", json!([{"operator": "Exists"}]));
    cluster.put("minions", with_ready("False", "KubeletNotReady"));
    cluster.converge();
    let going = |cluster: &Cluster, name: &str| {
        cluster.get("pods", &format!("default/{name}")).is_none_or(|pod| pod.has("metadata.deletionTimestamp"))
    };
    assert_eq!(["now", "later", "never"].map(|name| going(&cluster, name)), [true, false, false]);
    assert_eq!(cluster.reconcile(&EVICTION, "node").requeue_after, Some(Duration::from_secs(300)));
    let mut object = cluster.get("minions", "node").expect("the Node");
    for taint in object.items_mut("spec.taints") {
        taint.put("timeAdded", "1969-12-31T23:50:00Z");
    }
    cluster.put("minions", object);
    cluster.converge();
    assert_eq!(["now", "later", "never"].map(|name| going(&cluster, name)), [true, true, false]);
}
