//! Backoff of the deletion of failed Pods of DaemonSets.
//!
//! A node that refuses a Pod lets it fail at once; its DaemonSet deletes it and creates another. Each deletion doubles the time until the next failed Pod
//! of the same template on the same node is deleted. The times are lost on a restart, as in Kubernetes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::view::Ownership;
use api::view::labels::CONTROLLER_REVISION_HASH;
use api::view::metadata::controller_of;

use super::Versions;
use crate::objects::pod::{Phase, Pod};

/// The first delay, and the longest.
const INITIAL: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// How long a deletion counts.
const EXPIRY: Duration = Duration::from_secs(2 * 15 * 60);
/// The number of deletions from which on expired ones are removed.
const FEW: usize = 1024;

/// Deletions of failed Pods by DaemonSet, node and template.
#[derive(Debug, Default)]
pub struct FailedPods {
    deletions: HashMap<Place, Deletion>,
    /// The number at which expired ones are removed again.
    limit: usize,
}

/// UID of the DaemonSet, node, hash of the template.
type Place = (Box<str>, Box<str>, Box<str>);

#[derive(Debug)]
struct Deletion {
    delay: Duration,
    last: Instant,
}

impl Deletion {
    fn is_expired(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.last) > EXPIRY
    }
}

impl FailedPods {
    /// Records the deletion of a failed Pod of a DaemonSet.
    pub(super) fn apply(&mut self, versions: &Versions<Pod>, metadata: &Ownership, at: Instant) {
        let Versions { old: Some(old), new } = versions else { return };
        let is_going = new.as_ref().is_none_or(|new| new.deleting);
        if old.phase != Phase::Failed || old.deleting || !is_going {
            return;
        }
        let owner = controller_of(&metadata.owner_references).filter(|owner| &*owner.kind == "DaemonSet");
        if let Some(owner) = owner {
            self.record(place(&owner.uid, old), at);
        }
    }

    fn record(&mut self, place: Place, at: Instant) {
        if self.deletions.len() >= self.limit.max(FEW) {
            self.deletions.retain(|_, deletion| !deletion.is_expired(at));
            self.limit = 2 * self.deletions.len();
        }
        let before = self.deletions.get(&place).filter(|before| !before.is_expired(at));
        let delay = before.map_or(INITIAL, |before| (before.delay * 2).min(LONGEST));
        self.deletions.insert(place, Deletion { delay, last: at });
    }

    /// How long the deletion of a failed Pod of this owner has to wait, if it has to.
    #[must_use]
    pub fn backoff(&self, owner: &str, pod: &Pod, at: Instant) -> Option<Duration> {
        let last = self.deletions.get(&place(owner, pod)).filter(|last| !last.is_expired(at))?;
        let left = last.delay.saturating_sub(at.saturating_duration_since(last.last));
        Some(left).filter(|left| !left.is_zero())
    }
}

fn place(owner: &str, pod: &Pod) -> Place {
    let hash = pod.entry.facts.label(CONTROLLER_REVISION_HASH).unwrap_or_default();
    (owner.into(), pod.node.clone(), hash.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: usize) -> Place {
        ("uid".into(), node.to_string().into(), "hash".into())
    }

    fn delay(pods: &FailedPods, place: &Place) -> u64 {
        pods.deletions[place].delay.as_secs()
    }

    #[test]
    fn delays_double_up_to_a_limit_and_expire() {
        let (mut pods, mut at) = (FailedPods::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..12 {
            pods.record(place(1), at);
            delays.push(delay(&pods, &place(1)));
            at += Duration::from_secs(900);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        at += EXPIRY;
        pods.record(place(1), at);
        assert_eq!(delay(&pods, &place(1)), 1);
    }

    #[test]
    fn expired_deletions_are_removed() {
        let (mut pods, at) = (FailedPods::default(), Instant::now());
        for node in 0..FEW {
            pods.record(place(node), at);
        }
        pods.record(place(FEW), at + EXPIRY + Duration::from_secs(1));
        assert_eq!(pods.deletions.len(), 1);
    }
}
