//! The queue between requests and the writer: bounded in events and in bytes.
//!
//! In: entries, from any task, without waiting. Out: batches, to one thread that blocks for them. The thread is woken once for the entries of
//! [`LINGER`], because a wake-up and a write for each entry would cost as much as handling a small request. An entry counts until it has been
//! written, not only until it is taken. Room is checked when a request begins, so that the later events of a request that is in
//! progress always fit; the excess is bounded by the number of requests in progress.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::record::Entry;

/// How many entries are taken at once.
const BATCH: usize = 256;
/// How long the first entry of a batch waits for others, unless somebody waits for it.
const LINGER: Duration = Duration::from_millis(10);

/// Upper bounds; at either the queue is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

/// The queue.
pub(super) struct Queue {
    limits: Limits,
    state: Mutex<State>,
    /// Wakes the writer: there is a first entry, a batch is complete, or the queue was closed.
    changed: Condvar,
    /// Wakes requests that wait for room.
    room: Notify,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// Of entries that are not yet written.
    events: usize,
    bytes: usize,
    /// Whether somebody waits for an entry to be written.
    is_urgent: bool,
    /// Whether the last attempt to write failed.
    is_failing: bool,
    is_closed: bool,
}

/// Entries that the writer has taken, and how much room they held.
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new(), room: Notify::new() }
    }

    /// Adds an entry, also to a full queue; false when the queue is closed.
    pub(super) fn push(&self, entry: Entry) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        state.events += 1;
        state.bytes += entry.cost();
        state.is_urgent |= entry.written.is_some();
        state.entries.push_back(entry);
        let wakes = state.is_urgent || matches!(state.entries.len(), 1 | BATCH);
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
        true
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.events >= self.limits.events || state.bytes >= self.limits.bytes
    }

    /// Resolves when there is room.
    pub(super) async fn room(&self) {
        loop {
            // Created before looking: a release between the two wakes it.
            let released = self.room.notified();
            if !self.is_full() {
                return;
            }
            released.await;
        }
    }

    /// Whether the last attempt to write failed.
    pub(super) fn is_failing(&self) -> bool {
        self.state.lock().is_failing
    }

    /// Blocks for the next entries; `None` when the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        while state.entries.is_empty() {
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
        let may_linger = |state: &mut State| state.entries.len() < BATCH && !state.is_urgent && !state.is_closed;
        self.changed.wait_while_for(&mut state, may_linger, LINGER);
        let count = state.entries.len().min(BATCH);
        let entries: Vec<Entry> = state.entries.drain(..count).collect();
        state.is_urgent = state.entries.iter().any(|entry| entry.written.is_some());
        let bytes = entries.iter().map(Entry::cost).sum();
        Some(Batch { entries, bytes })
    }

    /// Gives back the room of a batch that was written.
    pub(super) fn release(&self, batch: &Batch) {
        let mut state = self.state.lock();
        state.events -= batch.entries.len();
        state.bytes -= batch.bytes;
        state.is_failing = false;
        drop(state);
        self.room.notify_waiters();
    }

    /// An attempt to write failed: whoever waits for an entry to be written hears so.
    pub(super) fn fail(&self) {
        let mut state = self.state.lock();
        state.is_failing = true;
        state.entries.iter_mut().for_each(|entry| entry.resolve(false));
    }

    /// Accepts no more entries. Those in the queue can still be taken.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
        self.room.notify_waiters();
    }

    /// Blocks until the queue is closed, at most for this long; tells whether it is.
    pub(super) fn wait_closed(&self, limit: Duration) -> bool {
        let mut state = self.state.lock();
        // Entries also wake this.
        self.changed.wait_while_for(&mut state, |state| !state.is_closed, limit);
        state.is_closed
    }
}
