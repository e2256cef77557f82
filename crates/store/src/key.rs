//! The data model of the store: table, key, entry, event.
//!
//! Entries and events are immutable and shared by reference count between memory, readers and watches.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use api::facts::Facts;
use bytes::Bytes;
use parking_lot::RwLock;

use crate::Revision;

/// The name of a group of keys that are listed and watched together, such as `services/specs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table(&'static str);

impl Table {
    /// The table of that name. Names are interned and never freed, so they must come from a fixed set, never from a request.
    #[must_use]
    pub fn named(name: &str) -> Self {
        static NAMES: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());
        if let Some(known) = NAMES.read().get(name) {
            return Self(known);
        }
        let mut names = NAMES.write();
        if let Some(known) = names.get(name) {
            return Self(known);
        }
        let name: &'static str = Box::leak(name.into());
        names.insert(name);
        Self(name)
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The key of an entry.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The table.
    pub table: Table,
    /// The name in it: `namespace/name`, or `name` alone.
    pub name: Box<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(table: Table, name: impl Into<Box<str>>) -> Self {
        Self { table, name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table, self.name)
    }
}

/// One version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The revision that created the key.
    pub created: Revision,
    /// The revision that wrote this version.
    pub modified: Revision,
    /// When the store deletes it (TTL), in milliseconds since 1970.
    pub expires: Option<NonZeroU64>,
    /// The stored bytes.
    pub value: Bytes,
    /// The facts of the value for selectors.
    pub facts: Arc<Facts>,
}

/// One change of one key.
#[derive(Debug)]
pub struct Event {
    /// The revision of the change.
    pub revision: Revision,
    /// The new version. After a delete: the last value, with `modified` set to the revision of the delete.
    pub entry: Arc<Entry>,
    /// The version before.
    pub previous: Option<Arc<Entry>>,
    /// Whether the key was deleted.
    pub deleted: bool,
    /// The event as it is sent to clients, encoded once for all watches. Cached for a few seconds.
    pub encoded: OnceLock<Bytes>,
}

impl Event {
    /// An event without a cached encoding.
    #[must_use]
    pub const fn new(revision: Revision, entry: Arc<Entry>, previous: Option<Arc<Entry>>, deleted: bool) -> Self {
        Self { revision, entry, previous, deleted, encoded: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_are_interned() {
        let first = Table::named("tests/interned");
        let second = Table::named(&String::from("tests/interned"));
        assert_eq!(first, second);
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
    }
}
