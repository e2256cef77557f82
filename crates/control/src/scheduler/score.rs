//! Which node is liked best: the one with the fewest Pods of the same owner, then what the Pod would like, then the
//! emptiest.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::fit::Room;
use crate::controller::View;
use crate::objects::placement::Placement;

/// What a wish counts against one Pod of the same owner: a wish of full weight moves two Pods.
const WISH: i64 = 2;
/// The largest weight of a wish.
const FULL: i64 = 100;

/// How many Pods of an owner there are on each node.
pub(super) fn relatives(view: &View<'_>, owner: &str, rooms: &[Room<'_>]) -> Vec<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for one in view.world.owners.dependents_of(owner).filter(|one| one.key.table.as_str() == "pods") {
        if let Some(pod) = view.world.pods.get(&one.key.name).filter(|pod| pod.is_active() && !pod.node.is_empty()) {
            *counts.entry(&pod.node).or_default() += 1;
        }
    }
    rooms.iter().map(|room| counts.get(room.node.name()).copied().unwrap_or_default()).collect()
}

/// How well a node is liked; the larger, the better.
pub(super) fn of(room: &Room<'_>, placement: &Placement, relatives: usize) -> impl Ord + use<> {
    let crowd = i64::try_from(relatives).unwrap_or(i64::MAX).saturating_mul(FULL);
    let liking = placement.liking(room.node).saturating_mul(WISH);
    let reluctance = placement.reluctance(room.node);
    (Reverse(reluctance), liking.saturating_sub(crowd), Reverse(room.load.pods), Reverse(room.load.requests.millicores))
}
