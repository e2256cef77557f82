//! The configured policies and webhooks, following a store.
//!
//! Changes since the last request are applied before each request, so that a configuration takes effect when its creation is acknowledged, and
//! ends when its deletion is. Expressions are compiled when an object changes. There is no background task; without changes the
//! cost is one comparison.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::dynamic_admission::expression::Compiler;
use api::dynamic_admission::policy::{Binding, Policy};
use api::kind::Kind;
use api::kinds::admissionregistration::{binding, policy, webhooks};
use api::object;
use parking_lot::RwLock;
use serde_json::Value;
use store::{Compacted, Entry, Revision, Store, Table, Watch};

use super::webhook::Webhook;

/// The kinds of configurations.
static KINDS: [&Kind; 4] = [&policy::KIND, &binding::KIND, &webhooks::MUTATING, &webhooks::VALIDATING];

/// The configuration, by name.
#[derive(Clone, Default)]
pub(super) struct Configuration {
    pub(super) policies: BTreeMap<String, Arc<Policy>>,
    pub(super) bindings: BTreeMap<String, Arc<Binding>>,
    pub(super) mutating: BTreeMap<String, Vec<Arc<Webhook>>>,
    pub(super) validating: BTreeMap<String, Vec<Arc<Webhook>>>,
}

impl Configuration {
    /// The effective policies, each with its bindings, by name.
    pub(super) fn bound(&self) -> Vec<(&Policy, Vec<&Binding>)> {
        let mut by_policy: BTreeMap<&str, Vec<&Binding>> = BTreeMap::new();
        for binding in self.bindings.values() {
            by_policy.entry(binding.policy()).or_default().push(binding);
        }
        let policies = by_policy.into_iter();
        policies.filter_map(|(name, bindings)| Some((self.policies.get(name)?.as_ref(), bindings))).collect()
    }

    /// Applies a change; `None` for a deleted object.
    fn change(&mut self, kind: &Kind, name: &str, object: Option<&Value>, compiler: &dyn Compiler) {
        fn put<T>(map: &mut BTreeMap<String, T>, name: &str, value: Option<T>) {
            match value {
                Some(value) => drop(map.insert(name.to_owned(), value)),
                None => drop(map.remove(name)),
            }
        }
        if kind.kind == policy::KIND.kind {
            put(&mut self.policies, name, object.map(|object| Arc::new(Policy::read(object, compiler))));
        } else if kind.kind == binding::KIND.kind {
            put(&mut self.bindings, name, object.map(|object| Arc::new(Binding::read(object))));
        } else {
            let mutating = kind.kind == webhooks::MUTATING.kind;
            let map = if mutating { &mut self.mutating } else { &mut self.validating };
            put(map, name, object.map(|object| Webhook::read_all(object, compiler)));
        }
    }
}

pub(super) struct Tracked {
    compiler: &'static dyn Compiler,
    state: RwLock<State>,
    /// Everything up to this revision of the store was applied.
    seen: AtomicU64,
}

struct State {
    configuration: Arc<Configuration>,
    watches: Vec<(&'static Kind, Watch)>,
}

impl Tracked {
    pub(super) fn new(store: &dyn Store, compiler: &'static dyn Compiler) -> Self {
        let seen = store.revision();
        Self { compiler, state: RwLock::new(State::load(store, compiler)), seen: AtomicU64::new(seen) }
    }

    /// The current configuration.
    pub(super) fn read(&self, store: &dyn Store) -> Arc<Configuration> {
        let revision: Revision = store.revision();
        if self.seen.load(Ordering::Acquire) < revision {
            let mut state = self.state.write();
            if state.follow(self.compiler).is_err() {
                *state = State::load(store, self.compiler);
            }
            self.seen.fetch_max(revision, Ordering::AcqRel);
        }
        self.state.read().configuration.clone()
    }
}

impl State {
    fn load(store: &dyn Store, compiler: &dyn Compiler) -> Self {
        loop {
            match Self::try_load(store, compiler) {
                Ok(state) => return state,
                // History was compacted between list and watch: list again.
                Err(error) => tracing::debug!(%error, "reload admission configurations"),
            }
        }
    }

    fn try_load(store: &dyn Store, compiler: &dyn Compiler) -> Result<Self, Compacted> {
        let (mut configuration, mut watches) = (Configuration::default(), Vec::new());
        for kind in KINDS {
            let table = Table::named(kind.table);
            let range = store.range(table, "", None)?;
            for entry in &range.entries {
                take(&mut configuration, kind, entry, false, compiler);
            }
            watches.push((kind, store.watch(table, "", range.revision)?));
        }
        Ok(Self { configuration: Arc::new(configuration), watches })
    }

    /// Applies changes.
    fn follow(&mut self, compiler: &dyn Compiler) -> Result<(), Compacted> {
        for (kind, watch) in &mut self.watches {
            loop {
                let events = watch.ready()?;
                if events.is_empty() {
                    break;
                }
                let configuration = Arc::make_mut(&mut self.configuration);
                for event in events {
                    take(configuration, kind, &event.entry, event.deleted, compiler);
                }
            }
        }
        Ok(())
    }
}

fn take(configuration: &mut Configuration, kind: &Kind, entry: &Entry, deleted: bool, compiler: &dyn Compiler) {
    let object = (!deleted).then(|| object::decode_light(&entry.value));
    configuration.change(kind, &entry.key.name, object.as_ref(), compiler);
}
