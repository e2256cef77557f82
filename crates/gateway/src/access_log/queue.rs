//! The queue between requests and the writer: lines, limited in bytes.
//!
//! In: lines of any thread, without waiting. Out: all lines that came since, at once. They are appended to one buffer,
//! which the writer gives back. The writer is woken once for the lines of [`LINGER`].

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// So many bytes are not delayed.
const FULL_BATCH: usize = 256 << 10;
/// How long the first line of a batch waits for others.
const LINGER: Duration = Duration::from_millis(10);
/// A larger buffer is freed instead of used again, in bytes.
const MAX_SPARE: usize = 1 << 20;

/// The queue.
pub(super) struct Queue {
    /// Bytes that may wait; as many may be being written.
    limit: usize,
    state: Mutex<State>,
    /// Wakes the writer.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    must_reopen: bool,
    is_closed: bool,
}

/// What the writer is to do.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Batch {
    /// Complete lines, each with its line feed.
    pub(super) lines: Vec<u8>,
    /// Whether the file is to be opened again first.
    pub(super) must_reopen: bool,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Appends a line; false when there is no room for it, or the queue is closed.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.state.lock();
        let before = state.lines.len();
        if state.is_closed || before + line.len() > self.limit {
            return false;
        }
        state.lines.extend_from_slice(line);
        let after = state.lines.len();
        drop(state);
        if before == 0 || (before < FULL_BATCH && after >= FULL_BATCH) {
            self.changed.notify_one();
        }
        true
    }

    /// Has the writer open the file again.
    pub(super) fn reopen(&self) {
        self.state.lock().must_reopen = true;
        self.changed.notify_one();
    }

    /// Blocks for the next lines; none when the queue is closed and empty. `spare` is the buffer of the lines before.
    pub(super) fn take(&self, mut spare: Vec<u8>) -> Option<Batch> {
        spare.clear();
        spare.shrink_to(MAX_SPARE);
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.is_idle());
        self.changed.wait_while_for(&mut state, |state| !state.is_due(), LINGER);
        if state.lines.is_empty() && !state.must_reopen {
            return None;
        }
        let must_reopen = std::mem::take(&mut state.must_reopen);
        Some(Batch { lines: std::mem::replace(&mut state.lines, spare), must_reopen })
    }

    /// Accepts no more lines. Those in the queue can still be taken.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl State {
    const fn is_idle(&self) -> bool {
        self.lines.is_empty() && !self.must_reopen && !self.is_closed
    }

    const fn is_due(&self) -> bool {
        self.lines.len() >= FULL_BATCH || self.must_reopen || self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_together_and_those_beyond_the_limit_are_refused() {
        let queue = Queue::new(8);
        assert!(queue.push(b"one\n") && queue.push(b"two\n") && !queue.push(b"x\n"));
        assert_eq!(queue.take(Vec::new()), Some(Batch { lines: b"one\ntwo\n".to_vec(), must_reopen: false }));
        assert!(queue.push(b"x\n"), "there is room again");
        queue.reopen();
        queue.close();
        assert!(!queue.push(b"y\n"));
        assert_eq!(queue.take(Vec::new()), Some(Batch { lines: b"x\n".to_vec(), must_reopen: true }));
        assert_eq!(queue.take(Vec::new()), None);
    }
}
