//! Lists and watches all tables for the runner.
//!
//! Changes are ordered within a table only. When a watch is lost because its history was compacted, the feed ends with
//! [`FeedEvent::WatchLost`]: the runner must relist, because the cache has a gap.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::custom::Kinds;
use api::kinds::KINDS;
use store::{Entry, Event, Revision, Store, Table};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cache::RAW_TABLES;

/// The buffer of the feed, in batches.
const BUFFER: usize = 64;
/// Tables with many changes that no controller reads.
const UNWATCHED: [&str; 1] = ["events"];

/// An event of one table.
#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The initial list.
    Listed(Vec<Arc<Entry>>),
    /// Changes, and the revision of the table after them.
    Changed(Table, Vec<Arc<Event>>, Revision),
    /// A watch was lost.
    WatchLost(Table),
}

/// The stream of changes.
#[derive(Debug)]
pub(crate) struct Feed {
    events: mpsc::Receiver<FeedEvent>,
    sender: mpsc::Sender<FeedEvent>,
    /// Watch tasks; aborted with the feed.
    watchers: JoinSet<()>,
    /// The watched tables.
    tables: BTreeSet<Table>,
}

impl Feed {
    /// Starts to list and watch.
    pub(crate) fn start(store: &Arc<dyn Store>) -> Self {
        let (sender, events) = mpsc::channel(BUFFER);
        let mut feed = Self { events, sender, watchers: JoinSet::new(), tables: BTreeSet::new() };
        for table in tables() {
            feed.add(store, table);
        }
        feed
    }

    /// The number of watched tables.
    pub(crate) fn len(&self) -> usize {
        self.tables.len()
    }

    /// Starts to list and watch the tables of new definitions. That of a deleted definition stays watched: it is empty.
    pub(crate) fn follow(&mut self, store: &Arc<dyn Store>, kinds: &Kinds) {
        for kind in kinds.custom_tables() {
            self.add(store, Table::named(kind.table));
        }
    }

    fn add(&mut self, store: &Arc<dyn Store>, table: Table) {
        if self.tables.insert(table) {
            self.watchers.spawn(watch(store.clone(), table, self.sender.clone()));
        }
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> FeedEvent {
        match self.events.recv().await {
            Some(events) => events,
            // The feed has a sender itself.
            None => std::future::pending().await,
        }
    }

    /// The next event, if one is buffered.
    pub(crate) fn try_next(&mut self) -> Option<FeedEvent> {
        self.events.try_recv().ok()
    }
}

/// Whether a table is watched.
pub(crate) fn is_watched(table: Table) -> bool {
    !UNWATCHED.contains(&table.as_str())
}

/// All watched tables.
fn tables() -> Vec<Table> {
    let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.table).chain(RAW_TABLES).collect();
    names.retain(|name| !name.is_empty() && !UNWATCHED.contains(name));
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(Table::named).collect()
}

async fn watch(store: Arc<dyn Store>, table: Table, out: mpsc::Sender<FeedEvent>) {
    let Ok(range) = store.range(table, "", None) else {
        let _ = out.send(FeedEvent::WatchLost(table)).await;
        return;
    };
    let started = store.watch(table, "", range.revision);
    if out.send(FeedEvent::Listed(range.entries)).await.is_err() {
        return;
    }
    if let Ok(mut watch) = started {
        while let Ok(events) = watch.next().await {
            if out.send(FeedEvent::Changed(table, events, watch.position())).await.is_err() {
                return;
            }
        }
    }
    let _ = out.send(FeedEvent::WatchLost(table)).await;
}
