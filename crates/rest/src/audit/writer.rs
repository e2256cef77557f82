//! The thread that writes events: batches from the queue in, lines to the log out.
//!
//! A write that fails (a full disk) is tried again with exponential backoff until it succeeds; no line is lost or written twice. While it fails the
//! queue fills, and then the mode of the log determines what happens to requests. After the queue is closed, writes to a failing log are abandoned
//! within [`CLOSE_TIMEOUT`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::metrics::Metrics;
use super::queue::{Batch, Item, Queue};

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How long a log that fails is tried after the queue was closed.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Where lines go.
pub(super) trait Output: Send {
    /// Whether so many bytes can be appended at once, although they are several lines.
    fn has_room(&self, bytes: usize) -> bool;

    /// Accepts lines, which [`Output::flush`] writes at the latest. When this fails, none was accepted.
    fn append(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Writes what was accepted. When this fails, it continues where it was with the next call.
    fn flush(&mut self) -> io::Result<()>;
}

/// The writer.
pub(super) struct Writer<O> {
    pub(super) queue: Arc<Queue>,
    pub(super) output: O,
    pub(super) metrics: Metrics,
}

/// The log failed until the end.
struct GivenUp;

impl<O: Output> Writer<O> {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut lost = 0_usize;
        while let Some(mut batch) = self.queue.take() {
            let written = lost == 0 && self.write(&mut batch).is_ok();
            if !written {
                lost += batch.events;
            }
            batch.resolve(written);
            self.queue.release(batch);
        }
        if lost > 0 {
            tracing::error!(events = lost, "lost audit events: the log could not be written before shutdown");
        }
    }

    fn write(&mut self, batch: &mut Batch) -> Result<(), GivenUp> {
        let mut items = std::mem::take(&mut batch.items);
        let mut rendered = Vec::new();
        for item in &mut items {
            let lines: &[u8] = match item {
                Item::Lines(lines) => lines,
                Item::Entry(entry) => match entry.encode(&mut rendered, &self.metrics) {
                    true => &rendered,
                    false => continue,
                },
            };
            if self.output.has_room(lines.len()) {
                self.retry(batch, |output| output.append(lines))?;
                continue;
            }
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                self.retry(batch, |output| output.append(line))?;
            }
        }
        batch.items = items;
        self.retry(batch, Output::flush)
    }

    /// Repeats an operation until it succeeds.
    fn retry(&mut self, batch: &mut Batch, operation: impl Fn(&mut O) -> io::Result<()>) -> Result<(), GivenUp> {
        let (mut backoff, mut failures, mut closing) = (MIN_BACKOFF, 0_u64, Duration::ZERO);
        while let Err(error) = operation(&mut self.output) {
            self.metrics.write_failed();
            failures += 1;
            if failures == 1 {
                tracing::error!(%error, "failed to write audit log: retrying");
            }
            batch.resolve(false);
            self.queue.fail();
            if self.queue.wait_closed(backoff) {
                closing += MIN_BACKOFF;
                if closing > CLOSE_TIMEOUT {
                    return Err(GivenUp);
                }
                // Closed already, so the queue cannot time the wait.
                pause(MIN_BACKOFF);
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
        if failures > 0 {
            tracing::info!(failures, "audit log is writable again");
        }
        Ok(())
    }
}

/// Waits without an event: there is none when a disk has space again.
fn pause(time: Duration) {
    std::thread::park_timeout(time);
}
