//! Which Pods are created and which are deleted. Pure: a snapshot in, a plan out.
//!
//! Missing and excess Pods are handled first; an update proceeds only when there are none ([`super::rolling`]).

#[cfg(test)]
mod tests;

use super::eligible::Eligibility;
use super::plan::Plan;
use super::rolling;
use super::snapshot::{DaemonPod, NodeState, Snapshot};
use crate::objects::pod::Phase;

/// The next step.
pub(super) fn decide<'a>(snapshot: &'a Snapshot<'_>) -> Plan<'a> {
    let mut plan = Plan::default();
    let surge = snapshot.strategy.allows_surge();
    for (name, node) in &snapshot.nodes {
        match node.eligibility {
            _ if !node.exists => plan.delete_unbound(name, node),
            Eligibility::None => plan.delete.extend(node.present().map(|one| (&**name, one.pod))),
            Eligibility::Runs if node.pods.is_empty() => plan.create.push(name),
            Eligibility::Stays | Eligibility::Runs => plan.tend(name, node, surge),
        }
    }
    if plan.is_empty() {
        let update = rolling::update(snapshot);
        plan = Plan { backoff: plan.backoff, ..update };
    }
    plan
}

impl<'a> Plan<'a> {
    /// Deletes Pods that wait for a node that was deleted. Bound ones are deleted by the Pod garbage collector.
    fn delete_unbound(&mut self, name: &'a str, node: &'a NodeState<'_>) {
        let waiting = node.present().filter(|one| one.pod.node.is_empty());
        self.delete.extend(waiting.map(|one| (name, one.pod)));
    }

    /// Deletes Pods that have ended, and all but one of the others; during an update with surge all but two.
    fn tend(&mut self, name: &'a str, node: &'a NodeState<'_>, surge: bool) {
        let mut running = Vec::new();
        for one in node.present() {
            match (one.pod.phase, one.backoff) {
                (Phase::Failed, Some(left)) => self.backoff = self.backoff.into_iter().chain([left]).min(),
                (Phase::Failed | Phase::Succeeded, _) => self.ended.push((name, one.pod)),
                _ => running.push(one),
            }
        }
        if !surge {
            self.delete.extend(running.iter().skip(1).map(|one| (name, one.pod)));
            return;
        }
        match &*running {
            [] if node.eligibility == Eligibility::Runs => self.create.push(name),
            [] | [_] => {}
            _ => self.keep_two(name, &running),
        }
    }

    /// Keeps the oldest Pod of each template, and of these two only the new one when the old one is not needed.
    fn keep_two(&mut self, name: &'a str, running: &[&'a DaemonPod<'_>]) {
        let (new, old): (Vec<&DaemonPod<'_>>, Vec<&DaemonPod<'_>>) =
            running.iter().copied().partition(|one| one.updated);
        self.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|one| (name, one.pod)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.pod.ready || new.available)
        {
            self.delete.push((name, old.pod));
        }
    }
}
