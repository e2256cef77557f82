//! Tables of decisions. A node is its eligibility and its Pods; a Pod is a word:
//!
//! `n` (current template) or `o` (an old one), then `A` available, `R` ready, `W` not ready, `F` failed, `B` failed and in backoff, `S` succeeded; then
//! `d` for a Pod that is being deleted, `u` for one that is not bound. The Pods of the node `a` are called `a0`, `a1`, …

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::portion::Portion;
use serde_json::json;

use super::super::snapshot::Strategy;
use super::super::status::Counts;
use super::*;
use crate::objects::pod::Pod;
use crate::workloads::testing::stored_pod;

const BACKOFF: Duration = Duration::from_secs(4);
const ON_DELETE: Strategy = Strategy::OnDelete;

fn rolling(unavailable: i64, surge: i64) -> Strategy {
    Strategy::RollingUpdate { unavailable: Portion::Count(unavailable), surge: Portion::Count(surge) }
}

fn pod(name: &str, node: &str, word: &str) -> Arc<Pod> {
    let phase = match word.as_bytes()[1] {
        b'F' | b'B' => "Failed",
        b'S' => "Succeeded",
        b'W' => "Pending",
        _ => "Running",
    };
    let ready = if matches!(word.as_bytes()[1], b'A' | b'R') { "True" } else { "False" };
    let mut object = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {"containers": []},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    if !word.ends_with('u') {
        object["spec"]["nodeName"] = json!(node);
    }
    if word.ends_with('d') {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    stored_pod(&object)
}

/// Calls a function with the snapshot of nodes, each `(eligibility, Pods)`; they are called `a`, `b`, …
fn with<R>(strategy: Strategy, nodes: &[(Eligibility, &str)], act: impl FnOnce(&Snapshot<'_>) -> R) -> R {
    let names: Vec<String> = (b'a'..).map(|letter| char::from(letter).to_string()).take(nodes.len()).collect();
    let mut pods: Vec<Vec<(Arc<Pod>, &str)>> = Vec::new();
    for (name, (_, words)) in names.iter().zip(nodes) {
        let words = words.split_whitespace().enumerate();
        pods.push(words.map(|(index, word)| (pod(&format!("{name}{index}"), name, word), word)).collect());
    }
    let mut states = BTreeMap::new();
    for ((name, (eligibility, _)), pods) in names.iter().zip(nodes).zip(&pods) {
        let pods = pods.iter().map(|(pod, word)| DaemonPod {
            pod,
            updated: word.starts_with('n'),
            available: word.as_bytes()[1] == b'A',
            backoff: (word.as_bytes()[1] == b'B').then_some(BACKOFF),
        });
        let state = NodeState { eligibility: *eligibility, exists: true, pods: pods.collect() };
        states.insert(Cow::Borrowed(name.as_str()), state);
    }
    act(&Snapshot { nodes: states, strategy, wait: None })
}

/// `+a` for each node that gets a Pod, `-a0` for each Pod that is deleted.
fn text(plan: &Plan<'_>) -> String {
    let create = plan.create.iter().map(|node| format!("+{node}"));
    let delete = plan.ended.iter().chain(&plan.delete).map(|(_, pod)| format!("-{}", pod.name()));
    create.chain(delete).collect::<Vec<_>>().join(" ")
}

fn decided(strategy: Strategy, nodes: &[(Eligibility, &str)]) -> String {
    with(strategy, nodes, |snapshot| text(&decide(snapshot)))
}

#[test]
fn each_eligible_node_has_one_pod() {
    use Eligibility::{None, Runs, Stays};
    for (node, expected) in [
        ((Runs, ""), "+a"),
        ((Runs, "nA"), ""),
        ((Runs, "nWu"), ""),
        ((Runs, "nAd"), ""),
        ((Runs, "nA nW"), "-a1"),
        ((Runs, "nF"), "-a0"),
        ((Runs, "nS"), "-a0"),
        ((Runs, "nB"), ""),
        ((Runs, "nF nA"), "-a0"),
        ((Stays, ""), ""),
        ((Stays, "nA"), ""),
        ((Stays, "nF"), "-a0"),
        ((Stays, "nA nA"), "-a1"),
        ((None, ""), ""),
        ((None, "nA oAd nW"), "-a0 -a2"),
    ] {
        assert_eq!(decided(ON_DELETE, &[node]), expected, "{node:?}");
    }
}

#[test]
fn failed_pods_wait_for_their_backoff() {
    with(ON_DELETE, &[(Eligibility::Runs, "nB"), (Eligibility::Runs, "nF")], |snapshot| {
        let plan = decide(snapshot);
        assert_eq!((text(&plan).as_str(), plan.backoff), ("-b0", Some(BACKOFF)));
        assert_eq!(plan.ended.len(), 1);
    });
}

#[test]
fn updates_respect_max_unavailable() {
    use Eligibility::{Runs, Stays};
    for (limit, nodes, expected) in [
        (1, vec![(Runs, "oA"), (Runs, "oA"), (Runs, "oA")], "-a0"),
        (2, vec![(Runs, "oA"), (Runs, "oA"), (Runs, "oA")], "-a0 -b0"),
        (1, vec![(Runs, "nW"), (Runs, "oA")], ""),
        (1, vec![(Runs, "nR"), (Runs, "oA")], ""),
        (1, vec![(Runs, "nA"), (Runs, "oA")], "-b0"),
        (1, vec![(Runs, "oAd"), (Runs, "oA")], ""),
        // Old Pods that are not available are replaced, however many they are, and count.
        (1, vec![(Runs, "oW"), (Runs, "oR"), (Runs, "oA")], "-a0 -b0"),
        (3, vec![(Runs, "oW"), (Runs, "oA"), (Runs, "oA"), (Runs, "oA")], "-a0 -b0 -c0"),
        // A failed Pod in backoff is not available.
        (1, vec![(Runs, "nB"), (Runs, "oA")], ""),
        (1, vec![(Stays, "oA"), (Runs, "nA")], "-a0"),
        (1, vec![(Runs, "nA"), (Runs, "nA")], ""),
    ] {
        assert_eq!(decided(rolling(limit, 0), &nodes), expected, "{limit} {nodes:?}");
        assert_eq!(decided(ON_DELETE, &nodes), "", "{nodes:?}");
    }
    // Missing Pods first.
    assert_eq!(decided(rolling(1, 0), &[(Runs, "oA"), (Runs, "")]), "+b");
}

#[test]
fn updates_with_surge_add_before_they_delete() {
    use Eligibility::{None, Runs, Stays};
    for (limit, nodes, expected) in [
        (1, vec![(Runs, "oA"), (Runs, "oA")], "+a"),
        (2, vec![(Runs, "oA"), (Runs, "oA"), (Runs, "oA")], "+a +b"),
        (1, vec![(Runs, "oA nW"), (Runs, "oA")], ""),
        (1, vec![(Runs, "oA nR"), (Runs, "oA")], ""),
        (1, vec![(Runs, "oA nA"), (Runs, "oA")], "-a0"),
        (1, vec![(Runs, "nA"), (Runs, "oA")], "+b"),
        // An old Pod that is not available needs no surge.
        (1, vec![(Runs, "oW"), (Runs, "oA")], "+a +b"),
        (1, vec![(Runs, "oW nW"), (Runs, "oA")], "-a0"),
        // All but the oldest of each template are deleted.
        (1, vec![(Runs, "oA oA nW nW")], "-a3 -a1"),
        (1, vec![(Runs, "oAd")], "+a"),
        (1, vec![(Runs, "nB")], "+a"),
        (1, vec![(Stays, "nF")], "-a0"),
        (1, vec![(None, "oA")], "-a0"),
        // A Pod of a node that no longer runs one stays until enough others are available.
        (1, vec![(Stays, "oA"), (Runs, "nW")], ""),
        (1, vec![(Stays, "oA"), (Runs, "nA")], "-a0"),
        (1, vec![(Stays, "oW"), (Runs, "nW")], "-a0"),
    ] {
        assert_eq!(decided(rolling(0, limit), &nodes), expected, "{limit} {nodes:?}");
    }
}

#[test]
fn pods_of_deleted_nodes_are_deleted_while_they_wait() {
    let pods = [pod("a0", "a", "nWu"), pod("a1", "a", "nA")];
    let one = |pod| DaemonPod { pod, updated: true, available: false, backoff: None };
    let state = NodeState { eligibility: Eligibility::None, exists: false, pods: pods.iter().map(one).collect() };
    let nodes = BTreeMap::from([(Cow::Borrowed("a"), state)]);
    let snapshot = Snapshot { nodes, strategy: ON_DELETE, wait: None };
    assert_eq!(text(&decide(&snapshot)), "-a0");
    assert_eq!(Counts::of(&snapshot), Counts::default());
}

#[test]
fn status_counts_nodes() {
    use Eligibility::{None, Runs, Stays};
    let nodes = [(Runs, ""), (Runs, "oA nW"), (Runs, "nA"), (Runs, "nR"), (Runs, "nW"), (Stays, "nA"), (None, "oA")];
    let counts = with(ON_DELETE, &nodes, Counts::of);
    let expected = Counts { desired: 5, current: 4, misscheduled: 2, ready: 3, updated: 3, available: 2 };
    assert_eq!(counts, expected);
}

/// For any order of events, an update never makes more Pods unavailable than the limit, and completes.
#[test]
fn updates_converge_within_their_limits() {
    for (unavailable, surge) in [(1, 0), (2, 0), (0, 1), (0, 3)] {
        let mut nodes: Vec<Vec<&str>> = vec![vec!["oA"]; 5];
        for round in 0.. {
            assert!(round < 100, "{unavailable} {surge}: {nodes:?}");
            let words: Vec<String> = nodes.iter().map(|words| words.join(" ")).collect();
            let states: Vec<(Eligibility, &str)> = words.iter().map(|words| (Eligibility::Runs, &**words)).collect();
            let plan = decided(rolling(unavailable, surge), &states);
            for step in plan.split_whitespace() {
                let node = usize::from(step.as_bytes()[1] - b'a');
                match step.strip_prefix('-') {
                    Some(pod) => nodes[node][usize::from(pod.as_bytes()[1] - b'0')] = "gone",
                    _ => nodes[node].push("nW"),
                }
            }
            for words in &mut nodes {
                words.retain(|word| *word != "gone");
            }
            let serving = nodes.iter().filter(|words| words.iter().any(|word| word.ends_with('A'))).count();
            assert!(serving >= 5 - usize::try_from(unavailable).expect("small"), "{nodes:?}");
            assert!(nodes.iter().filter(|words| words.len() > 1).count() <= usize::try_from(surge).expect("small"));
            // One Pod becomes available, the last one first.
            let waiting = nodes.iter_mut().rev().flatten().find(|word| **word == "nW");
            match waiting {
                Some(word) => *word = "nA",
                None if plan.is_empty() => break,
                None => {}
            }
        }
        assert_eq!(nodes, vec![vec!["nA"]; 5], "{unavailable} {surge}");
    }
}
