//! Scores: fewest Pods of the same owner, then preferred affinity, then lowest load.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::fit::NodeCapacity;
use crate::controller::View;
use crate::objects::placement::Placement;

/// The factor of preferences: one of full weight outweighs two Pods of the same owner.
const PREFERRED_WEIGHT: i64 = 2;
/// The largest weight of a preference.
const MAX_SCORE: i64 = 100;

/// The number of Pods of an owner on each node.
pub(super) fn relatives(view: &View<'_>, owner: &str, rooms: &[NodeCapacity<'_>]) -> Vec<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for one in view.cache.owners.dependents_of(owner).filter(|one| one.key.table.as_str() == "pods") {
        if let Some(pod) = view.cache.pods.get(&one.key.name).filter(|pod| pod.is_active() && !pod.node.is_empty()) {
            *counts.entry(&pod.node).or_default() += 1;
        }
    }
    rooms.iter().map(|room| counts.get(room.node.name()).copied().unwrap_or_default()).collect()
}

/// The score of a node; higher is better.
pub(super) fn of(room: &NodeCapacity<'_>, placement: &Placement, relatives: usize) -> impl Ord + use<> {
    let crowd = i64::try_from(relatives).unwrap_or(i64::MAX).saturating_mul(MAX_SCORE);
    let preference = placement.preference(room.node).saturating_mul(PREFERRED_WEIGHT);
    let untolerated_soft_taints = placement.untolerated_soft_taints(room.node);
    (
        Reverse(untolerated_soft_taints),
        preference.saturating_sub(crowd),
        Reverse(room.load.pods),
        Reverse(room.load.requests.millicores),
    )
}
