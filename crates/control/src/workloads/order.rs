//! The order of deletion on scale-down.
//!
//! In: Pods of an owner, and related Pods. Out: the Pods, the first to delete in front. The order of Kubernetes: unscheduled, not running, not ready, low
//! deletion cost, many related Pods on the node, ready for a short time, many restarts, young.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::objects::pod::Pod;

/// Sorts Pods, the first to delete in front. `related` are the Pods of the same Deployment, these included.
pub(super) fn sort(pods: &mut [&Arc<Pod>], related: &[&Arc<Pod>], now: i64) {
    let mut crowd: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pod.is_active() && !pod.node.is_empty()) {
        *crowd.entry(&pod.node).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let here = crowd.get(&*pod.node).copied().unwrap_or_default();
        (
            !pod.node.is_empty(),
            pod.phase,
            pod.ready,
            pod.deletion_cost,
            Reverse(here),
            pod.ready_for().map_or(0, |since| magnitude(now - since)),
            Reverse(pod.restarts),
            Reverse(pod.created),
            pod.uid.clone(),
        )
    });
}

/// The logarithm of a duration: similar times are equal.
fn magnitude(seconds: i64) -> u32 {
    u64::try_from(seconds).map_or(0, |seconds| u64::BITS - seconds.leading_zeros())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workloads::testing::stored_pod;

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
        let mut object = json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "a", "containers": []},
            "status": {
                "phase": "Running", "containerStatuses": [{"restartCount": 0}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}],
            },
        });
        change(&mut object);
        stored_pod(&object)
    }

    #[test]
    fn the_least_useful_pods_are_deleted_first() {
        let set = |path: &'static str, value: Value| {
            move |pod: &mut Value| {
                let mut here = pod;
                for part in path.split('.') {
                    here = match part.parse::<usize>() {
                        Ok(index) => &mut here[index],
                        Err(_) => &mut here[part],
                    };
                }
                *here = value;
            }
        };
        let cost = json!({"controller.kubernetes.io/pod-deletion-cost": "-5"});
        let all = [
            pod("unbound", set("spec.nodeName", json!(""))),
            pod("pending", set("status.phase", json!("Pending"))),
            pod("unready", set("status.conditions.0.status", json!("False"))),
            pod("cheap", set("metadata.annotations", cost)),
            pod("restless", set("status.containerStatuses.0.restartCount", json!(3))),
            pod("young", set("metadata.creationTimestamp", json!("2026-01-01T00:00:05Z"))),
            pod("old", |_| {}),
            pod("alone", set("spec.nodeName", json!("b"))),
        ];
        let mut pods: Vec<&Arc<Pod>> = all.iter().rev().collect();
        let related = pods.clone();
        sort(&mut pods, &related, 1_767_225_700);
        let names: Vec<&str> = pods.iter().map(|pod| pod.name()).collect();
        assert_eq!(names, ["unbound", "pending", "unready", "cheap", "restless", "young", "old", "alone"]);
    }
}
