//! The state of the store in memory: entries and recent events of every table, behind one lock.
//!
//! In: durable events in the order of revisions ([`Memory::publish`]). Out: reference-counted entries and events. The lock is
//! held only to copy pointers, never during I/O. Any implementation of the store can fill a `Memory`; watches read only from it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::history::{History, Retention};
use crate::{Compacted, Entry, Event, Key, Range, Revision, Table, TableSize};

/// See the module.
pub(crate) struct Memory {
    state: RwLock<State>,
    /// Signal new events of a table. Separate from the state, so that notifying takes no lock of readers.
    notifiers: Mutex<HashMap<Table, watch::Sender<Revision>>>,
    /// The number of watches.
    pub(crate) watchers: AtomicU64,
    retention: Retention,
}

/// The data that the lock guards.
pub(crate) struct State {
    revision: Revision,
    /// The initial revision; tables without events can be read from here on.
    base: Revision,
    tables: BTreeMap<Table, Rows>,
    live_bytes: usize,
}

struct Rows {
    entries: BTreeSet<ByName>,
    /// The size of the values of the entries.
    bytes: usize,
    history: History,
}

/// An entry, ordered by its name. The entry holds the name, so that it is stored once.
struct ByName(Arc<Entry>);

// === impl Memory ===

impl Memory {
    /// Empty, at revision 1.
    pub(crate) fn empty(retention: Retention) -> Self {
        Self::holding(1, 0, Vec::new(), retention)
    }

    /// The entries of a snapshot, without history.
    pub(crate) fn of_snapshot(revision: Revision, entries: Vec<Arc<Entry>>, retention: Retention) -> Self {
        Self::holding(revision, revision, entries, retention)
    }

    fn holding(revision: Revision, base: Revision, entries: Vec<Arc<Entry>>, retention: Retention) -> Self {
        let mut state = State { revision, base, tables: BTreeMap::new(), live_bytes: 0 };
        for entry in entries {
            state.live_bytes += cost(&entry);
            let rows = state.rows(entry.key.table);
            rows.bytes += entry.value.len();
            rows.entries.insert(ByName(entry));
        }
        Self { state: RwLock::new(state), notifiers: Mutex::default(), watchers: AtomicU64::new(0), retention }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// See [`crate::Store::range`].
    pub(crate) fn range(&self, table: Table, prefix: &str, at: Option<Revision>) -> Result<Range, Compacted> {
        let state = self.state.read();
        let floor = state.floor(table);
        if let Some(requested) = at.filter(|requested| *requested < floor) {
            return Err(Compacted { requested, oldest: floor });
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

    /// Publishes events, up to and including `revision`.
    pub(crate) fn publish(&self, revision: Revision, events: &[Arc<Event>], now: Instant) {
        let mut garbage = Vec::new();
        {
            let mut state = self.state.write();
            for event in events {
                state.apply(event, now);
            }
            state.revision = revision;
            state.trim(now, &self.retention, &mut garbage);
        }
        drop(garbage);
    }

    /// Notifies watches of the tables of these events. Separate from [`Memory::publish`], so that commits are acknowledged
    /// first: waking a thousand watches takes time.
    pub(crate) fn notify(&self, revision: Revision, events: &[Arc<Event>]) {
        let tables: BTreeSet<Table> = events.iter().map(|event| event.entry.key.table).collect();
        let notifiers = self.notifiers.lock();
        for notifier in tables.iter().filter_map(|table| notifiers.get(table)) {
            notifier.send_replace(revision);
        }
    }

    /// Drops history that has become too old, when nothing is written.
    pub(crate) fn trim(&self, now: Instant) {
        let mut garbage = Vec::new();
        self.state.write().trim(now, &self.retention, &mut garbage);
    }

    /// Signals new events of the table.
    pub(crate) fn subscribe(&self, table: Table) -> watch::Receiver<Revision> {
        self.notifiers.lock().entry(table).or_insert_with(|| watch::Sender::new(0)).subscribe()
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
        self.tables.get(&key.table)?.entries.get(&*key.name).map(|entry| &entry.0)
    }

    /// The recent events of a table.
    pub(crate) fn history(&self, table: Table) -> Option<&History> {
        self.tables.get(&table).map(|rows| &rows.history)
    }

    /// The oldest revision at which the table can be read.
    pub(crate) fn floor(&self, table: Table) -> Revision {
        self.history(table).map_or(self.base, History::floor)
    }

    /// All entries of all tables.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.tables.values().flat_map(|rows| rows.entries.iter().map(|entry| &entry.0))
    }

    /// See [`crate::Store::size`].
    pub(crate) fn size(&self, table: Table) -> TableSize {
        let rows = self.tables.get(&table);
        rows.map_or_else(TableSize::default, |rows| TableSize { entries: rows.entries.len(), bytes: rows.bytes })
    }

    /// The number of entries of each table.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Table, usize)> {
        self.tables.iter().map(|(table, rows)| (*table, rows.entries.len()))
    }

    /// The approximate size of the entries on disk, in bytes.
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
            rows.entries.replace(ByName(Arc::clone(entry)))
        };
        rows.bytes -= replaced.map_or(0, |replaced| replaced.0.value.len());
        rows.history.push(Arc::clone(event), now);
        if !event.deleted {
            self.live_bytes += cost(entry);
        }
    }

    fn trim(&mut self, now: Instant, retention: &Retention, garbage: &mut Vec<Arc<Event>>) {
        let (mut events, mut bytes) = (0, 0);
        for rows in self.tables.values_mut() {
            rows.history.expire(now, retention, garbage);
            events += rows.history.len();
            bytes += rows.history.bytes();
        }
        while events > retention.max_events
            && let Some(rows) = self.tables.values_mut().max_by_key(|rows| rows.history.len())
            && rows.history.len() > retention.min_events
        {
            let before = (rows.history.len(), rows.history.bytes());
            rows.history.drop_oldest(garbage);
            events -= before.0 - rows.history.len();
            bytes -= before.1 - rows.history.bytes();
        }
        while bytes > retention.max_bytes
            && let Some(rows) = self.tables.values_mut().max_by_key(|rows| rows.history.bytes())
        {
            let before = rows.history.bytes();
            rows.history.drop_oldest(garbage);
            bytes -= before - rows.history.bytes();
        }
    }
}

// === impl Rows ===

impl Rows {
    /// The current entries that have not changed since a revision.
    fn now(&self, prefix: &str, at: Revision) -> Vec<Arc<Entry>> {
        // Two bounds instead of comparing every name: each name is another cache miss.
        let end = after_prefix(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range::<str, _>((Bound::Included(prefix), end)).map(|entry| &entry.0);
        entries.filter(|entry| entry.modified <= at).cloned().collect()
    }

    /// The entries of a revision that were replaced or deleted since. Of all later events of a key, only the first has a
    /// previous version that is old enough.
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

// === impl ByName ===

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.key.name
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.key.name == other.0.key.name
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.name.cmp(&other.0.key.name)
    }
}

/// The approximate size of the entry on disk, in bytes.
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
