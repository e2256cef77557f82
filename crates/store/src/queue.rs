//! Group commit: collects transactions into batches.
//!
//! In: messages from all threads. Out: [`Work`] for the writer: everything that is queued, up to a limit. Clients that got a reply
//! tend to send their next transaction at once. Taking only the first of them would split clients into two groups that
//! alternate, each waiting for the fdatasync of the other; so the queue lingers for the others, for a fraction of the duration of a
//! sync. An idle store and a single client never wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::compaction::Written;
use crate::encryption::Encryption;
use crate::rotation::RotationError;
use crate::{CommitError, Revision, Txn};

/// Limits of a batch, which bound its latency.
const BATCH_TXNS: usize = 1_024;
const BATCH_BYTES: usize = 4 << 20;
/// The fraction of the duration of a sync that may be spent lingering, and its limit.
const LINGER_FRACTION: u32 = 8;
const MAX_LINGER: Duration = Duration::from_micros(500);

/// The reply channel of a transaction.
pub(crate) type Reply = oneshot::Sender<Result<Revision, CommitError>>;

/// A new encryption configuration and its reply channel.
pub(crate) type Rotate = (Arc<Encryption>, oneshot::Sender<Result<(), RotationError>>);

/// A message to the writer.
pub(crate) enum Message {
    Commit(Txn, Reply),
    /// A snapshot ended.
    Snapshot(io::Result<Written>),
    /// Use another encryption configuration from now on.
    Encrypt(Rotate),
    /// Finish earlier messages, then stop.
    Stop,
}

/// The next batch of messages.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) requests: Vec<(Txn, Reply)>,
    pub(crate) snapshot: Option<io::Result<Written>>,
    pub(crate) rotations: Vec<Rotate>,
    pub(crate) stop: bool,
    bytes: usize,
}

/// See the module.
pub(crate) struct Queue {
    messages: Receiver<Message>,
    /// The number of transactions of the last batch.
    last_batch: usize,
    linger_until: Instant,
}

impl Work {
    fn add(&mut self, message: Message) {
        match message {
            Message::Commit(txn, reply) => {
                self.bytes += txn.size();
                self.requests.push((txn, reply));
            }
            Message::Snapshot(result) => self.snapshot = Some(result),
            Message::Encrypt(rotate) => self.rotations.push(rotate),
            Message::Stop => self.stop = true,
        }
    }

    /// Whether there is anything to do.
    const fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.snapshot.is_none() && self.rotations.is_empty() && !self.stop
    }

    const fn is_full(&self) -> bool {
        self.stop || self.requests.len() >= BATCH_TXNS || self.bytes >= BATCH_BYTES
    }
}

impl Queue {
    pub(crate) fn new(messages: Receiver<Message>) -> Self {
        Self { messages, last_batch: 0, linger_until: Instant::now() }
    }

    /// Waits at most `idle` for a message, then takes all that are queued.
    pub(crate) fn take(&mut self, idle: Duration) -> Work {
        let mut work = Work::default();
        self.drain(&mut work);
        let expected = self.last_batch + work.requests.len();
        if work.is_empty() {
            match self.messages.recv_timeout(idle) {
                Ok(message) => work.add(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => work.stop = true,
            }
            self.drain(&mut work);
        }
        while work.requests.len() < expected && !work.is_full() {
            let left = self.linger_until.saturating_duration_since(Instant::now());
            let Ok(message) = self.messages.recv_timeout(left) else { break };
            work.add(message);
        }
        work
    }

    /// Records the size of a batch that was acknowledged, and the duration of its sync.
    pub(crate) fn acknowledged(&mut self, transactions: usize, sync: Duration) {
        self.last_batch = transactions;
        self.linger_until = Instant::now() + (sync / LINGER_FRACTION).min(MAX_LINGER);
    }

    fn drain(&self, work: &mut Work) {
        while !work.is_full()
            && let Ok(message) = self.messages.try_recv()
        {
            work.add(message);
        }
    }
}
