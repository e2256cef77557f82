//! Services with the condition that no Pod matches them, by namespace.
//!
//! The message of that condition depends on all Pods of the namespace, so only these Services are reconciled when any Pod changes. The list is read
//! from the conditions and so survives a restart.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use store::Entry;

use crate::objects::{or_default, read, split};

/// Services without Pods.
#[derive(Debug, Default)]
pub struct Unmatched {
    namespaces: HashMap<Box<str>, BTreeSet<Box<str>>>,
}

impl Unmatched {
    pub(super) fn apply(&mut self, service: &Entry, deleted: bool) {
        let key = &service.key.name;
        let namespace = split(key).0;
        if !deleted && lacks_pods(&service.value) {
            self.namespaces.entry(namespace.into()).or_default().insert(key.clone());
        } else if let Some(keys) = self.namespaces.get_mut(namespace) {
            keys.remove(key);
            if keys.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// Whether a Service is among them.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.namespaces.get(split(key).0).is_some_and(|keys| keys.contains(key))
    }

    /// The number in a namespace.
    #[must_use]
    pub fn count(&self, namespace: &str) -> usize {
        self.namespaces.get(namespace).map_or(0, BTreeSet::len)
    }

    /// The keys of those of a namespace.
    pub fn of(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.namespaces.get(namespace).into_iter().flatten().map(|key| &**key)
    }
}

fn lacks_pods(stored: &[u8]) -> bool {
    let Raw { status } = read(stored);
    status.conditions.iter().any(|condition| {
        condition.kind == "PodsMatched" && condition.status == "False" && condition.reason == "NoPodMatches"
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
}
