//! A batch: transactions that become durable together. Each sees the ones before it.
//!
//! In: changes, from clients or from the log. Out: events, ready to be published. Commits and recovery share this code, so that a
//! restart restores exactly the state before.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use api::facts::Facts;
use bytes::Bytes;

use crate::memory::State;
use crate::{Compare, Entry, Event, Key, Revision};

/// A change of a key: a put, or a delete if `None`.
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) put: Option<Put>,
}

/// A new value.
pub(crate) struct Put {
    pub(crate) value: Bytes,
    pub(crate) facts: Arc<Facts>,
    pub(crate) expires: Option<NonZeroU64>,
}

/// See the module.
pub(crate) struct Batch {
    revision: Revision,
    events: Vec<Arc<Event>>,
    /// The state of the changed keys after the events.
    changed: HashMap<Key, Option<Arc<Entry>>>,
}

/// A condition that does not hold.
pub(crate) struct CompareFailed {
    /// Whether it failed on a transaction of the same batch, which is not durable yet.
    pub(crate) pending: bool,
}

impl Batch {
    /// An empty batch on top of a revision.
    pub(crate) fn after(revision: Revision) -> Self {
        Self { revision, events: Vec::new(), changed: HashMap::new() }
    }

    /// The newest revision in the batch, or the one before an empty batch.
    pub(crate) const fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn events(&self) -> &[Arc<Event>] {
        &self.events
    }

    /// Whether the key is at the wanted revision, on top of `state` and this batch.
    pub(crate) fn check(&self, state: &State, compare: &Compare) -> Result<(), CompareFailed> {
        let pending = self.changed.get(&compare.key);
        let now = pending.map_or_else(|| state.get(&compare.key), Option::as_ref);
        if now.map_or(0, |entry| entry.modified) == compare.modified {
            return Ok(());
        }
        Err(CompareFailed { pending: pending.is_some() })
    }

    /// Adds the changes of one transaction and returns its events; none if it changes nothing. Each change gets its own
    /// revision, so that each object has a unique `resourceVersion`.
    pub(crate) fn add(&mut self, state: &State, changes: impl IntoIterator<Item = Change>) -> &[Arc<Event>] {
        let first = self.events.len();
        for Change { key, put } in changes {
            let revision = self.revision + 1;
            let previous = self.changed.get(&key).map_or_else(|| state.get(&key), Option::as_ref).cloned();
            let entry = match (put, &previous) {
                (Some(Put { value, facts, expires }), _) => {
                    let created = previous.as_ref().map_or(revision, |previous| previous.created);
                    Some(Arc::new(Entry { key: key.clone(), created, modified: revision, expires, value, facts }))
                }
                (None, Some(_)) => None,
                (None, None) => continue,
            };
            self.changed.insert(key, entry.clone());
            let deleted = entry.is_none();
            let last = || previous.as_deref().map(|last| Arc::new(Entry { modified: revision, ..last.clone() }));
            if let Some(entry) = entry.or_else(last) {
                self.events.push(Arc::new(Event::new(revision, entry, previous, deleted)));
                self.revision = revision;
            }
        }
        &self.events[first..]
    }
}
