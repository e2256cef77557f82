//! An index by namespace, label key and label value.

use std::collections::{BTreeSet, HashMap};

/// The index.
#[derive(Debug)]
pub(super) struct ByLabel<T> {
    namespaces: HashMap<Box<str>, Keys<T>>,
}

type Keys<T> = HashMap<Box<str>, Values<T>>;
type Values<T> = HashMap<Box<str>, BTreeSet<T>>;

impl<T> Default for ByLabel<T> {
    fn default() -> Self {
        Self { namespaces: HashMap::new() }
    }
}

impl<T: Ord> ByLabel<T> {
    /// Adds an item.
    pub(super) fn insert(&mut self, namespace: &str, key: &str, value: &str, thing: T) {
        let keys = self.namespaces.entry(namespace.into()).or_default();
        keys.entry(key.into()).or_default().entry(value.into()).or_default().insert(thing);
    }

    /// Removes an item, and maps that become empty.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, namespace: &str, key: &str, value: &str, thing: &Q)
    where
        T: std::borrow::Borrow<Q>,
    {
        let Some(keys) = self.namespaces.get_mut(namespace) else { return };
        let Some(values) = keys.get_mut(key) else { return };
        let Some(list) = values.get_mut(value) else { return };
        list.remove(thing);
        if list.is_empty() {
            values.remove(value);
            if values.is_empty() {
                keys.remove(key);
                if keys.is_empty() {
                    self.namespaces.remove(namespace);
                }
            }
        }
    }

    /// The items with a label.
    pub(super) fn get(&self, namespace: &str, key: &str, value: &str) -> Option<&BTreeSet<T>> {
        self.namespaces.get(namespace)?.get(key)?.get(value)
    }

    /// The values of a key, each with the number of items.
    pub(super) fn values(&self, namespace: &str, key: &str) -> impl Iterator<Item = (&str, usize)> {
        let values = self.namespaces.get(namespace).and_then(|keys| keys.get(key));
        values.into_iter().flatten().map(|(value, list)| (&**value, list.len()))
    }

    /// The keys that are in use in a namespace.
    pub(super) fn keys(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.namespaces.get(namespace).into_iter().flatten().map(|(key, _)| &**key)
    }
}
