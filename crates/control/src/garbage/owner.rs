//! An owner that is being deleted: it waits for its dependents, or lets them go.

use std::collections::HashSet;
use std::time::Duration;

use store::Key;

use super::{FOREGROUND, Item, ORPHAN, references, waits};
use crate::controller::{Verdict, View};

/// How many dependents are let go in one transaction.
const TOGETHER: usize = 200;
/// How many dependents are let go before others have their turn.
const AT_ONCE: usize = 2000;

/// What an object that is being deleted still has to do.
pub(super) fn reconcile(view: &View<'_>, item: &Item) -> Verdict {
    if waits(&item.metadata, ORPHAN) {
        orphan(view, item)
    } else if waits(&item.metadata, FOREGROUND) && !is_blocked(view, item) {
        Verdict::write(vec![item.without_finalizer(FOREGROUND)])
    } else {
        Verdict::settled()
    }
}

/// Takes the owner out of its dependents, and then lets the owner go.
fn orphan(view: &View<'_>, item: &Item) -> Verdict {
    let uid = &item.metadata.uid;
    let dependents = view.world.owners.dependents_of(uid).filter(|dependent| *dependent.key != item.entry.key);
    let released = dependents
        .filter_map(|dependent| Item::read(view, dependent.key)?.without_references(&|owner: &str| *owner != **uid));
    let writes: Vec<_> = released.take(AT_ONCE).collect();
    let more = writes.len() == AT_ONCE;
    let mut transactions: Vec<_> = writes.chunks(TOGETHER).map(<[_]>::to_vec).collect();
    if !more {
        transactions.push(vec![item.without_finalizer(ORPHAN)]);
    }
    Verdict { transactions, again: more.then_some(Duration::ZERO), ..Verdict::settled() }
}

/// Whether a dependent is still there that the owner waits for.
fn is_blocked(view: &View<'_>, item: &Item) -> bool {
    let mut blockers = view.world.owners.dependents_of(&item.metadata.uid).filter(|dependent| dependent.blocks);
    // Most owners have no owners themselves, so that the first blocker answers the question.
    let above = if item.metadata.owner_references.is_empty() { HashSet::new() } else { ancestors(view, item) };
    blockers.any(|dependent| *dependent.key != item.entry.key && !above.contains(dependent.key))
}

/// Everything that owns the object, and what owns that. A dependent that is among it would wait for the object in turn: in
/// a circle nobody waits for anybody.
fn ancestors(view: &View<'_>, item: &Item) -> HashSet<Key> {
    let mut found = HashSet::new();
    let mut above = vec![item.entry.key.clone()];
    while let Some(key) = above.pop() {
        for owner in view.world.owners.of(&key) {
            if let Ok(key) = references::locate(owner, &key.name)
                && found.insert(key.clone())
            {
                above.push(key);
            }
        }
    }
    found
}
