//! A cursor over the events of one table.
//!
//! A watch holds no events of its own: it remembers a revision and reads on from there, out of the memory all watches
//! share. A thousand slow watchers therefore cost a thousand numbers, and one that is too slow learns so by
//! [`Compacted`] instead of filling a buffer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::watch::Receiver;

use crate::history::History;
use crate::memory::Memory;
use crate::{Compacted, Event, Revision, Table};

/// One call of `next` answers about so many events at most, so that a watch of long ago does not hold up the others.
const STEP: usize = 1_000;

/// Events of a table in order, each exactly once.
pub struct Watch {
    memory: Arc<Memory>,
    table: Table,
    prefix: Box<str>,
    /// Everything up to here was delivered; never goes back, because somebody may have been told.
    position: AtomicU64,
    bell: Receiver<Revision>,
}

impl Watch {
    pub(crate) fn start(memory: Arc<Memory>, table: Table, prefix: &str, after: Revision) -> Result<Self, Compacted> {
        let bell = memory.bell(table);
        let oldest = memory.read().floor(table);
        if after < oldest {
            return Err(Compacted { asked: after, oldest });
        }
        memory.watchers.fetch_add(1, Relaxed);
        Ok(Self { memory, table, prefix: prefix.into(), position: after.into(), bell })
    }

    /// Waits for the next events. Never empty; all events of one revision come together. Dropping the future before
    /// it is ready loses nothing.
    ///
    /// # Errors
    ///
    /// When the events that follow were forgotten before they were read; the watch is of no more use then.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, Compacted> {
        loop {
            // Marked as heard before looking: what is published after the look rings again.
            self.bell.borrow_and_update();
            let events = self.pull()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.bell.changed().await.is_err() {
                // The bell lives in the memory that we hold, so this cannot be; waiting is what a silent store asks.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next events that are there already, without waiting; none when everything was delivered. Comes in steps, so it is called until it
    /// is empty.
    ///
    /// # Errors
    ///
    /// When the events that follow were forgotten before they were read; the watch is of no more use then.
    pub fn ready(&mut self) -> Result<Vec<Arc<Event>>, Compacted> {
        self.pull()
    }

    /// Everything up to this revision was delivered. Moves on with the revision of the whole store while this table
    /// is quiet, so that a watcher can say how far it is without events.
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
            return Err(Compacted { asked: *position, oldest });
        }
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut reached = state.revision().max(*position);
        for event in state.history(self.table).into_iter().flat_map(|history| history.after(*position)) {
            if events.len() >= STEP && events.last().is_some_and(|last| last.revision < event.revision) {
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
