//! State that is derived from some tables of a store and follows them.
//!
//! Changes since the last read are applied before each read, so that an object takes effect when its creation is
//! acknowledged, and ends when its deletion is. There is no background task; without changes the cost is one comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use api::kind::Kind;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::{Compacted, Entry, Revision, Store, Table, Watch};

/// Applies an entry of a kind to the state; `true` for a deleted one.
type Apply<S> = dyn Fn(&mut S, &'static Kind, &Entry, bool) + Send + Sync;

/// State of type `S` that follows the tables of some kinds.
pub struct Followed<S> {
    kinds: &'static [&'static Kind],
    apply: Box<Apply<S>>,
    current: RwLock<Current<S>>,
    /// Everything up to this revision of the store was applied.
    seen: AtomicU64,
}

/// The state, and how it got there.
pub struct Current<S> {
    /// The state.
    pub state: S,
    /// The number of applied changes; it increases with each.
    pub changes: u64,
    watches: Vec<(&'static Kind, Watch)>,
}

impl<S: Default> Followed<S> {
    /// Lists the tables and begins to follow them.
    pub fn new(
        store: &dyn Store,
        kinds: &'static [&'static Kind],
        apply: impl Fn(&mut S, &'static Kind, &Entry, bool) + Send + Sync + 'static,
    ) -> Self {
        let apply: Box<Apply<S>> = Box::new(apply);
        let seen = store.revision();
        let current = RwLock::new(Current::load(store, kinds, &*apply, 0));
        Self { kinds, apply, current, seen: AtomicU64::new(seen) }
    }

    /// The current state.
    pub fn read(&self, store: &dyn Store) -> RwLockReadGuard<'_, Current<S>> {
        let revision: Revision = store.revision();
        if self.seen.load(Ordering::Acquire) < revision {
            let mut current = self.current.write();
            if current.follow(&*self.apply).is_err() {
                *current = Current::load(store, self.kinds, &*self.apply, current.changes + 1);
            }
            self.seen.fetch_max(revision, Ordering::AcqRel);
        }
        self.current.read()
    }
}

impl<S: Default> Current<S> {
    fn load(store: &dyn Store, kinds: &'static [&'static Kind], apply: &Apply<S>, changes: u64) -> Self {
        loop {
            let mut current = Self { state: S::default(), changes, watches: Vec::new() };
            match kinds.iter().try_for_each(|kind| current.load_kind(kind, store, apply)) {
                Ok(()) => return current,
                // History was compacted between list and watch: list again.
                Err(error) => tracing::debug!(%error, "relisting"),
            }
        }
    }

    fn load_kind(&mut self, kind: &'static Kind, store: &dyn Store, apply: &Apply<S>) -> Result<(), Compacted> {
        let table = Table::named(kind.table);
        let range = store.range(table, "", None)?;
        for entry in &range.entries {
            apply(&mut self.state, kind, entry, false);
            self.changes += 1;
        }
        self.watches.push((kind, store.watch(table, "", range.revision)?));
        Ok(())
    }

    /// Applies changes.
    fn follow(&mut self, apply: &Apply<S>) -> Result<(), Compacted> {
        for (kind, watch) in &mut self.watches {
            loop {
                let events = watch.ready()?;
                if events.is_empty() {
                    break;
                }
                for event in events {
                    apply(&mut self.state, kind, &event.entry, event.deleted);
                    self.changes += 1;
                }
            }
        }
        Ok(())
    }
}
