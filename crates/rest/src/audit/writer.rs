//! The thread that writes events: batches from the queue in, lines to the log out.
//!
//! A write that fails (a full disk) is tried again with exponential backoff until it succeeds; no line is lost or written twice. While it fails the
//! queue fills, which is where the mode of the log decides what happens to requests. After the queue was closed a failing log is given up
//! within [`CLOSE_TIMEOUT`].

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::Metrics;
use super::queue::{Batch, Queue};
use super::record::Entry;

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How long a log that fails is tried after the queue was closed.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Where lines go.
pub(super) trait Output: Send {
    /// Accepts a line, which [`Output::flush`] writes at the latest. When this fails, the line was not accepted.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;

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
                lost += batch.entries.len();
            }
            batch.entries.iter_mut().for_each(|entry| entry.resolve(written));
            self.queue.release(&batch);
        }
        if lost > 0 {
            tracing::error!(events = lost, "lost audit events: the audit log could not be written before the end");
        }
    }

    fn write(&mut self, batch: &mut Batch) -> Result<(), GivenUp> {
        let mut line = Vec::new();
        for index in 0..batch.entries.len() {
            let Some(entry) = batch.entries.get_mut(index) else { break };
            if let Err(problem) = encode(entry, &mut line) {
                // Whatever an object does to its decoder, the event itself must not be lost.
                self.metrics.write_failed();
                tracing::error!(problem, audit_id = entry.request.id, "failed to encode objects of audit event");
                entry.outcome.drop_objects();
                if encode(entry, &mut line).is_err() {
                    entry.resolve(false);
                    continue;
                }
            }
            self.retry(batch, |output| output.append(&line))?;
        }
        self.retry(batch, Output::flush)
    }

    /// Repeats an operation until it succeeds.
    fn retry(&mut self, batch: &mut Batch, operation: impl Fn(&mut O) -> io::Result<()>) -> Result<(), GivenUp> {
        let (mut backoff, mut failures, mut closing) = (MIN_BACKOFF, 0_u64, Duration::ZERO);
        while let Err(error) = operation(&mut self.output) {
            self.metrics.write_failed();
            failures += 1;
            if failures == 1 {
                tracing::error!(%error, "failed to write audit log, trying again");
            }
            batch.entries.iter_mut().for_each(|entry| entry.resolve(false));
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
            tracing::info!(failures, "audit log is written again");
        }
        Ok(())
    }
}

/// Renders an event. Objects are what clients sent, and this thread must survive all of them.
fn encode(entry: &Entry, line: &mut Vec<u8>) -> Result<(), String> {
    line.clear();
    match catch_unwind(AssertUnwindSafe(|| entry.render(line))) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the decoder panicked".to_owned()),
    }
}

/// Waits without an event: there is none for a disk that gets room.
fn pause(time: Duration) {
    std::thread::park_timeout(time);
}
