//! Updates: which Pods of old templates are deleted, and where new ones are added first. Pure.
//!
//! Without surge, old Pods are deleted within `maxUnavailable`, and the nodes get new ones as nodes without a Pod do. With surge, nodes get a second Pod
//! within `maxSurge`, and the old one is deleted when the new one is available.

use super::eligible::Eligibility;
use super::plan::Plan;
use super::snapshot::{DaemonPod, NodeState, Snapshot};

/// The next step of an update.
pub(super) fn update<'a>(snapshot: &'a Snapshot<'_>) -> Plan<'a> {
    let desired = snapshot.desired();
    match snapshot.strategy.limits(desired) {
        None => Plan::default(),
        Some(limits) if limits.surge == 0 => replace(snapshot, limits.unavailable),
        Some(limits) => surge(snapshot, limits.surge, desired),
    }
}

/// Nodes that have a Pod or should have one.
fn concerned<'s, 'a>(snapshot: &'s Snapshot<'a>) -> impl Iterator<Item = (&'s str, &'s NodeState<'a>)> {
    let nodes = snapshot.nodes.iter().map(|(name, node)| (&**name, node));
    nodes.filter(|(_, node)| node.eligibility == Eligibility::Runs || !node.pods.is_empty())
}

/// The new and the old Pod of a node.
struct Pair<'n, 'a> {
    new: Option<&'n DaemonPod<'a>>,
    old: Option<&'n DaemonPod<'a>>,
}

/// The Pods of a node; `None` while it has several of a template.
fn pair<'n, 'a>(node: &'n NodeState<'a>) -> Option<Pair<'n, 'a>> {
    let mut pair = Pair { new: None, old: None };
    for one in node.present() {
        let place = if one.updated { &mut pair.new } else { &mut pair.old };
        if place.replace(one).is_some() {
            return None;
        }
    }
    Some(pair)
}

fn replace<'a>(snapshot: &'a Snapshot<'_>, limit: usize) -> Plan<'a> {
    let (mut plan, mut available, mut unavailable) = (Plan::default(), Vec::new(), 0_usize);
    for (name, node) in concerned(snapshot) {
        match pair(node) {
            Some(Pair { new: Some(new), old: None }) => unavailable += usize::from(!new.available),
            Some(Pair { new: None, old: Some(old) }) if old.available => available.push((name, old.pod)),
            Some(Pair { new: None, old: Some(old) }) => {
                // It is not available, so its deletion does not reduce availability.
                plan.delete.push((name, old.pod));
                unavailable += 1;
            }
            _ => unavailable += 1,
        }
    }
    plan.delete.extend(available.into_iter().take(limit.saturating_sub(unavailable)));
    plan
}

fn surge<'a>(snapshot: &'a Snapshot<'_>, limit: usize, desired: usize) -> Plan<'a> {
    let mut plan = Plan::default();
    let (mut candidates, mut leaving) = (Vec::new(), Vec::new());
    let (mut surging, mut available) = (0_usize, 0_usize);
    for (name, node) in concerned(snapshot) {
        let Some(Pair { new, old }) = pair(node) else {
            surging += 1;
            continue;
        };
        available += usize::from(old.or(new).is_some_and(|one| one.available));
        let Some(old) = old else { continue };
        match new {
            Some(new) if new.available => plan.delete.push((name, old.pod)),
            Some(_) => surging += 1,
            None => match (node.eligibility == Eligibility::Runs, old.available) {
                (true, true) => candidates.push(name),
                (true, false) => plan.create.push(name),
                (false, true) => leaving.push((name, old.pod)),
                (false, false) => plan.delete.push((name, old.pod)),
            },
        }
    }
    // A Pod of a node that no longer runs one is deleted when enough others are available.
    plan.delete.extend(leaving.into_iter().take(available.saturating_sub(desired)));
    plan.create.extend(candidates.into_iter().take(limit.saturating_sub(surging)));
    plan
}
