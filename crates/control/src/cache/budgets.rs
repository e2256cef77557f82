//! PodDisruptionBudgets by namespace, to find those of a Pod.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::disruption;
use api::facts::Facts;
use api::object;
use api::selector::Selector;
use store::Entry;

use crate::objects::split;

/// All budgets.
#[derive(Debug, Default)]
pub struct Budgets {
    /// Namespace ─▶ key ─▶ selector; `None` where a budget selects no Pods.
    namespaces: HashMap<Box<str>, BTreeMap<Box<str>, Option<Selector>>>,
}

impl Budgets {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, deleted: bool) {
        let key = &entry.key.name;
        let (namespace, _) = split(key);
        if !deleted {
            let selector = disruption::selector_of(&object::decode_light(&entry.value));
            self.namespaces.entry(namespace.into()).or_default().insert(key.clone(), selector);
            return;
        }
        if let Some(here) = self.namespaces.get_mut(namespace) {
            here.remove(key);
            if here.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// The keys of the budgets of a namespace.
    pub fn keys(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.namespaces.get(namespace).into_iter().flatten().map(|(key, _)| &**key)
    }

    /// The keys of the budgets of a namespace that select a Pod with these labels.
    pub fn selecting<'a>(&'a self, namespace: &str, pod: &'a Facts) -> impl Iterator<Item = &'a str> {
        let here = self.namespaces.get(namespace).into_iter().flatten();
        here.filter(|(_, selector)| selector.as_ref().is_some_and(|selector| selector.matches(pod, "", "")))
            .map(|(key, _)| &**key)
    }
}
