//! Converted entries, so that a list or a watch of unchanged objects does not call a webhook again.
//!
//! There are two generations. When the young one is full, the old one is dropped and the young one becomes old; what is used is moved
//! to the young one. Entries of an older definition or an older revision of an object are never found, and dropped in this way.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use store::Entry;

/// The largest size of a generation, in bytes.
const LIMIT: usize = 16 << 20;
/// What an entry needs besides its name and its value, in bytes.
const OVERHEAD: usize = 256;

/// Identifies stored bytes, and what they were converted to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    /// The revision of the definition: no two definitions have the same.
    pub(super) definition: u64,
    /// The version to which the object was converted.
    pub(super) version: &'static str,
    /// The name of the object in its table.
    pub(super) name: Box<str>,
    /// The revision of the object.
    pub(super) modified: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Cache {
    young: HashMap<Key, Arc<Entry>>,
    old: HashMap<Key, Arc<Entry>>,
    /// The size of the young generation.
    size: usize,
}

impl Cache {
    /// The converted entry.
    pub(super) fn get(&mut self, key: &Key) -> Option<Arc<Entry>> {
        if let Some(entry) = self.young.get(key) {
            return Some(entry.clone());
        }
        let (key, entry) = self.old.remove_entry(key)?;
        self.insert(key, entry.clone());
        Some(entry)
    }

    /// Keeps a converted entry, unless it is too large.
    pub(super) fn insert(&mut self, key: Key, entry: Arc<Entry>) {
        let size = entry.value.len() + 2 * key.name.len() + OVERHEAD;
        if size > LIMIT {
            return;
        }
        if self.size + size > LIMIT {
            self.old = take(&mut self.young);
            self.size = 0;
        }
        if self.young.insert(key, entry).is_none() {
            self.size += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use store::Table;

    use super::*;

    fn entry(size: usize) -> Arc<Entry> {
        let key = store::Key::new(Table::named("example.com/widgets"), "n/a");
        let value = vec![b' '; size].into();
        Arc::new(Entry { key, created: 1, modified: 1, expires: None, value, facts: Arc::default() })
    }

    fn key(modified: u64) -> Key {
        Key { definition: 1, version: "v1", name: "n/a".into(), modified }
    }

    #[test]
    fn the_size_is_limited_and_what_is_used_stays() {
        let mut cache = Cache::default();
        let quarter = LIMIT / 4;
        for modified in 0..20 {
            cache.insert(key(modified), entry(quarter));
            assert!(cache.get(&key(0)).is_some(), "used after {modified}");
            assert!(cache.size <= LIMIT && cache.young.len() + cache.old.len() <= 8);
        }
        assert!(cache.get(&key(3)).is_none(), "not used for long");
        cache.insert(key(99), entry(LIMIT));
        assert!(cache.get(&key(99)).is_none(), "too large");
    }

    #[test]
    fn another_definition_or_version_is_another_entry() {
        let mut cache = Cache::default();
        cache.insert(key(1), entry(10));
        assert!(cache.get(&key(1)).is_some());
        assert!(cache.get(&Key { definition: 2, ..key(1) }).is_none());
        assert!(cache.get(&Key { version: "v2", ..key(1) }).is_none());
        assert!(cache.get(&key(2)).is_none());
    }
}
