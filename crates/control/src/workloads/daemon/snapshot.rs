//! What a decision needs: the nodes with their Pods, the update strategy, and what is known of each Pod.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::daemonset::template_generation;
use api::object;
use api::portion::{Portion, Rounding};
use api::value::ValueExt as _;
use api::view::labels::CONTROLLER_REVISION_HASH;
use serde_json::Value;

use super::super::{StoredObject, availability};
use super::eligible::{Constraints, Eligibility};
use super::revision::Revisions;
use super::template::TEMPLATE_GENERATION;
use crate::controller::View;
use crate::objects::placement::Placement;
use crate::objects::pod::{Phase, Pod};

/// A DaemonSet, all nodes, and its Pods.
pub(super) struct Snapshot<'a> {
    /// Nodes by name, and names of deleted nodes that have Pods.
    pub(super) nodes: BTreeMap<Cow<'a, str>, NodeState<'a>>,
    pub(super) strategy: Strategy,
    /// In how many seconds the next Pod becomes available.
    pub(super) wait: Option<i64>,
}

/// A node and its Pods.
pub(super) struct NodeState<'a> {
    pub(super) eligibility: Eligibility,
    /// Whether there is a Node.
    pub(super) exists: bool,
    /// Its Pods: bound ones first, then the oldest first. Without those that have ended and are being deleted.
    pub(super) pods: Vec<DaemonPod<'a>>,
}

/// A Pod.
pub(super) struct DaemonPod<'a> {
    pub(super) pod: &'a Arc<Pod>,
    /// Whether it has the current template.
    pub(super) updated: bool,
    pub(super) available: bool,
    /// How long its deletion has to wait, if it failed.
    pub(super) backoff: Option<Duration>,
}

/// `spec.updateStrategy`
#[derive(Clone, Copy)]
pub(super) enum Strategy {
    OnDelete,
    RollingUpdate { unavailable: Portion, surge: Portion },
}

/// How many nodes may be without an available Pod, and how many may have an additional one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) unavailable: usize,
    pub(super) surge: usize,
}

impl<'a> NodeState<'a> {
    /// The Pods that are not being deleted.
    pub(super) fn present(&self) -> impl Iterator<Item = &DaemonPod<'a>> {
        self.pods.iter().filter(|one| !one.pod.deleting)
    }
}

impl Strategy {
    pub(super) fn of(set: &Value) -> Self {
        let strategy = set.at("spec.updateStrategy");
        if strategy.text("type") != "RollingUpdate" {
            return Self::OnDelete;
        }
        let portion = |field: &str| Portion::read(strategy.at("rollingUpdate").at(field)).unwrap_or(Portion::Count(0));
        Self::RollingUpdate { unavailable: portion("maxUnavailable"), surge: portion("maxSurge") }
    }

    /// The limits of an update of so many nodes; `None` if Pods are updated when they are deleted.
    pub(super) fn limits(self, desired: usize) -> Option<Limits> {
        let Self::RollingUpdate { unavailable, surge } = self else { return None };
        let whole = i64::try_from(desired).unwrap_or(i64::MAX);
        let of = |portion: Portion| usize::try_from(portion.of(whole, Rounding::Up)).unwrap_or_default();
        let (unavailable, surge) = (of(unavailable), of(surge));
        // An update must be able to go on, even where validation was bypassed.
        let stuck = desired > 0 && unavailable == 0 && surge == 0;
        let unavailable = if stuck { 1 } else { unavailable };
        Some(Limits { unavailable, surge })
    }

    /// Whether a node may have a second Pod.
    pub(super) fn allows_surge(self) -> bool {
        self.limits(1).is_some_and(|limits| limits.surge > 0)
    }
}

impl<'a> Snapshot<'a> {
    pub(super) fn of(view: &View<'a>, set: &StoredObject, revisions: &Revisions, pods: &[&'a Arc<Pod>]) -> Self {
        let constraints = Constraints::of(set.object.at("spec.template"));
        let mut nodes = BTreeMap::new();
        for node in view.cache.nodes.iter() {
            let eligibility = constraints.on(node);
            nodes.insert(Cow::Borrowed(node.name()), NodeState { eligibility, exists: true, pods: Vec::new() });
        }
        let mut snapshot = Self { nodes, strategy: Strategy::of(&set.object), wait: None };
        let generation = template_generation(&set.object).map(|number| number.to_string());
        let min_ready = set.object.int("spec.minReadySeconds");
        for pod in pods.iter().copied().filter(|pod| !(pod.finished && pod.deleting)) {
            // A Pod that names no node is not ours, although it has our labels.
            let Some(node) = target_node(pod) else { continue };
            let label = |key: &str| pod.entry.facts.label(key);
            let same_number = generation.is_some() && label(TEMPLATE_GENERATION) == generation.as_deref();
            let availability = availability(pod, min_ready, view.now.as_second());
            if let Err(left) = availability {
                snapshot.wait = snapshot.wait.into_iter().chain(left).min();
            }
            let failed = pod.phase == Phase::Failed;
            snapshot.add(
                node,
                DaemonPod {
                    pod,
                    updated: same_number || label(CONTROLLER_REVISION_HASH).is_some_and(|hash| revisions.has(hash)),
                    available: availability.is_ok(),
                    backoff: failed.then(|| view.cache.failed_pods.backoff(set.uid(), pod, view.instant)).flatten(),
                },
            );
        }
        for node in snapshot.nodes.values_mut() {
            node.pods.sort_by(|a, b| rank(a.pod).cmp(&rank(b.pod)));
        }
        snapshot
    }

    fn add(&mut self, node: Cow<'a, str>, pod: DaemonPod<'a>) {
        let deleted = || NodeState { eligibility: Eligibility::None, exists: false, pods: Vec::new() };
        self.nodes.entry(node).or_insert_with(deleted).pods.push(pod);
    }

    /// The number of nodes that should have a Pod.
    pub(super) fn desired(&self) -> usize {
        self.nodes.values().filter(|node| node.eligibility == Eligibility::Runs).count()
    }
}

/// The order of the Pods of a node.
fn rank(pod: &Pod) -> (bool, i64, &str) {
    (pod.node.is_empty(), pod.created, pod.name())
}

/// The node of a Pod, or the one that its affinity names.
fn target_node(pod: &Pod) -> Option<Cow<'_, str>> {
    if !pod.node.is_empty() {
        return Some(Cow::Borrowed(&pod.node));
    }
    if let Some(placement) = &pod.placement {
        return placement.named_node().map(Cow::Borrowed);
    }
    // The cache has no constraints of Pods that our scheduler does not place.
    let object = object::decode_light(&pod.entry.value);
    let placement = Placement::read(&Value::Null, object.at("spec.affinity"), &[]);
    placement.named_node().map(|name| Cow::Owned(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workloads::testing::stored_pod;

    #[test]
    fn limits_are_rounded_up_and_never_stop_an_update() {
        let limits = |unavailable: Value, surge: Value, desired| {
            let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
            let limits = Strategy::of(&json!({"spec": {"updateStrategy": strategy}})).limits(desired);
            limits.map(|limits| (limits.unavailable, limits.surge))
        };
        assert_eq!(limits(json!(1), json!(0), 10), Some((1, 0)));
        assert_eq!(limits(json!("25%"), json!(0), 10), Some((3, 0)));
        assert_eq!(limits(json!(0), json!("10%"), 11), Some((0, 2)));
        assert_eq!(limits(json!(0), json!(0), 10), Some((1, 0)));
        assert_eq!(limits(json!("25%"), json!(0), 0), Some((0, 0)));
        let on_delete = Strategy::of(&json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
        assert_eq!(on_delete.limits(3), None);
        assert!(!on_delete.allows_surge());
    }

    #[test]
    fn the_node_of_a_pod_is_known_before_it_is_bound() {
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let affinity = json!({"nodeAffinity": required});
        for (spec, expected) in [
            (json!({"nodeName": "b", "affinity": affinity}), Some("b")),
            (json!({"affinity": affinity}), Some("a")),
            (json!({"affinity": affinity, "schedulerName": "mine"}), Some("a")),
            (json!({}), None),
        ] {
            let pod = stored_pod(&json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}));
            assert_eq!(target_node(&pod).as_deref(), expected, "{spec}");
        }
    }
}
