//! ControllerRevisions of a DaemonSet: one per template. Pods are labelled with the hash of theirs.
//!
//! In: the set and its revisions. Out: the hash of the current one, and writes that create, renumber and prune revisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::value::ValueExt as _;
use api::view::labels::CONTROLLER_REVISION_HASH;

use super::super::{StoredObject, history};
use super::KIND;
use crate::controller::View;
use crate::objects::pod::Pod;
use crate::write::Write;

/// The revisions of a set.
pub(super) struct Revisions {
    /// The hash of the current revision.
    pub(super) hash: String,
    /// `collisionCount`
    pub(super) collisions: i64,
    /// Writes of revisions.
    pub(super) writes: Vec<Write>,
    /// Hashes of other revisions with the same template.
    duplicates: Vec<String>,
}

impl Revisions {
    pub(super) fn of(view: &View<'_>, set: &StoredObject, mut known: Vec<StoredObject>, pods: &[&Arc<Pod>]) -> Self {
        known.retain(|one| !one.is_deleting());
        history::sort(&mut known);
        let data = history::data(set.object.at("spec.template"));
        let (mut equal, old): (Vec<_>, Vec<_>) = known.into_iter().partition(|one| one.object.at("data") == &data);
        let next = old.last().map_or(0, |last| last.object.int("revision")) + 1;
        let mut collisions = set.object.int("status.collisionCount");
        let mut writes = Vec::new();
        let current = match equal.pop() {
            Some(current) => {
                // A rollback: the old revision becomes the newest.
                if current.object.int("revision") < next {
                    writes.extend(history::renumbered(&current, next));
                }
                hash_of(&current)
            }
            None => {
                let new = history::new_revision(view, &KIND, set, CONTROLLER_REVISION_HASH, &data, next);
                collisions = new.collisions;
                writes.push(new.write);
                new.hash
            }
        };
        let live: BTreeSet<&str> =
            pods.iter().filter_map(|pod| pod.entry.facts.label(CONTROLLER_REVISION_HASH)).collect();
        let unused = |one: &&StoredObject| !live.contains(&*hash_of(one));
        let limit = usize::try_from(set.object.int("spec.revisionHistoryLimit")).unwrap_or_default();
        let excess = old.iter().filter(unused).take(old.len().saturating_sub(limit));
        writes.extend(excess.chain(equal.iter().filter(unused)).map(StoredObject::deleted));
        Self { hash: current, collisions, writes, duplicates: equal.iter().map(hash_of).collect() }
    }

    /// Whether a hash is that of the current template.
    pub(super) fn has(&self, hash: &str) -> bool {
        self.hash == hash || self.duplicates.iter().any(|other| other == hash)
    }
}

/// The hash of a revision; its name if it has none.
fn hash_of(revision: &StoredObject) -> String {
    let label = revision.entry.facts.label(CONTROLLER_REVISION_HASH);
    label.unwrap_or_else(|| revision.name()).to_owned()
}
