//! A cursor over the events of one table.
//!
//! A watch buffers no events: it holds a revision and reads on from there in the history that all watches share. A slow watch
//! costs no memory, and one that is too slow gets [`Compacted`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::watch::Receiver;

use crate::history::History;
use crate::memory::Memory;
use crate::{Compacted, Event, Revision, Table};

/// About how many events one call of `next` returns at most, so that a watch with a long backlog does not hold the lock for long.
const MAX_EVENTS: usize = 1_000;

/// The events of a table in order, each exactly once.
pub struct Watch {
    memory: Arc<Memory>,
    table: Table,
    prefix: Box<str>,
    /// Everything up to here was delivered. Never decreases: callers may have reported it.
    position: AtomicU64,
    notifier: Receiver<Revision>,
}

impl Watch {
    pub(crate) fn start(memory: Arc<Memory>, table: Table, prefix: &str, after: Revision) -> Result<Self, Compacted> {
        let notifier = memory.subscribe(table);
        let oldest = memory.read().floor(table);
        if after < oldest {
            return Err(Compacted { requested: after, oldest });
        }
        memory.watchers.fetch_add(1, Relaxed);
        Ok(Self { memory, table, prefix: prefix.into(), position: after.into(), notifier })
    }

    /// Waits for the next events. Never empty; all events of one revision are returned together. Cancellation safe.
    ///
    /// # Errors
    ///
    /// When the next events were compacted before they were read; the watch is then unusable.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, Compacted> {
        loop {
            // Marked as seen before reading: what is published after the read notifies again.
            self.notifier.borrow_and_update();
            let events = self.pull()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.notifier.changed().await.is_err() {
                // Unreachable: the sender is in `self.memory`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next events without waiting; empty when everything was delivered. Returns a limited number, so call it until it is empty.
    ///
    /// # Errors
    ///
    /// When the next events were compacted before they were read; the watch is then unusable.
    pub fn ready(&mut self) -> Result<Vec<Arc<Event>>, Compacted> {
        self.pull()
    }

    /// Everything up to this revision was delivered. Advances with the revision of the store while the table has no events, which
    /// bookmarks report.
    #[must_use]
    pub fn position(&self) -> Revision {
        let state = self.memory.read();
        let position = self.position.load(Relaxed);
        let newest = state.history(self.table).map_or(0, History::newest);
        if newest > position {
            return position;
        }
        self.position.fetch_max(state.revision(), Relaxed).max(state.revision())
    }

    fn pull(&mut self) -> Result<Vec<Arc<Event>>, Compacted> {
        let state = self.memory.read();
        let position = self.position.get_mut();
        let oldest = state.floor(self.table);
        if *position < oldest {
            return Err(Compacted { requested: *position, oldest });
        }
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut reached = state.revision().max(*position);
        for event in state.history(self.table).into_iter().flat_map(|history| history.after(*position)) {
            if events.len() >= MAX_EVENTS && events.last().is_some_and(|last| last.revision < event.revision) {
                reached = event.revision - 1;
                break;
            }
            if event.entry.key.name.starts_with(&*self.prefix) {
                events.push(Arc::clone(event));
            }
        }
        *position = reached;
        Ok(events)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.memory.watchers.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({}/{}* after {})", self.table, self.prefix, self.position.load(Relaxed))
    }
}
