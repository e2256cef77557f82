use api::kinds;
use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::Cluster;

fn cluster() -> Cluster {
    Cluster::new(&[&CONTROLLER])
}

fn node(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"},
        },
    });
    change(&mut node);
    node
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    change(&mut pod);
    kinds::pod::KIND.rules.default(&mut pod);
    kinds::pod::KIND.rules.prepare_create(&mut pod);
    pod
}

fn place(cluster: &Cluster, name: &str) -> String {
    cluster.get("pods", &format!("default/{name}")).expect("a Pod").text("spec.nodeName").to_owned()
}

fn why(cluster: &Cluster, name: &str) -> String {
    let pod = cluster.get("pods", &format!("default/{name}")).expect("a Pod");
    let conditions = pod.items("status.conditions");
    let said = conditions.iter().find(|one| one.text("type") == "PodScheduled" && one.text("status") == "False");
    said.map(|one| one.text("message").to_owned()).unwrap_or_default()
}

#[test]
fn pods_are_bound_to_nodes_that_are_ready() {
    let mut cluster = cluster();
    cluster
        .put("minions", node("a", |node| node.put("status.conditions", json!([{"type": "Ready", "status": "False"}]))));
    cluster.put("minions", node("b", |_| {}));
    cluster.put("pods", pod("p", |_| {}));
    cluster.converge();
    assert_eq!(place(&cluster, "p"), "b");
    let bound = cluster.get("pods", "default/p").expect("the Pod");
    assert_eq!(bound.items("status.conditions")[0].text("status"), "True");
    assert_eq!(bound.int("metadata.generation"), 0, "a node is no wish of the author");
    assert_eq!(cluster.events, [("Scheduled".into(), "Successfully assigned default/p to b".into())]);
}

#[test]
fn pods_that_tolerate_it_are_bound_to_nodes_that_are_not_ready() {
    let mut cluster = cluster();
    let unready = json!([{"type": "Ready", "status": "False"}]);
    let taints = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    cluster.put(
        "minions",
        node("a", |node| {
            node.put("status.conditions", unready);
            node.put("spec.taints", taints);
        }),
    );
    cluster.put("pods", pod("network", |pod| pod.put("spec.tolerations", json!([{"operator": "Exists"}]))));
    let evicted_late = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]);
    cluster.put("pods", pod("plain", |pod| pod.put("spec.tolerations", evicted_late)));
    cluster.converge();
    assert_eq!((place(&cluster, "network").as_str(), place(&cluster, "plain").as_str()), ("a", ""));
    assert_eq!(why(&cluster, "plain"), "0/1 nodes are available: 1 node(s) were not ready.");
}

#[test]
fn pods_of_other_schedulers_are_ignored() {
    let mut cluster = cluster();
    cluster.put("minions", node("a", |_| {}));
    cluster.put("pods", pod("other", |pod| pod.put("spec.schedulerName", "mine")));
    cluster.put("pods", pod("gated", |pod| pod.put("spec.schedulingGates", json!([{"name": "wait"}]))));
    cluster.put("pods", pod("done", |_| {}));
    let mut done = cluster.get("pods", "default/done").expect("a Pod");
    done.put("status.phase", "Failed");
    cluster.put("pods", done);
    cluster.converge();
    for name in ["other", "gated", "done"] {
        assert_eq!(place(&cluster, name), "", "{name}");
    }
}

#[test]
fn affinity_and_taints_are_respected() {
    let mut cluster = cluster();
    let taint = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    cluster.put("minions", node("a", |node| node.put("spec.taints", taint)));
    cluster.put("minions", node("b", |node| node.put("metadata.labels", json!({"disk": "fast"}))));
    cluster.put("minions", node("c", |node| node.put("spec.unschedulable", true)));
    let term = |operator: &str, values: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": operator, "values": values}]},
        ]}}})
    };
    cluster.put("pods", pod("plain", |_| {}));
    cluster.put("pods", pod("fast", |pod| pod.put("spec.nodeSelector", json!({"disk": "fast"}))));
    cluster.put("pods", pod("in", |pod| pod.put("spec.affinity", term("In", json!(["fast", "slow"])))));
    cluster.put(
        "pods",
        pod("tolerant", |pod| {
            pod.put("spec.tolerations", json!([{"key": "gpu", "operator": "Exists"}]));
            pod.put("spec.affinity", term("DoesNotExist", json!([])));
        }),
    );
    let named = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]},
    ]}}});
    cluster.put("pods", pod("named", |pod| pod.put("spec.affinity", named)));
    cluster.converge();
    assert_eq!(["plain", "fast", "in", "tolerant"].map(|name| place(&cluster, name)), ["b", "b", "b", "a"]);
    assert_eq!(
        why(&cluster, "named"),
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector."
    );
    assert!(cluster.events.iter().any(|(reason, _)| reason == "FailedScheduling"));
    let mut open = cluster.get("minions", "c").expect("a Node");
    open.drop_path("spec.unschedulable");
    cluster.put("minions", open);
    cluster.converge();
    assert_eq!(place(&cluster, "named"), "c");
    assert_eq!(why(&cluster, "named"), "");
}

#[test]
fn capacity_is_not_exceeded() {
    let mut cluster = cluster();
    cluster.put("minions", node("a", |_| {}));
    let asks = |cpu: &'static str, memory: &'static str| {
        move |pod: &mut Value| {
            let requests = json!({"cpu": cpu, "memory": memory});
            pod.put("spec.containers", json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]));
        }
    };
    cluster.put("pods", pod("a", asks("1500m", "100Mi")));
    cluster.put("pods", pod("b", asks("600m", "100Mi")));
    cluster.put("pods", pod("c", asks("100m", "1000Mi")));
    cluster.converge();
    assert_eq!(place(&cluster, "a"), "a");
    assert_eq!(why(&cluster, "b"), "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(why(&cluster, "c"), "0/1 nodes are available: 1 Insufficient memory.");
    cluster.remove("pods", "default/a");
    cluster.converge();
    assert_eq!((place(&cluster, "b").as_str(), place(&cluster, "c").as_str()), ("a", ""), "there is room for one");
}

#[test]
fn host_ports_and_pod_slots_are_counted() {
    let mut cluster = cluster();
    cluster.put("minions", node("a", |node| node.put("status.allocatable.pods", "2")));
    let port = |pod: &mut Value| {
        let ports = json!([{"containerPort": 80, "hostPort": 80}]);
        pod.put("spec.containers", json!([{"name": "c", "image": "i", "ports": ports}]));
    };
    cluster.put("pods", pod("a", port));
    cluster.put("pods", pod("b", port));
    cluster.converge();
    assert_eq!(
        why(&cluster, "b"),
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    );
    cluster.put("pods", pod("c", |_| {}));
    cluster.put("pods", pod("d", |_| {}));
    cluster.converge();
    assert_eq!((place(&cluster, "c").as_str(), place(&cluster, "d").as_str()), ("a", ""));
    assert_eq!(why(&cluster, "d"), "0/1 nodes are available: 1 Too many pods.");
}

#[test]
fn pods_of_one_owner_are_spread_and_preferences_have_weight() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        cluster.put("minions", node(name, |_| {}));
    }
    let owned = |pod: &mut Value| {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true}]);
        pod.put("metadata.ownerReferences", owner);
    };
    for number in 0..6 {
        cluster.put("pods", pod(&format!("p{number}"), owned));
    }
    cluster.converge();
    let mut places: Vec<String> = (0..6).map(|number| place(&cluster, &format!("p{number}"))).collect();
    places.sort();
    assert_eq!(places, ["a", "a", "b", "b", "c", "c"]);
    let wish = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 50, "preference": {"matchExpressions":
            [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["c"]}]}},
    ]}});
    cluster.put("pods", pod("wish", |pod| pod.put("spec.affinity", wish)));
    cluster.converge();
    assert_eq!(place(&cluster, "wish"), "c");
}

#[test]
fn many_pods_are_bound_in_a_few_transactions() {
    let mut cluster = cluster();
    cluster.put("minions", node("a", |node| node.put("status.allocatable.pods", "10000")));
    for number in 0..600 {
        cluster.put("pods", pod(&format!("p{number:03}"), |_| {}));
    }
    cluster.deliver_all();
    let outcome = cluster.reconcile(&CONTROLLER, SINGLETON_KEY);
    assert_eq!(outcome.transactions.len(), BATCH_SIZE / TRANSACTION_SIZE);
    assert_eq!(outcome.requeue_after, Some(Duration::ZERO));
}

#[test]
fn unschedulable_pods_are_reported_once() {
    let mut cluster = cluster();
    cluster.put("pods", pod("p", |_| {}));
    cluster.converge();
    assert_eq!(cluster.events, [("FailedScheduling".into(), "no nodes available to schedule pods".into())]);
    assert_eq!(cluster.writes_to("pods"), 0, "where there are no nodes, nobody waits for one");
    cluster.put("minions", node("a", |_| {}));
    cluster.converge();
    assert_eq!(place(&cluster, "p"), "a");
}

#[test]
fn pods_with_higher_priority_come_first() {
    let mut cluster = cluster();
    cluster.put("pods", pod("early", |_| {}));
    cluster.put("pods", pod("urgent", |pod| pod.put("spec.priority", 5)));
    cluster.put("minions", node("n", |node| node.put("status.allocatable.pods", "1")));
    cluster.converge();
    assert_eq!(["early", "urgent"].map(|name| place(&cluster, name)), ["", "n"]);
}
