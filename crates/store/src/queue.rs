//! How transactions gather into a batch.
//!
//! Messages flow in from everybody; a [`Taken`] flows out to the writer: everything that waits, up to a limit. Clients
//! that were just answered tend to come back at once. Taking only those that came first would split them into two
//! crowds that take turns, each waiting for the other's fdatasync; so the queue lingers for the rest of the crowd, for
//! a small part of the time that a sync takes. An idle store and a lone client never wait.

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

/// Limits of a batch, so that the first in it does not wait too long for the last.
const BATCH_TXNS: usize = 1_024;
const BATCH_BYTES: usize = 4 << 20;
/// The part of a sync's time that may be spent waiting for company, and its limit.
const LINGER_PART: u32 = 8;
const LINGER_MOST: Duration = Duration::from_micros(500);

/// Where the answer to a transaction goes.
pub(crate) type Reply = oneshot::Sender<Result<Revision, CommitError>>;

/// An encryption configuration to go on with, and where the answer goes.
pub(crate) type Rotate = (Arc<Encryption>, oneshot::Sender<Result<(), RotationError>>);

/// What the writer is told.
pub(crate) enum Message {
    Commit(Txn, Reply),
    /// A snapshot ended.
    Snapshot(io::Result<Written>),
    /// Use another encryption configuration from now on.
    Encrypt(Rotate),
    /// Finish what was asked for before this, then end.
    Stop,
}

/// What the writer has to do next.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) requests: Vec<(Txn, Reply)>,
    pub(crate) snapshot: Option<io::Result<Written>>,
    pub(crate) rotations: Vec<Rotate>,
    pub(crate) stop: bool,
    bytes: usize,
}

/// See the module.
pub(crate) struct Queue {
    messages: Receiver<Message>,
    /// How many the last batch answered.
    answered: usize,
    linger_until: Instant,
}

impl Taken {
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
        Self { messages, answered: 0, linger_until: Instant::now() }
    }

    /// Waits at most `idle` for something to do, then takes what is there.
    pub(crate) fn take(&mut self, idle: Duration) -> Taken {
        let mut taken = Taken::default();
        self.take_waiting(&mut taken);
        let crowd = self.answered + taken.requests.len();
        if taken.is_empty() {
            match self.messages.recv_timeout(idle) {
                Ok(message) => taken.add(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => taken.stop = true,
            }
            self.take_waiting(&mut taken);
        }
        while taken.requests.len() < crowd && !taken.is_full() {
            let left = self.linger_until.saturating_duration_since(Instant::now());
            let Ok(message) = self.messages.recv_timeout(left) else { break };
            taken.add(message);
        }
        taken
    }

    /// Takes note that so many were answered after a sync that took so long.
    pub(crate) fn answered(&mut self, answered: usize, sync: Duration) {
        self.answered = answered;
        self.linger_until = Instant::now() + (sync / LINGER_PART).min(LINGER_MOST);
    }

    fn take_waiting(&self, taken: &mut Taken) {
        while !taken.is_full()
            && let Ok(message) = self.messages.try_recv()
        {
            taken.add(message);
        }
    }
}
