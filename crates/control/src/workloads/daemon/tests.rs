use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::testing::Cluster;
use crate::workloads::testing::{edit, owner, start};
use crate::{garbage, scheduler};

const KEY: &str = "default/agent";

fn cluster(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER, &garbage::CONTROLLER, &scheduler::CONTROLLER]);
    for name in nodes {
        cluster.put("minions", node(name, &json!({"kubernetes.io/hostname": name})));
    }
    cluster
}

fn node(name: &str, labels: &Value) -> Value {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": ready}})
}

fn set_of(change: impl FnOnce(&mut Value)) -> Value {
    let mut set = owner("daemonsets", "agent", 0, "i:1");
    change(&mut set);
    api::kinds::daemonset::KIND.rules.prepare_create(&mut set);
    set
}

/// Runs controllers and nodes until nothing changes. Nodes start only Pods that are bound to them.
fn converge(cluster: &mut Cluster) {
    for _ in 0..100 {
        cluster.converge();
        let mut idle = true;
        for pod in cluster.all("pods") {
            let key = format!("default/{}", pod.text("metadata.name"));
            if pod.has("metadata.deletionTimestamp") {
                cluster.remove("pods", &key);
                idle = false;
            } else if pod.text("status.phase") == "Pending" && !pod.text("spec.nodeName").is_empty() {
                start(cluster, &key);
                idle = false;
            }
        }
        if idle {
            return;
        }
    }
    panic!("the nodes do not become idle");
}

/// Node and image of each Pod, by node.
fn placed(cluster: &Cluster) -> Vec<(String, String)> {
    let image = |pod: &Value| pod.items("spec.containers")[0].text("image").to_owned();
    let mut all: Vec<_> =
        cluster.all("pods").iter().map(|pod| (pod.text("spec.nodeName").to_owned(), image(pod))).collect();
    all.sort();
    all
}

fn on(nodes: &[&str], image: &str) -> Vec<(String, String)> {
    nodes.iter().map(|node| ((*node).to_owned(), image.to_owned())).collect()
}

fn status(cluster: &Cluster) -> Value {
    cluster.get("daemonsets", KEY).expect("the set").at("status").clone()
}

fn set_image(cluster: &mut Cluster, image: &str) {
    edit(cluster, "daemonsets", KEY, |set| {
        let old = set.clone();
        set.items_mut("spec.template.spec.containers")[0].put("image", image);
        api::kinds::daemonset::KIND.rules.prepare_update(set, &old);
    });
}

fn fail(cluster: &mut Cluster, name: &str) {
    let mut pod = cluster.get("pods", &format!("default/{name}")).expect("a Pod");
    pod.put("status", json!({"phase": "Failed"}));
    cluster.put("pods", pod);
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.all("pods").iter().map(|pod| pod.text("metadata.name").to_owned()).collect()
}

#[test]
fn each_node_gets_a_pod_through_the_scheduler() {
    let mut cluster = cluster(&["a", "b"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a", "b"], "i:1"));
    let pod = &cluster.all("pods")[0];
    let revision = &cluster.all("controllerrevisions")[0];
    let hash = revision.at("metadata.labels").text("controller-revision-hash");
    assert_eq!(revision.text("metadata.name"), format!("agent-{hash}"));
    assert_eq!(
        pod.at("metadata.labels"),
        &json!({"app": "agent", "controller-revision-hash": hash, "pod-template-generation": "1"})
    );
    assert_eq!(pod.text("metadata.generateName"), "agent-");
    let required = pod.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    let field = json!({"key": "metadata.name", "operator": "In", "values": [pod.text("spec.nodeName")]});
    assert_eq!(required, &json!({"nodeSelectorTerms": [{"matchFields": [field]}]}));
    assert_eq!(pod.items("spec.tolerations").len(), 6);
    assert_eq!(
        status(&cluster),
        json!({
            "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberAvailable": 2, "numberMisscheduled": 0,
            "numberReady": 2, "observedGeneration": 1, "updatedNumberScheduled": 2,
        })
    );
    cluster.written.clear();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.written, [], "nothing to do after a restart");
}

#[test]
fn pods_follow_nodes() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|set| set.put("spec.template.spec.nodeSelector", json!({"disk": "fast"}))));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), []);
    assert_eq!(status(&cluster).int("desiredNumberScheduled"), 0);
    cluster.put("minions", node("b", &json!({"disk": "fast"})));
    cluster.put("minions", node("a", &json!({"disk": "fast"})));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a", "b"], "i:1"));
    cluster.put("minions", node("a", &json!({"disk": "slow"})));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["b"], "i:1"));

    let mut tainted = node("b", &json!({"disk": "fast"}));
    tainted.put("spec.taints", json!([{"key": "x", "effect": "NoSchedule"}]));
    cluster.put("minions", tainted.clone());
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["b"], "i:1"), "it stays");
    let counts = ["desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled"];
    assert_eq!(counts.map(|field| status(&cluster).int(field)), [0, 0, 1]);
    tainted.put("spec.taints", json!([{"key": "x", "effect": "NoExecute"}]));
    cluster.put("minions", tainted);
    converge(&mut cluster);
    assert_eq!(placed(&cluster), []);
}

#[test]
fn heartbeats_of_nodes_change_nothing() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    let mut node = cluster.get("minions", "a").expect("a Node");
    node.items_mut("status.conditions")[0].put("lastHeartbeatTime", "2026-01-01T00:00:00Z");
    cluster.put("minions", node);
    cluster.deliver_all();
    assert!(cluster.queued.iter().all(|(controller, _)| *controller != 0), "{:?}", cluster.queued);
}

#[test]
fn pods_for_deleted_nodes_do_not_wait_for_ever() {
    let mut cluster = cluster(&["a"]);
    let mut full = node("b", &json!({}));
    full.put("status.allocatable", json!({"pods": "0"}));
    cluster.put("minions", full);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), [on(&[""], "i:1"), on(&["a"], "i:1")].concat(), "one does not fit");
    assert_eq!(status(&cluster).int("currentNumberScheduled"), 2);
    cluster.remove("minions", "b");
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a"], "i:1"));
    assert_eq!(status(&cluster).int("desiredNumberScheduled"), 1);
}

#[test]
fn updates_replace_pods_node_by_node() {
    let mut cluster = cluster(&["a", "b", "c"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    cluster.converge();
    let going = |pod: &Value| pod.has("metadata.deletionTimestamp");
    assert_eq!(cluster.all("pods").iter().filter(|pod| going(pod)).count(), 1);
    assert_eq!(status(&cluster).int("updatedNumberScheduled"), 0);
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a", "b", "c"], "i:2"));
    assert_eq!(status(&cluster).int("updatedNumberScheduled"), 3);
    assert_eq!(cluster.all("pods")[0].at("metadata.labels").text("pod-template-generation"), "2");
    assert_eq!(cluster.all("controllerrevisions").len(), 2);
}

#[test]
fn updates_with_surge_keep_a_pod_on_each_node() {
    let mut cluster = cluster(&["a", "b"]);
    let rolling = json!({"maxUnavailable": 0, "maxSurge": 1});
    cluster.put("daemonsets", set_of(|set| set.put("spec.updateStrategy.rollingUpdate", rolling)));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    cluster.converge();
    assert_eq!(placed(&cluster).len(), 3);
    assert!(cluster.all("pods").iter().all(|pod| !pod.has("metadata.deletionTimestamp")));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a", "b"], "i:2"));
}

#[test]
fn on_delete_updates_only_deleted_pods() {
    let mut cluster = cluster(&["a", "b"]);
    cluster.put("daemonsets", set_of(|set| set.put("spec.updateStrategy", json!({"type": "OnDelete"}))));
    converge(&mut cluster);
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a", "b"], "i:1"));
    let pods = cluster.all("pods");
    let on_a = pods.iter().find(|pod| pod.text("spec.nodeName") == "a").expect("a Pod");
    cluster.remove("pods", &format!("default/{}", on_a.text("metadata.name")));
    converge(&mut cluster);
    assert_eq!(placed(&cluster), [on(&["a"], "i:2"), on(&["b"], "i:1")].concat());
}

#[test]
fn revisions_are_kept_for_rollbacks() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|set| set.put("spec.revisionHistoryLimit", 1)));
    converge(&mut cluster);
    let hash =
        |cluster: &Cluster| cluster.all("pods")[0].at("metadata.labels").text("controller-revision-hash").to_owned();
    let first = hash(&cluster);
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    set_image(&mut cluster, "i:1");
    converge(&mut cluster);
    assert_eq!(hash(&cluster), first, "an equal one is found again");
    let numbers = |cluster: &Cluster| {
        let mut all: Vec<i64> = cluster.all("controllerrevisions").iter().map(|one| one.int("revision")).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(numbers(&cluster), [2, 3]);
    for number in 3..6 {
        set_image(&mut cluster, &format!("i:{number}"));
        converge(&mut cluster);
    }
    assert_eq!(numbers(&cluster), [5, 6], "the present one, and one to go back to");
}

#[test]
fn a_taken_name_is_a_collision() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    let mut taken = cluster.all("controllerrevisions").remove(0);
    cluster.remove("daemonsets", KEY);
    converge(&mut cluster);
    taken.drop_path("metadata.ownerReferences");
    taken.put("metadata.labels", json!({"app": "other"}));
    taken.put("data", json!({"spec": {}}));
    cluster.put("controllerrevisions", taken);
    cluster.put("daemonsets", set_of(|set| set.put("metadata.uid", "another")));
    converge(&mut cluster);
    assert_eq!(status(&cluster).int("collisionCount"), 1);
    assert_eq!(placed(&cluster), on(&["a"], "i:1"));
    assert_eq!(cluster.all("controllerrevisions").len(), 2);
}

#[test]
fn failed_pods_are_replaced_with_backoff() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    let first = names(&cluster);
    fail(&mut cluster, &first[0]);
    converge(&mut cluster);
    let second = names(&cluster);
    assert_ne!(first, second, "at once");
    let message = format!("Found failed daemon pod default/{} on node a, will try to kill it", first[0]);
    assert!(cluster.events.contains(&("FailedDaemonPod".to_owned(), message)), "{:?}", cluster.events);
    fail(&mut cluster, &second[0]);
    converge(&mut cluster);
    assert_eq!(names(&cluster), second, "after a delay");
    let wait = cluster.reconcile(&CONTROLLER, KEY).requeue_after.expect("a delay");
    assert_eq!(wait, Duration::from_secs(1));
    cluster.advance(wait);
    cluster.queued.insert((0, KEY.to_owned()));
    converge(&mut cluster);
    assert_ne!(names(&cluster), second);
    let third = names(&cluster);
    fail(&mut cluster, &third[0]);
    converge(&mut cluster);
    assert_eq!(cluster.reconcile(&CONTROLLER, KEY).requeue_after, Some(Duration::from_secs(2)));
    set_image(&mut cluster, "i:2");
    converge(&mut cluster);
    assert_eq!(placed(&cluster), on(&["a"], "i:2"), "an old Pod that has failed is replaced");
}

#[test]
fn pods_are_available_after_min_ready_seconds() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|set| set.put("spec.minReadySeconds", 30)));
    converge(&mut cluster);
    let now = status(&cluster);
    assert_eq!(["numberReady", "numberAvailable", "numberUnavailable"].map(|field| now.int(field)), [1, 0, 1]);
    assert_eq!(cluster.reconcile(&CONTROLLER, KEY).requeue_after, Some(Duration::from_secs(30)));
}

#[test]
fn pods_are_created_in_growing_steps() {
    let names: Vec<String> = (0..400).map(|number| format!("n{number}")).collect();
    let mut cluster = cluster(&names.iter().map(String::as_str).collect::<Vec<_>>());
    cluster.put("daemonsets", set_of(|_| {}));
    cluster.deliver_all();
    let outcome = cluster.reconcile(&CONTROLLER, KEY);
    let sizes: Vec<usize> = outcome.transactions.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 1, 1, 2, 4, 8, 16, 32, 64, 123], "revision, status, Pods");
    converge(&mut cluster);
    assert_eq!(status(&cluster).int("numberReady"), 400);
}

#[test]
fn orphans_are_adopted_and_others_released() {
    let mut cluster = cluster(&["a"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    let before = cluster.all("pods").remove(0);
    let mut orphan = before.clone();
    orphan.drop_path("metadata.ownerReferences");
    cluster.put("pods", orphan.clone());
    converge(&mut cluster);
    let after = cluster.all("pods").remove(0);
    assert_eq!(after.at("metadata.ownerReferences"), before.at("metadata.ownerReferences"));
    assert_eq!(cluster.all("pods").len(), 1, "no second one");
    let mut other = after;
    other.put("metadata.labels", json!({"app": "other"}));
    cluster.put("pods", other);
    converge(&mut cluster);
    assert_eq!(cluster.all("pods").len(), 2, "one was released and replaced");
}

#[test]
fn deleting_a_set_deletes_its_pods_and_revisions() {
    let mut cluster = cluster(&["a", "b"]);
    cluster.put("daemonsets", set_of(|_| {}));
    converge(&mut cluster);
    cluster.remove("daemonsets", KEY);
    converge(&mut cluster);
    assert_eq!((cluster.all("pods").len(), cluster.all("controllerrevisions").len()), (0, 0));
}
