use proptest::prelude::*;
use serde_json::json;
use store::Table;

use super::*;
use crate::endpointslice;
use crate::testing::{Cluster, pod, service};

const BEFORE: &str = "2026-01-01T00:00:00Z";
/// The current time in test clusters.
const NOW: &str = "1970-01-01T00:00:00Z";
const SECOND: Duration = Duration::from_secs(1);

/// A Node with the time of its last heartbeat.
fn node(name: &str, ready: &str, beat: usize) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Said", "message": "by the Node",
               "lastHeartbeatTime": format!("2026-01-01T00:00:{beat:02}Z"), "lastTransitionTime": BEFORE})
    };
    let conditions =
        [condition("Ready", ready), condition("DiskPressure", "False"), condition("NetworkUnavailable", "False")];
    json!({"metadata": {"name": name}, "status": {"conditions": conditions}})
}

fn bound(name: &str, node: &str, number: usize, ready: bool) -> Value {
    let mut pod = pod(name, "web", number, ready);
    pod.put("spec.nodeName", node);
    pod.put("metadata.generation", 1);
    pod
}

fn lease(name: &str, time: usize) -> Value {
    json!({"metadata": {"name": name, "namespace": "kube-node-lease"},
           "spec": {"holderIdentity": name, "renewTime": format!("2026-01-01T00:00:{time:02}.000000Z")}})
}

/// Two Nodes with this number of ready Pods each.
fn cluster(pods: usize) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER, &endpointslice::CONTROLLER]);
    for (place, name) in ["dying", "living"].into_iter().enumerate() {
        cluster.put("minions", node(name, "True", 0));
        for number in 0..pods {
            cluster.put("pods", bound(&format!("{name}-{number}"), name, place * 250 + number, true));
        }
    }
    cluster.put("services/specs", service("web", "web"));
    cluster.converge();
    cluster.written.clear();
    cluster
}

/// Advances the clock and reconciles all Nodes.
fn advance(cluster: &mut Cluster, time: Duration) {
    cluster.advance(time);
    for node in cluster.all("minions") {
        cluster.queued.insert((0, node.text("metadata.name").to_owned()));
    }
    cluster.converge();
}

fn ready_pods(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.all("pods");
    let ready = pods.iter().filter(|pod| condition(pod, "Ready").is_some_and(|ready| ready.text("status") == "True"));
    ready.map(|pod| pod.text("metadata.name").to_owned()).collect()
}

fn status(cluster: &Cluster, name: &str) -> String {
    let node = cluster.get("minions", name).expect("a Node");
    condition(&node, "Ready").map_or("", |ready| ready.text("status")).to_owned()
}

#[test]
fn s19_pods_of_a_dead_node_leave_the_endpoints() {
    let mut cluster = cluster(2);
    let ready_endpoints = |cluster: &Cluster| {
        let slices = cluster.all("endpointslices");
        let endpoints = slices.iter().flat_map(|slice| slice.items("endpoints"));
        let mut ready: Vec<String> = endpoints
            .filter(|endpoint| endpoint.flag("conditions.ready"))
            .map(|endpoint| endpoint.text("targetRef.name").to_owned())
            .collect();
        ready.sort_unstable();
        ready
    };
    assert_eq!(ready_endpoints(&cluster), ["dying-0", "dying-1", "living-0", "living-1"]);
    advance(&mut cluster, SECOND * 30);
    cluster.put("leases", lease("living", 30));
    cluster.converge();
    assert_eq!(cluster.written, [], "nothing happens within the grace");
    advance(&mut cluster, SECOND * 20);
    assert_eq!(ready_endpoints(&cluster), ["living-0", "living-1"]);
    assert_eq!((status(&cluster, "dying"), status(&cluster, "living")), ("Unknown".to_owned(), "True".to_owned()));
    assert_eq!(cluster.writes_to("endpointslices"), 1, "they leave together");
    let said = |reason: &str, message: &str| (reason.to_owned(), message.to_owned());
    assert_eq!(
        cluster.events,
        [said("NodeNotReady", "Node dying status is now: NodeNotReady"), said("NodeNotReady", "Node is not ready")]
    );
    cluster.written.clear();
    advance(&mut cluster, SECOND);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.written, [], "it is done once");
    cluster.put("minions", node("dying", "True", 51));
    for number in 0..2 {
        cluster.put("pods", bound(&format!("dying-{number}"), "dying", number, true));
    }
    cluster.converge();
    assert_eq!(ready_endpoints(&cluster).len(), 4, "it comes back by its own word");
}

#[test]
fn conditions_of_a_node_without_heartbeats() {
    let mut cluster = cluster(0);
    advance(&mut cluster, SECOND * 50);
    let node = cluster.get("minions", "dying").expect("a Node");
    let facts = |kind: &str| {
        let condition = condition(&node, kind).unwrap_or_else(|| panic!("{kind}"));
        ["status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"].map(|part| condition.text(part))
    };
    let stopped = ["Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", BEFORE, NOW];
    let never = ["Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.", BEFORE, NOW];
    assert_eq!((facts("Ready"), facts("DiskPressure")), (stopped, stopped));
    assert_eq!((facts("MemoryPressure"), facts("PIDPressure")), (never, never));
    assert_eq!(facts("NetworkUnavailable")[0], "False", "that is for others to say");
}

#[test]
fn only_the_readiness_of_a_pod_changes() {
    let mut cluster = cluster(1);
    let mut pod = cluster.get("pods", "default/dying-0").expect("a Pod");
    let conditions = |ready: &str, since: &str| {
        json!([
            {"type": "ContainersReady", "status": "True", "lastProbeTime": null, "lastTransitionTime": BEFORE},
            {"type": "Ready", "status": ready, "reason": "r", "message": "m", "lastProbeTime": null,
             "lastTransitionTime": since},
        ])
    };
    pod.put("status.conditions", conditions("True", BEFORE));
    cluster.put("pods", pod);
    advance(&mut cluster, SECOND * 50);
    let pod = cluster.get("pods", "default/dying-0").expect("a Pod");
    assert_eq!(pod.text("status.podIP"), "10.244.0.1");
    assert_eq!(pod.at("status.conditions"), &conditions("False", NOW));
}

#[test]
fn every_heartbeat_restarts_the_grace_period() {
    let mut cluster = cluster(1);
    let rest = |cluster: &Cluster| cluster.reconcile(&CONTROLLER, "dying").requeue_after;
    assert_eq!(rest(&cluster), Some(SECOND * 50));
    cluster.advance(SECOND * 49);
    assert_eq!(rest(&cluster), Some(SECOND));
    cluster.put("leases", lease("dying", 49));
    cluster.deliver_all();
    assert!(cluster.queued.is_empty(), "a heartbeat queues no key");
    cluster.advance(SECOND * 20);
    assert_eq!(rest(&cluster), Some(SECOND * 30));
    cluster.put("minions", node("dying", "True", 1));
    cluster.deliver_all();
    assert_eq!(rest(&cluster), Some(SECOND * 50));
    let mut labelled = node("dying", "True", 1);
    labelled.put("metadata.labels", json!({"a": "b"}));
    cluster.advance(SECOND * 10);
    cluster.put("minions", labelled);
    cluster.deliver_all();
    assert_eq!(rest(&cluster), Some(SECOND * 40), "what others write is no sign of life");
}

#[test]
fn a_restart_of_the_controller_restarts_the_grace_period() {
    let mut cluster = cluster(1);
    cluster.advance(SECOND * 1000);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to("minions") + cluster.writes_to("pods"), 0);
    advance(&mut cluster, SECOND * 50);
    assert_eq!((cluster.writes_to("minions"), cluster.writes_to("pods")), (2, 2));
}

#[test]
fn a_restart_marks_the_remaining_pods_not_ready() {
    let mut cluster = cluster(0);
    advance(&mut cluster, SECOND * 50);
    cluster.put("pods", bound("left", "dying", 1, true));
    cluster.restart();
    cluster.converge();
    assert_eq!(ready_pods(&cluster), ["left"], "it may be speaking again");
    advance(&mut cluster, SECOND * 50);
    assert_eq!(ready_pods(&cluster), Vec::<String>::new());
}

#[test]
fn a_node_with_one_more_heartbeat_becomes_unknown_again() {
    let mut cluster = cluster(1);
    advance(&mut cluster, SECOND * 50);
    cluster.put("leases", lease("dying", 51));
    cluster.put("pods", bound("dying-0", "dying", 0, true));
    cluster.deliver_all();
    assert!(cluster.queued.contains(&(0, "dying".to_owned())), "the key is queued again");
    cluster.converge();
    assert_eq!(ready_pods(&cluster), ["dying-0"]);
    advance(&mut cluster, SECOND * 50);
    assert_eq!(ready_pods(&cluster), Vec::<String>::new());
}

#[test]
fn pods_of_a_node_that_reports_not_ready_are_marked_once() {
    let mut cluster = cluster(2);
    cluster.put("minions", node("dying", "False", 1));
    cluster.converge();
    assert_eq!(ready_pods(&cluster), ["living-0", "living-1"]);
    assert_eq!(cluster.events[0].1, "Node dying status is now: NodeNotReady");
    assert_eq!(cluster.writes_to("minions"), 0, "it has said so itself");
    // Its agent reports one Pod ready and keeps sending heartbeats.
    cluster.put("pods", bound("dying-1", "dying", 1, true));
    cluster.converge();
    cluster.put("minions", node("dying", "False", 2));
    advance(&mut cluster, SECOND);
    assert_eq!(ready_pods(&cluster).len(), 3, "the last word is the Node's");
    advance(&mut cluster, SECOND * 50);
    assert_eq!((ready_pods(&cluster).len(), status(&cluster, "dying")), (0, "Unknown".to_owned()));
}

#[test]
fn a_pod_that_is_delivered_late_is_marked_not_ready() {
    let mut cluster = cluster(1);
    cluster.put("pods", bound("late", "dying", 9, false));
    cluster.converge();
    cluster.put("pods", bound("late", "dying", 9, true));
    cluster.put("minions", node("dying", "False", 1));
    cluster.deliver(Table::named("minions"));
    cluster.run(0, "dying/not-ready");
    cluster.converge();
    assert_eq!(ready_pods(&cluster), ["living-0"]);
}

#[test]
fn a_node_without_any_status_is_unknown_and_its_pods_are_unchanged() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("minions", json!({"metadata": {"name": "made-by-hand"}}));
    cluster.put("pods", bound("p", "made-by-hand", 1, true));
    cluster.converge();
    for _ in 0..2 {
        advance(&mut cluster, SECOND * 50);
        assert_eq!((status(&cluster, "made-by-hand"), ready_pods(&cluster).len()), ("Unknown".to_owned(), 1));
        cluster.restart();
        cluster.converge();
    }
    assert_eq!((cluster.writes_to("minions"), cluster.events.len()), (1, 0));
}

#[test]
fn pods_are_written_in_chunks_while_the_node_has_no_heartbeat() {
    let mut cluster = cluster(240);
    cluster.advance(SECOND * 50);
    let sizes = |cluster: &Cluster| -> Vec<usize> {
        cluster.reconcile(&CONTROLLER, "dying").transactions.iter().map(Vec::len).collect()
    };
    assert_eq!(sizes(&cluster), [1, 100, 100, 40]);
    // The heartbeat is stored but not delivered yet.
    cluster.put("minions", node("dying", "True", 50));
    cluster.run(0, "dying");
    assert_eq!(cluster.writes_to("minions") + cluster.writes_to("pods"), 0);
    cluster.converge();
    assert_eq!((ready_pods(&cluster).len(), status(&cluster, "dying")), (480, "True".to_owned()));
}

#[test]
fn a_new_pod_of_the_same_name_is_unchanged() {
    let mut cluster = cluster(1);
    let mut other = bound("dying-0", "living", 7, true);
    other.put("metadata.uid", "another");
    cluster.put("pods", other);
    cluster.advance(SECOND * 50);
    let outcome = cluster.reconcile(&CONTROLLER, "dying");
    assert_eq!(outcome.transactions.len(), 1, "only the Node: {:?}", outcome.transactions);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// For any heartbeats: a Node becomes Unknown exactly when the grace period passed without one.
    #[test]
    fn a_node_is_unknown_exactly_after_the_grace_period(
        beats in proptest::collection::vec((1_u64..70, 0_u8..4), 1..20)
    ) {
        let mut cluster = cluster(1);
        let (mut silence, mut given_up) = (0, false);
        for (index, (seconds, how)) in beats.into_iter().enumerate() {
            cluster.put("minions", node("living", "True", index + 1));
            cluster.converge();
            advance(&mut cluster, SECOND * u32::try_from(seconds).unwrap_or_default());
            silence += seconds;
            given_up |= silence >= 50;
            prop_assert_eq!(status(&cluster, "dying") == "Unknown", given_up);
            let in_service = ready_pods(&cluster).iter().any(|name| name == "dying-0");
            prop_assert_eq!(in_service, !given_up);
            match how {
                0 => {
                    cluster.put("minions", node("dying", "True", index + 1));
                    cluster.put("pods", bound("dying-0", "dying", 0, true));
                    (silence, given_up) = (0, false);
                }
                1 if !given_up => {
                    cluster.put("leases", lease("dying", index));
                    silence = 0;
                }
                _ => {}
            }
            cluster.converge();
        }
    }
}
