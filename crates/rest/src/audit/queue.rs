//! The queue between requests and the writer: bounded in events and in bytes.
//!
//! In: events, from any task, without waiting. Out: batches, to one thread that blocks for them. The thread is woken once for the events of
//! [`LINGER`], because a wake-up and a write for each would cost as much as handling a small request. Events are rendered before they are queued
//! and appended to one buffer, which the writer gives back: memory that one thread allocates and another frees is expensive. An event counts until
//! it has been written, not only until it is taken. Room is checked when a request begins, so that the later events of a request that is in
//! progress always fit; the excess is bounded by the number of requests in progress.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use super::record::Entry;

/// A batch of so many bytes is not delayed.
const FULL_BATCH: usize = 256 << 10;
/// How long the first event of a batch waits for others, unless a request waits for it.
const LINGER: Duration = Duration::from_millis(10);
/// A larger buffer is freed instead of used again, in bytes.
const MAX_SPARE: usize = 1 << 20;

/// Upper bounds; at either the queue is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

/// An event on its way into the queue.
pub(super) enum Event<'a> {
    /// A complete line with its line feed.
    Line(&'a [u8]),
    /// One whose objects are so large that the writer renders it.
    Entry(Box<Entry>),
}

/// What is written, in the order of arrival.
pub(super) enum Item {
    /// Complete lines, each with its line feed.
    Lines(Vec<u8>),
    /// An event whose objects are so large that the writer renders it.
    Entry(Box<Entry>),
}

impl Event<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Entry(entry) => entry.cost(),
        }
    }
}

/// Receives whether an event was written.
pub(super) type Written = oneshot::Sender<bool>;

/// The queue.
pub(super) struct Queue {
    limits: Limits,
    state: Mutex<State>,
    /// Wakes the writer: there is a first event, a batch is full or urgent, or the queue was closed.
    changed: Condvar,
    /// Wakes requests that wait for room.
    room: Notify,
}

#[derive(Default)]
struct State {
    next: Batch,
    /// Of events that are not yet written.
    events: usize,
    bytes: usize,
    /// An empty buffer for lines.
    spare: Vec<u8>,
    /// Whether the last attempt to write failed.
    is_failing: bool,
    is_closed: bool,
}

/// A batch for the writer.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: VecDeque<Item>,
    /// Requests that wait for an event of it to be written.
    waiting: Vec<Written>,
    /// How many events it has, and how much room they hold.
    pub(super) events: usize,
    bytes: usize,
}

impl Batch {
    /// Reports to waiting requests whether their event was written.
    pub(super) fn resolve(&mut self, written: bool) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(written);
        }
    }

    fn is_due(&self) -> bool {
        self.bytes >= FULL_BATCH || !self.waiting.is_empty()
    }
}

impl State {
    fn append(&mut self, event: Event<'_>) {
        match (self.next.items.back_mut(), event) {
            (Some(Item::Lines(lines)), Event::Line(line)) => lines.extend_from_slice(line),
            (_, Event::Line(line)) => {
                let mut lines = std::mem::take(&mut self.spare);
                lines.extend_from_slice(line);
                self.next.items.push_back(Item::Lines(lines));
            }
            (_, Event::Entry(entry)) => self.next.items.push_back(Item::Entry(entry)),
        }
    }
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default(), changed: Condvar::new(), room: Notify::new() }
    }

    /// Adds an event, also to a full queue; false when the queue is closed.
    pub(super) fn push(&self, event: Event<'_>, written: Option<Written>) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        let (bytes, was_due) = (event.bytes(), state.next.is_due());
        state.events += 1;
        state.bytes += bytes;
        state.next.events += 1;
        state.next.bytes += bytes;
        state.next.waiting.extend(written);
        state.append(event);
        let wakes = state.next.events == 1 || (!was_due && state.next.is_due());
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

    /// Blocks for the next events; `None` when the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        while state.next.items.is_empty() {
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
        self.changed.wait_while_for(&mut state, |state| !state.next.is_due() && !state.is_closed, LINGER);
        Some(std::mem::take(&mut state.next))
    }

    /// Gives back the room of a batch that was written, and its buffer.
    pub(super) fn release(&self, batch: Batch) {
        let spare = batch.items.into_iter().find_map(|item| match item {
            Item::Lines(mut lines) if lines.capacity() <= MAX_SPARE => {
                lines.clear();
                Some(lines)
            }
            _ => None,
        });
        let mut state = self.state.lock();
        state.events -= batch.events;
        state.bytes -= batch.bytes;
        state.is_failing = false;
        state.spare = spare.unwrap_or_default();
        drop(state);
        self.room.notify_waiters();
    }

    /// Reports a failed write to waiting requests.
    pub(super) fn fail(&self) {
        let mut state = self.state.lock();
        state.is_failing = true;
        state.next.resolve(false);
    }

    /// Accepts no more events. Those in the queue can still be taken.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
        self.room.notify_waiters();
    }

    /// Blocks until the queue is closed, at most for this long; returns whether it is.
    pub(super) fn wait_closed(&self, limit: Duration) -> bool {
        let mut state = self.state.lock();
        // Events also wake this.
        self.changed.wait_while_for(&mut state, |state| !state.is_closed, limit);
        state.is_closed
    }
}
