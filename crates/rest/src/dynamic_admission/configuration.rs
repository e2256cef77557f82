//! The configured policies and webhooks, following a store.
//!
//! Expressions are compiled when an object changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::dynamic_admission::expression::Compiler;
use api::dynamic_admission::policy::{Binding, Policy};
use api::kind::Kind;
use api::kinds::admissionregistration::{binding, policy, webhooks};
use api::object;
use serde_json::Value;
use store::{Entry, Followed, Store};

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

pub(super) struct Tracked(Followed<Arc<Configuration>>);

impl Tracked {
    pub(super) fn new(store: &dyn Store, compiler: &'static dyn Compiler) -> Self {
        let apply = move |configuration: &mut Arc<Configuration>, kind: &'static Kind, entry: &Entry, deleted: bool| {
            let object = (!deleted).then(|| object::decode_light(&entry.value));
            Arc::make_mut(configuration).change(kind, &entry.key.name, object.as_ref(), compiler);
        };
        Self(Followed::new(store, &KINDS, apply))
    }

    /// The current configuration.
    pub(super) fn read(&self, store: &dyn Store) -> Arc<Configuration> {
        self.0.read(store).state.clone()
    }
}
