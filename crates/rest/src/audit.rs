//! The audit log: who requested what of the API, when, and with which result, as `audit.k8s.io/v1` Events.
//!
//! In: requests, by a [`Recorder`] each, and a [`Policy`] that selects what is recorded. Out: JSON lines in a file ([`file`]), one for each
//! stage of a request that the policy does not omit. The request path evaluates the policy and renders the events; a thread writes them
//! ([`writer`]), behind a bounded queue ([`queue`]), and renders those with large objects.
//!
//! Every response carries an `Audit-Id`, which is also in the events and in the log lines of its request, whether or not there is a log.

mod backups;
mod event;
mod file;
mod json;
mod level;
mod metrics;
mod objects;
mod origin;
mod policy;
mod queue;
mod record;
mod recorder;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::RefCell;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

pub use file::LogOptions;
pub use level::{Level, Stage, Stages};
pub use policy::{InvalidPolicy, Policy, PolicyError, Verdict};

pub(crate) use metrics::Metrics;
pub(crate) use origin::AUDIT_ID;
pub(crate) use recorder::{Recorder, Trail};

use file::LogFile;
use queue::{Event, Limits, Queue, Written};
use record::Entry;
use writer::{CLOSE_TIMEOUT, Output, Writer};

/// How many events, and how many bytes of them and of the objects they hold, may wait to be written.
const LIMITS: Limits = Limits { events: 10_000, bytes: 64 << 20 };
/// How long a request waits until its event is in the queue, or on disk where it must be.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// What requests do when the log cannot keep up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Events are dropped, and counted.
    Batch,
    /// A new request waits until there is room for its events, and is refused when there is none in time. No event is lost.
    #[default]
    Blocking,
    /// Also, a request is handled only after the event of its stage `RequestReceived` was written, and refused when that fails.
    BlockingStrict,
}

/// A name is not that of a [`Mode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("allowed modes are batch, blocking, blocking-strict")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        match name {
            "batch" => Ok(Self::Batch),
            "blocking" => Ok(Self::Blocking),
            "blocking-strict" => Ok(Self::BlockingStrict),
            _ => Err(UnknownMode),
        }
    }
}

/// The audit log of a server.
pub struct Audit {
    policy: Policy,
    mode: Mode,
    queue: Arc<Queue>,
    metrics: Metrics,
    /// True once the writer has ended.
    ended: watch::Receiver<bool>,
}

/// An event could not be stored.
#[derive(PartialEq, Eq, Debug)]
struct NotStored;

impl Audit {
    /// Opens the log and starts to write.
    ///
    /// # Errors
    /// When the file cannot be opened, or no thread be started.
    pub fn open(policy: Policy, log: &LogOptions, mode: Mode) -> io::Result<Self> {
        Self::start(policy, LogFile::open(log)?, mode, LIMITS)
    }

    fn start(policy: Policy, output: impl Output + 'static, mode: Mode, limits: Limits) -> io::Result<Self> {
        let (queue, metrics) = (Arc::new(Queue::new(limits)), Metrics::default());
        let writer = Writer { queue: queue.clone(), output, metrics: metrics.clone() };
        let (end, ended) = watch::channel(false);
        std::thread::Builder::new().name("audit-log".to_owned()).spawn(move || {
            writer.run();
            let _ = end.send(true);
        })?;
        Ok(Self { policy, mode, queue, metrics, ended })
    }

    pub(crate) const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Writes what is in the queue, and accepts nothing more.
    pub(crate) async fn close(&self) {
        self.queue.close();
        let mut ended = self.ended.clone();
        // The writer has a timeout of its own, but a write may block.
        if tokio::time::timeout(2 * CLOSE_TIMEOUT, ended.wait_for(|ended| *ended)).await.is_err() {
            tracing::error!("audit log was not closed in time");
        }
    }

    /// Waits until there is room for the events of a request.
    async fn admit(&self) -> Result<(), NotStored> {
        if self.mode == Mode::Batch || !self.queue.is_full() {
            return Ok(());
        }
        tokio::time::timeout(STORE_TIMEOUT, self.queue.room()).await.map_err(|_| NotStored)
    }

    /// Stores the event of the stage `RequestReceived`.
    async fn receive(&self, entry: Entry) -> Result<(), NotStored> {
        if self.mode != Mode::BlockingStrict {
            self.store(entry, None);
            return Ok(());
        }
        if self.queue.is_failing() {
            return Err(NotStored);
        }
        let (written, answer) = oneshot::channel();
        self.store(entry, Some(written));
        match tokio::time::timeout(STORE_TIMEOUT, answer).await {
            Ok(Ok(true)) => Ok(()),
            _ => Err(NotStored),
        }
    }

    /// Stores an event. Only the mode `Batch` drops it, when there is no room.
    fn store(&self, entry: Entry, written: Option<Written>) {
        self.metrics.event();
        let has_room = self.mode != Mode::Batch || !self.queue.is_full();
        if !has_room || !self.push(entry, written) {
            self.metrics.dropped();
        }
    }

    fn push(&self, mut entry: Entry, written: Option<Written>) -> bool {
        thread_local! {
            /// A line, used again and again.
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        if entry.is_large() {
            return self.queue.push(Event::Entry(Box::new(entry)), written);
        }
        LINE.with_borrow_mut(|line| entry.encode(line, &self.metrics) && self.queue.push(Event::Line(line), written))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue.close();
    }
}
