//! The state of the store that everybody reads: every table's entries and recent events, behind one lock.
//!
//! Events flow in through [`Memory::publish`], already durable and in the order of revisions; entries and events flow
//! out by reference count. The lock is held to copy pointers and never while something waits, so a reader waits at
//! most for a few others. Any implementation of the store can fill a `Memory`; watches read only from here.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::history::{History, Keep};
use crate::{Compacted, Entry, Event, Key, Range, Revision, Table, TableSize};

/// See the module.
pub(crate) struct Memory {
    state: RwLock<State>,
    /// Rings when a table has new events. Apart from the state, so that ringing needs no lock that readers take.
    bells: Mutex<HashMap<Table, watch::Sender<Revision>>>,
    /// How many watches there are.
    pub(crate) watchers: AtomicU64,
    keep: Keep,
}

/// What the lock guards.
pub(crate) struct State {
    revision: Revision,
    /// The revision at which this memory began; tables without events remember back to here.
    base: Revision,
    tables: BTreeMap<Table, Rows>,
    live_bytes: usize,
}

struct Rows {
    entries: BTreeSet<Named>,
    /// The size of the values of the entries.
    bytes: usize,
    history: History,
}

/// An entry in the order of names; the name inside the entry is the key, so that it is stored once.
struct Named(Arc<Entry>);

// === impl Memory ===

impl Memory {
    /// Nothing, at revision 1.
    pub(crate) fn empty(keep: Keep) -> Self {
        Self::holding(1, 0, Vec::new(), keep)
    }

    /// The entries of a snapshot; what was before its revision is not known.
    pub(crate) fn of_snapshot(revision: Revision, entries: Vec<Arc<Entry>>, keep: Keep) -> Self {
        Self::holding(revision, revision, entries, keep)
    }

    fn holding(revision: Revision, base: Revision, entries: Vec<Arc<Entry>>, keep: Keep) -> Self {
        let mut state = State { revision, base, tables: BTreeMap::new(), live_bytes: 0 };
        for entry in entries {
            state.live_bytes += cost(&entry);
            let rows = state.rows(entry.key.table);
            rows.bytes += entry.value.len();
            rows.entries.insert(Named(entry));
        }
        Self { state: RwLock::new(state), bells: Mutex::default(), watchers: AtomicU64::new(0), keep }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// See [`crate::Store::range`].
    pub(crate) fn range(&self, table: Table, prefix: &str, at: Option<Revision>) -> Result<Range, Compacted> {
        let state = self.state.read();
        let floor = state.floor(table);
        if let Some(asked) = at.filter(|asked| *asked < floor) {
            return Err(Compacted { asked, oldest: floor });
        }
        let revision = state.revision;
        let Some(rows) = state.tables.get(&table) else {
            return Ok(Range { entries: Vec::new(), revision });
        };
        let at = at.unwrap_or(Revision::MAX);
        let mut entries = rows.now(prefix, at);
        let unchanged = entries.len();
        entries.extend(rows.replaced(prefix, at));
        drop(state);
        if entries.len() > unchanged {
            entries.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        }
        Ok(Range { entries, revision })
    }

    /// Makes events visible, up to and including `revision`.
    pub(crate) fn publish(&self, revision: Revision, events: &[Arc<Event>], now: Instant) {
        let mut garbage = Vec::new();
        {
            let mut state = self.state.write();
            for event in events {
                state.apply(event, now);
            }
            state.revision = revision;
            state.forget(now, &self.keep, &mut garbage);
        }
        drop(garbage);
    }

    /// Wakes who watches the tables of these events. Apart from [`Memory::publish`], so that the writers who wait can be
    /// answered first: waking a thousand watchers takes longer than an answer should.
    pub(crate) fn ring(&self, revision: Revision, events: &[Arc<Event>]) {
        let tables: BTreeSet<Table> = events.iter().map(|event| event.entry.key.table).collect();
        let bells = self.bells.lock();
        for bell in tables.iter().filter_map(|table| bells.get(table)) {
            bell.send_replace(revision);
        }
    }

    /// Forgets history that has become too old although nothing is written.
    pub(crate) fn forget(&self, now: Instant) {
        let mut garbage = Vec::new();
        self.state.write().forget(now, &self.keep, &mut garbage);
    }

    /// Rings whenever the table has new events.
    pub(crate) fn bell(&self, table: Table) -> watch::Receiver<Revision> {
        self.bells.lock().entry(table).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    pub(crate) fn watcher_count(&self) -> u64 {
        self.watchers.load(Relaxed)
    }
}

// === impl State ===

impl State {
    pub(crate) const fn revision(&self) -> Revision {
        self.revision
    }

    /// See [`crate::Store::compacted`].
    pub(crate) fn compacted(&self) -> Revision {
        self.tables.values().map(|rows| rows.history.floor()).max().unwrap_or(self.base)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.tables.get(&key.table)?.entries.get(&*key.name).map(|named| &named.0)
    }

    /// The recent events of a table, if it has had any.
    pub(crate) fn history(&self, table: Table) -> Option<&History> {
        self.tables.get(&table).map(|rows| &rows.history)
    }

    /// The oldest revision at which the table is known.
    pub(crate) fn floor(&self, table: Table) -> Revision {
        self.history(table).map_or(self.base, History::floor)
    }

    /// All entries of all tables.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.tables.values().flat_map(|rows| rows.entries.iter().map(|named| &named.0))
    }

    /// See [`crate::Store::size`].
    pub(crate) fn size(&self, table: Table) -> TableSize {
        let rows = self.tables.get(&table);
        rows.map_or_else(TableSize::default, |rows| TableSize { entries: rows.entries.len(), bytes: rows.bytes })
    }

    /// How many entries each table has.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Table, usize)> {
        self.tables.iter().map(|(table, rows)| (*table, rows.entries.len()))
    }

    /// About how many bytes the entries are on disk.
    pub(crate) const fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    pub(crate) fn events_kept(&self) -> usize {
        self.tables.values().map(|rows| rows.history.len()).sum()
    }

    fn rows(&mut self, table: Table) -> &mut Rows {
        let base = self.base;
        self.tables.entry(table).or_insert_with(|| Rows {
            entries: BTreeSet::new(),
            bytes: 0,
            history: History::since(base),
        })
    }

    fn apply(&mut self, event: &Arc<Event>, now: Instant) {
        let entry = &event.entry;
        self.live_bytes -= event.previous.as_deref().map_or(0, cost);
        let rows = self.rows(entry.key.table);
        let replaced = if event.deleted {
            rows.entries.take(&*entry.key.name)
        } else {
            rows.bytes += entry.value.len();
            rows.entries.replace(Named(Arc::clone(entry)))
        };
        rows.bytes -= replaced.map_or(0, |replaced| replaced.0.value.len());
        rows.history.push(Arc::clone(event), now);
        if !event.deleted {
            self.live_bytes += cost(entry);
        }
    }

    fn forget(&mut self, now: Instant, keep: &Keep, garbage: &mut Vec<Arc<Event>>) {
        let (mut events, mut bytes) = (0, 0);
        for rows in self.tables.values_mut() {
            rows.history.expire(now, keep, garbage);
            events += rows.history.len();
            bytes += rows.history.bytes();
        }
        while events > keep.max_events
            && let Some(rows) = self.tables.values_mut().max_by_key(|rows| rows.history.len())
            && rows.history.len() > keep.min_events
        {
            let before = (rows.history.len(), rows.history.bytes());
            rows.history.forget_oldest(garbage);
            events -= before.0 - rows.history.len();
            bytes -= before.1 - rows.history.bytes();
        }
        while bytes > keep.max_bytes
            && let Some(rows) = self.tables.values_mut().max_by_key(|rows| rows.history.bytes())
        {
            let before = rows.history.bytes();
            rows.history.forget_oldest(garbage);
            bytes -= before - rows.history.bytes();
        }
    }
}

// === impl Rows ===

impl Rows {
    /// The present entries that were the same at a revision.
    fn now(&self, prefix: &str, at: Revision) -> Vec<Arc<Entry>> {
        // Two bounds instead of a look at every name: names are one more place in memory each.
        let end = after_prefix(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range::<str, _>((Bound::Included(prefix), end)).map(|named| &named.0);
        entries.filter(|entry| entry.modified <= at).cloned().collect()
    }

    /// The entries of a revision that were replaced or deleted since. Whatever happened to a key after that, only
    /// the first event has a version from before it.
    fn replaced(&self, prefix: &str, at: Revision) -> impl Iterator<Item = Arc<Entry>> {
        let versions = self.history.after(at).filter_map(|event| event.previous.as_ref());
        versions.filter(move |entry| entry.modified <= at && entry.key.name.starts_with(prefix)).cloned()
    }
}

/// The first name after all that start with `prefix`; `None` if there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

// === impl Named ===

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        &self.0.key.name
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.key.name == other.0.key.name
    }
}

impl Eq for Named {}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.name.cmp(&other.0.key.name)
    }
}

/// About how many bytes the entry is on disk.
fn cost(entry: &Entry) -> usize {
    entry.value.len() + entry.key.name.len() + entry.key.table.as_str().len() + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_name() {
        for (prefix, end) in
            [("a/", Some("a0")), ("", None), ("\u{d7ff}", Some("\u{e000}")), ("a\u{10ffff}", Some("b"))]
        {
            assert_eq!(after_prefix(prefix).as_deref(), end);
        }
    }
}
