//! Brings every change of every table to the runner: first what is there, then what happens.
//!
//! Tables are read and watched one by one, and mix as they come; only within a table is there an order. When a watch is lost
//! because its history was forgotten, the feed ends with [`Lost`]: whoever listens must start again from nothing, because a
//! world with a gap cannot be mended.

use std::sync::Arc;

use api::kinds::KINDS;
use store::{Entry, Event, Revision, Store, Table};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::world::RAW_TABLES;

/// How many batches may wait for the runner.
const WAITING: usize = 64;
/// Tables that nothing is decided by, and that change much.
const UNWATCHED: [&str; 1] = ["events"];

/// Something about one table.
#[derive(Debug)]
pub(crate) enum News {
    /// All that is there; changes follow.
    Listed(Vec<Arc<Entry>>),
    /// Changes, and the revision up to which the table is known now.
    Changed(Table, Vec<Arc<Event>>, Revision),
    /// A watch was lost.
    Lost(Table),
}

/// A stream of news.
#[derive(Debug)]
pub(crate) struct Feed {
    news: mpsc::Receiver<News>,
    /// The tasks that watch; they end with the feed.
    _watchers: JoinSet<()>,
    /// How many tables there are.
    pub(crate) tables: usize,
}

impl Feed {
    /// Begins to read and watch.
    pub(crate) fn start(store: &Arc<dyn Store>) -> Self {
        let (sender, news) = mpsc::channel(WAITING);
        let mut watchers = JoinSet::new();
        let tables = tables();
        for table in &tables {
            watchers.spawn(watch(store.clone(), *table, sender.clone()));
        }
        Self { news, _watchers: watchers, tables: tables.len() }
    }

    /// The next news.
    pub(crate) async fn next(&mut self) -> News {
        match self.news.recv().await {
            Some(news) => news,
            // The watchers end only with the feed.
            None => std::future::pending().await,
        }
    }

    /// More news, if there are some already.
    pub(crate) fn more(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

/// Whether changes of a table come back to the runner.
pub(crate) fn is_watched(table: Table) -> bool {
    !UNWATCHED.contains(&table.as_str())
}

/// Every table that is watched.
fn tables() -> Vec<Table> {
    let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.table).chain(RAW_TABLES).collect();
    names.retain(|name| !name.is_empty() && !UNWATCHED.contains(name));
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(Table::named).collect()
}

async fn watch(store: Arc<dyn Store>, table: Table, out: mpsc::Sender<News>) {
    let Ok(range) = store.range(table, "", None) else {
        let _ = out.send(News::Lost(table)).await;
        return;
    };
    let started = store.watch(table, "", range.revision);
    if out.send(News::Listed(range.entries)).await.is_err() {
        return;
    }
    if let Ok(mut watch) = started {
        while let Ok(events) = watch.next().await {
            if out.send(News::Changed(table, events, watch.position())).await.is_err() {
                return;
            }
        }
    }
    let _ = out.send(News::Lost(table)).await;
}
