//! DaemonSets: a Pod on each node, updated node by node, whatever happens to the nodes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use testbed::session::text;

use super::{PODS, Stage, cells, manifest, node};

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

fn daemons(extra: &str) -> String {
    manifest("DaemonSet", "agent", 0, extra).replace("  replicas: 0\n", "")
}

/// A DaemonSet whose Pods run on both nodes.
fn started(extra: &str) -> Stage {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &daemons(extra));
    stage.ok("rollout status daemonset/agent --timeout=60s");
    stage
}

/// The nodes of running Pods of an image that are not being deleted.
fn nodes<'p>(pods: &'p [Value], image: &str) -> BTreeSet<&'p str> {
    let runs = |pod: &&Value| {
        pod["status"]["phase"] == "Running"
            && pod["metadata"]["deletionTimestamp"].is_null()
            && pod["spec"]["containers"][0]["image"] == image
    };
    pods.iter().filter(runs).map(|pod| text(pod, "/spec/nodeName")).collect()
}

/// Waits until one Pod of the image runs on each of these nodes, and no other Pod is left.
#[track_caller]
fn run_on(stage: &Stage, wanted: &[&str], image: &str) -> Vec<Value> {
    let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
    stage.pods_until("app=agent", |pods| pods.len() == wanted.len() && nodes(pods, image) == wanted)
}

#[test]
fn b09_a_daemon_set_runs_on_each_node_and_is_shown() {
    let stage = started("");
    let pods = run_on(&stage, &["one", "two"], "image:1");
    assert_eq!(pods[0]["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    let out = stage.ok("get ds");
    assert_eq!(
        cells(&out)[0],
        ["NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE", "SELECTOR", "AGE"]
    );
    assert_eq!(cells(&out)[1][..7], ["agent", "2", "2", "2", "2", "2", "<none>"]);
    let out = stage.ok("get daemonsets.v1.apps agent -o wide");
    assert_eq!(cells(&out)[0][9..], ["CONTAINERS", "IMAGES", "SELECTOR"]);
    assert_eq!(cells(&out)[1][8..], ["main", "image:1", "app=agent"]);
    assert!(stage.ok("get all").contains("daemonset.apps/agent"));
    let resources = stage.ok("api-resources");
    assert!(cells(&resources).iter().any(|row| row.join(" ") == "daemonsets ds apps/v1 true DaemonSet"), "{resources}");
    assert!(stage.ok("explain daemonset.spec.updateStrategy.rollingUpdate").contains("maxSurge"));
    let described = stage.ok("describe ds agent");
    for wanted in ["Desired Number of Nodes Scheduled: 2", "Number of Nodes Misscheduled: 0", "SuccessfulCreate"] {
        assert!(described.contains(wanted), "{wanted} in\n{described}");
    }
    let revisions = stage.ok("get controllerrevisions");
    assert_eq!(cells(&revisions)[1][1..3], ["daemonset.apps/agent", "1"]);
    stage.ok("delete daemonset agent --timeout=60s");
    stage.pods_until("app=agent", <[_]>::is_empty);
}

#[test]
fn b09_pods_of_a_daemon_set_follow_the_nodes() {
    let stage = started("");
    let mut session = stage.server.session();
    let _ = session.post("/api/v1/nodes", &node("three")).success();
    run_on(&stage, &["one", "two", "three"], "image:1");
    stage.ok("taint node two gpu=yes:NoExecute");
    run_on(&stage, &["one", "three"], "image:1");
    stage.ok("taint node two gpu-");
    run_on(&stage, &["one", "two", "three"], "image:1");
    // A cordoned node keeps its Pod, and gets a new one.
    stage.ok("cordon one");
    let pods = run_on(&stage, &["one", "two", "three"], "image:1");
    let on_one = pods.iter().find(|pod| pod["spec"]["nodeName"] == "one").expect("a Pod");
    stage.ok(&format!("delete pod {} --wait=false", text(on_one, "/metadata/name")));
    let uid = on_one["metadata"]["uid"].clone();
    stage.pods_until("app=agent", |pods| {
        nodes(pods, "image:1").len() == 3 && pods.iter().all(|pod| pod["metadata"]["uid"] != uid)
    });
    let patch = r#"{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"two"}}}}}"#;
    stage.ok(&format!("patch daemonset agent -p {patch}"));
    run_on(&stage, &["two"], "image:1");
    let out = stage.ok("get ds agent");
    assert_eq!(cells(&out)[1][6], "kubernetes.io/hostname=two");
}

#[test]
fn b09_an_update_of_a_daemon_set_can_be_watched_and_taken_back() {
    let stage = started("");
    stage.ok("set image daemonset/agent main=image:2");
    stage.ok("annotate daemonset agent kubernetes.io/change-cause=second");
    let said = stage.ok("rollout status daemonset/agent --timeout=60s");
    assert!(said.contains("daemon set \"agent\" successfully rolled out"), "{said}");
    run_on(&stage, &["one", "two"], "image:2");
    let history = stage.ok("rollout history daemonset/agent");
    assert!(cells(&history).contains(&vec!["1", "<none>"]), "{history}");
    assert!(cells(&history).iter().any(|row| row.first() == Some(&"2")), "{history}");
    let old = stage.ok("rollout history daemonset/agent --revision=1");
    assert!(old.contains("image:1"), "{old}");
    stage.ok("rollout undo daemonset/agent");
    stage.ok("rollout status daemonset/agent --timeout=60s");
    run_on(&stage, &["one", "two"], "image:1");
    let history = stage.ok("rollout history daemonset/agent");
    let numbers: Vec<&str> = cells(&history).iter().filter_map(|row| row.first().copied()).collect();
    assert!(numbers.ends_with(&["2", "3"]), "the old revision is the newest now: {history}");
    stage.ok("rollout restart daemonset/agent");
    stage.ok("rollout status daemonset/agent --timeout=60s");
    let set = stage.json("daemonset agent");
    assert_eq!(set["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "4");
    assert_eq!(set["status"]["observedGeneration"], set["metadata"]["generation"]);
}

#[test]
fn b09_an_update_of_a_daemon_set_stops_at_pods_that_do_not_become_ready() {
    let stage = started("");
    stage.stuck.store(true, Ordering::Relaxed);
    stage.ok("set image daemonset/agent main=image:2");
    let pods = stage.pods_until("app=agent", |pods| {
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"] == "image:2";
        pods.len() == 2 && pods.iter().any(|pod| image(pod) && !text(pod, "/spec/nodeName").is_empty())
    });
    assert_eq!(nodes(&pods, "image:1").len(), 1, "one node at a time");
    stage.fails("rollout status daemonset/agent --timeout=1s");
    assert_eq!(nodes(&stage.server.session().items(PODS), "image:1").len(), 1);
    stage.stuck.store(false, Ordering::Relaxed);
    stage.ok("rollout undo daemonset/agent");
    stage.ok("rollout status daemonset/agent --timeout=60s");
    run_on(&stage, &["one", "two"], "image:1");
}

#[test]
fn b09_an_update_with_surge_keeps_every_node_served() {
    let stage = started("  updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}\n");
    stage.stuck.store(true, Ordering::Relaxed);
    stage.ok("set image daemonset/agent main=image:2");
    let pods = stage.pods_until("app=agent", |pods| {
        pods.len() == 3 && pods.iter().all(|pod| !text(pod, "/spec/nodeName").is_empty())
    });
    assert_eq!(nodes(&pods, "image:1").len(), 2);
    stage.stuck.store(false, Ordering::Relaxed);
    // Any change makes the kubelet look again.
    let new = pods.iter().find(|pod| pod["spec"]["containers"][0]["image"] == "image:2").expect("a new Pod");
    stage.ok(&format!("annotate pod {} look=again", text(new, "/metadata/name")));
    stage.ok("rollout status daemonset/agent --timeout=60s");
    run_on(&stage, &["one", "two"], "image:2");
}

#[test]
fn b09_on_delete_updates_pods_that_are_deleted() {
    let stage = started("");
    stage.ok("patch daemonset agent --type=merge -p {\"spec\":{\"updateStrategy\":{\"type\":\"OnDelete\",\"rollingUpdate\":null}}}");
    stage.ok("set image daemonset/agent main=image:2");
    let pods = run_on(&stage, &["one", "two"], "image:1");
    let first = pods.iter().find(|pod| pod["spec"]["nodeName"] == "one").expect("a Pod");
    stage.ok(&format!("delete pod {} --wait=false", text(first, "/metadata/name")));
    stage.pods_until("app=agent", |pods| {
        nodes(pods, "image:2") == BTreeSet::from(["one"]) && nodes(pods, "image:1") == BTreeSet::from(["two"])
    });
}

#[test]
fn b09_a_failed_pod_of_a_daemon_set_is_replaced() {
    let stage = started("");
    let pods = run_on(&stage, &["one", "two"], "image:1");
    let failed = pods.iter().find(|pod| pod["spec"]["nodeName"] == "two").expect("a Pod");
    let (name, uid) = (text(failed, "/metadata/name"), failed["metadata"]["uid"].clone());
    let status = json!({"status": {"phase": "Failed", "conditions": null}});
    let _ = stage.server.session().merge(&format!("{PODS}/{name}/status"), &status).success();
    stage.pods_until("app=agent", |pods| {
        nodes(pods, "image:1").len() == 2 && pods.iter().all(|pod| pod["metadata"]["uid"] != uid)
    });
    let described = stage.ok("describe daemonset agent");
    let message = format!("Found failed daemon pod default/{name} on node two, will try to kill it");
    assert!(described.contains("FailedDaemonPod") && described.contains(&message), "{described}");
}

#[test]
fn b09_a_drained_node_keeps_its_daemons() {
    let stage = started("");
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("rollout status deployment/web --timeout=60s");
    let said = stage.fails("drain one --timeout=60s");
    assert!(said.contains("cannot delete DaemonSet-managed Pods"), "{said}");
    stage.ok("drain one --ignore-daemonsets --timeout=60s");
    run_on(&stage, &["one", "two"], "image:1");
    stage.ok("rollout status deployment/web --timeout=60s");
    let pods = stage.pods_until("app=web", |pods| pods.len() == 2);
    assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "two"), "{pods:?}");
}

#[test]
fn b09_orphans_of_a_daemon_set_are_found_again() {
    let stage = started("");
    let uids =
        |pods: &[Value]| -> BTreeSet<String> { pods.iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect() };
    let before = uids(&run_on(&stage, &["one", "two"], "image:1"));
    stage.ok("delete daemonset agent --cascade=orphan --timeout=60s");
    stage.pods_until("app=agent", |pods| pods.iter().all(|pod| pod["metadata"]["ownerReferences"].is_null()));
    stage.ok_with("apply -f -", &daemons(""));
    stage.ok("rollout status daemonset/agent --timeout=60s");
    let after = stage.pods_until("app=agent", |pods| {
        pods.iter().all(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet")
    });
    assert_eq!(uids(&after), before);
}

#[test]
fn s01_a_daemon_set_that_cannot_be_is_refused_with_its_place() {
    let stage = Stage::without_kubelet(&[]);
    let refused = |extra: &str| stage.run("create -f -", &daemons(extra)).failure();
    let said = refused("  updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}\n");
    assert!(
        said.contains("The DaemonSet \"agent\" is invalid: spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"),
        "{said}"
    );
    let said = refused("  updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}\n");
    assert!(said.contains("maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"), "{said}");
    let said = refused("  replicas: 2\n");
    assert!(said.contains("unknown field \"spec.replicas\""), "{said}");

    stage.ok_with("create -f -", &daemons(""));
    let mut session = stage.server.session();
    let path = format!("{SETS}/agent");
    let said = session.merge(&path, &json!({"spec": {"selector": {"matchLabels": {"other": "x"}}}})).refused(422);
    assert!(said.contains("field is immutable"), "{said}");
    let annotations =
        |value: &str| json!({"metadata": {"annotations": {"deprecated.daemonset.template.generation": value}}});
    let said = session.merge(&path, &annotations("x")).refused(400);
    assert!(said.contains("strconv.ParseInt: parsing \"x\": invalid syntax"), "{said}");
    let set = session.merge(&path, &annotations("9")).success();
    let generation = &set["metadata"]["annotations"]["deprecated.daemonset.template.generation"];
    assert_eq!((generation, &set["metadata"]["generation"]), (&json!("1"), &json!(1)), "clients do not set it");
    let said = session.merge(&format!("{path}/status"), &json!({"status": {"numberReady": -1}})).refused(422);
    assert!(said.contains("status.numberReady: Invalid value: -1: must be greater than or equal to 0"), "{said}");
    assert_eq!(session.get(&format!("{path}/scale")).code, 404);
}
