//! An owner that is being deleted: waits for its dependents, or orphans them.

use std::collections::HashSet;
use std::time::Duration;

use store::Key;

use super::{FOREGROUND, Item, ORPHAN, references, waits};
use crate::controller::{Outcome, View};

/// The most dependents that are orphaned in one transaction.
const TRANSACTION_SIZE: usize = 200;
/// The most dependents that are orphaned in one reconcile.
const BATCH_SIZE: usize = 2000;

/// Reconciles an object that is being deleted.
pub(super) fn reconcile(view: &View<'_>, item: &Item) -> Outcome {
    if waits(&item.metadata, ORPHAN) {
        orphan(view, item)
    } else if waits(&item.metadata, FOREGROUND) && !is_blocked(view, item) {
        Outcome::write(vec![item.without_finalizer(FOREGROUND)])
    } else {
        Outcome::done()
    }
}

/// Removes the owner from its dependents, then its finalizer.
fn orphan(view: &View<'_>, item: &Item) -> Outcome {
    let uid = &item.metadata.uid;
    let dependents = view.cache.owners.dependents_of(uid).filter(|dependent| *dependent.key != item.entry.key);
    let released = dependents
        .filter_map(|dependent| Item::read(view, dependent.key)?.without_references(&|owner: &str| *owner != **uid));
    let writes: Vec<_> = released.take(BATCH_SIZE).collect();
    let more = writes.len() == BATCH_SIZE;
    let mut transactions: Vec<_> = writes.chunks(TRANSACTION_SIZE).map(<[_]>::to_vec).collect();
    if !more {
        transactions.push(vec![item.without_finalizer(ORPHAN)]);
    }
    Outcome { transactions, requeue_after: more.then_some(Duration::ZERO), ..Outcome::done() }
}

/// Whether a blocking dependent still exists.
fn is_blocked(view: &View<'_>, item: &Item) -> bool {
    let mut blockers = view.cache.owners.dependents_of(&item.metadata.uid).filter(|dependent| dependent.blocks);
    // Most owners have no owners, so the first blocker decides.
    let above = if item.metadata.owner_references.is_empty() { HashSet::new() } else { ancestors(view, item) };
    blockers.any(|dependent| *dependent.key != item.entry.key && !above.contains(dependent.key))
}

/// All ancestors of the object. A dependent among them is a cycle and does not block.
fn ancestors(view: &View<'_>, item: &Item) -> HashSet<Key> {
    let mut found = HashSet::new();
    let mut above = vec![item.entry.key.clone()];
    while let Some(key) = above.pop() {
        for owner in view.cache.owners.of(&key) {
            if let Ok(key) = references::locate(view, owner, &key.name)
                && found.insert(key.clone())
            {
                above.push(key);
            }
        }
    }
    found
}
