//! [`Grants`] that follow a store.
//!
//! Changes since the last decision are applied before each decision, so that a binding takes effect when its creation is acknowledged, and
//! ends when its deletion is. There is no background task; without changes the cost is one comparison.

use std::sync::atomic::{AtomicU64, Ordering};

use api::kind::Kind;
use api::kinds::{role, rolebinding};
use api::object;
use parking_lot::{RwLock, RwLockReadGuard};
use store::{Compacted, Entry, Revision, Store, Table, Watch};

use super::grants::Grants;

/// The kinds that RBAC reads.
static KINDS: [&Kind; 4] =
    [&role::ROLE, &role::CLUSTER_ROLE, &rolebinding::ROLE_BINDING, &rolebinding::CLUSTER_ROLE_BINDING];

pub(super) struct Tracked {
    state: RwLock<State>,
    /// Everything up to this revision of the store was applied.
    seen: AtomicU64,
}

struct State {
    grants: Grants,
    /// The number of applied changes.
    version: u64,
    watches: Vec<(&'static Kind, Watch)>,
}

impl Tracked {
    pub(super) fn new(store: &dyn Store) -> Self {
        let seen = store.revision();
        Self { state: RwLock::new(State::load(store)), seen: AtomicU64::new(seen) }
    }

    /// Increases with every change.
    pub(super) fn version(&self, store: &dyn Store) -> u64 {
        self.now(store).version
    }

    /// Reads the current grants.
    pub(super) fn read<T>(&self, store: &dyn Store, look: impl FnOnce(&Grants) -> T) -> T {
        look(&self.now(store).grants)
    }

    fn now(&self, store: &dyn Store) -> RwLockReadGuard<'_, State> {
        let revision: Revision = store.revision();
        if self.seen.load(Ordering::Acquire) < revision {
            let mut state = self.state.write();
            if state.follow().is_err() {
                *state = State { version: state.version + 1, ..State::load(store) };
            }
            self.seen.fetch_max(revision, Ordering::AcqRel);
        }
        self.state.read()
    }
}

impl State {
    fn load(store: &dyn Store) -> Self {
        loop {
            let mut state = Self { grants: Grants::default(), version: 0, watches: Vec::new() };
            let loaded = KINDS.iter().try_for_each(|kind| state.load_kind(kind, store));
            match loaded {
                Ok(()) => return state,
                // History was compacted between list and watch: list again.
                Err(error) => tracing::debug!(%error, "reload roles and bindings"),
            }
        }
    }

    fn load_kind(&mut self, kind: &'static Kind, store: &dyn Store) -> Result<(), Compacted> {
        let table = Table::named(kind.table);
        let range = store.range(table, "", None)?;
        for entry in &range.entries {
            self.take(kind, entry, false);
        }
        self.watches.push((kind, store.watch(table, "", range.revision)?));
        Ok(())
    }

    /// Applies changes.
    fn follow(&mut self) -> Result<(), Compacted> {
        let mut watches = std::mem::take(&mut self.watches);
        for (kind, watch) in &mut watches {
            loop {
                let events = watch.ready()?;
                if events.is_empty() {
                    break;
                }
                for event in events {
                    self.take(kind, &event.entry, event.deleted);
                }
            }
        }
        self.watches = watches;
        Ok(())
    }

    fn take(&mut self, kind: &Kind, entry: &Entry, deleted: bool) {
        let whole: &str = &entry.key.name;
        let (namespace, name) =
            if kind.namespaced { whole.split_once('/').unwrap_or(("", whole)) } else { ("", whole) };
        let object = (!deleted).then(|| object::decode_light(&entry.value));
        self.grants.change(kind, namespace, name, object.as_ref());
        self.version += 1;
    }
}
