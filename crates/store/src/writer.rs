//! The writer thread, the only one that changes the store.
//!
//! In: transactions from the [`crate::queue`]. The thread takes all that are queued, checks each on top of the ones before it, makes
//! the batch durable with one fdatasync, publishes it and replies. Out: events and replies. The next batch
//! collects during the sync, so the busier the store, the more commits share one fdatasync.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use crate::batch::{Batch, Change, CompareFailed, Put};
use crate::compaction::{Compaction, Job, Written};
use crate::disk::Disk;
use crate::embedded::Clock;
use crate::encryption::{Encryption, Encryptor};
use crate::expiry::{self, Expiry};
use crate::log::Log;
use crate::memory::{Memory, State};
use crate::queue::{Message, Queue, Reply, Work};
use crate::rotation::{Published, RETRY_AFTER, Rotation, RotationError};
use crate::stats::Counters;
use crate::{CommitError, Compare, Event, Key, Op, Revision, Table, Txn, data_dir, frame, record};

/// The interval at which history is trimmed when nothing is written.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);
/// Writes that take longer than this are logged: commits wait for them.
const SLOW_WRITE: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Writer {
    pub(crate) memory: Arc<Memory>,
    pub(crate) log: Log,
    pub(crate) queue: Queue,
    /// The sending end of the queue, for the snapshot thread.
    pub(crate) sender: Sender<Message>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) expiry: Expiry,
    pub(crate) compaction: Compaction,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) clock: Clock,
    /// Whether the last batch could not be written; logged once, not for each batch.
    pub(crate) failing: bool,
    /// Encrypts what is written to the log.
    pub(crate) encryptor: Encryptor,
    pub(crate) rotation: Rotation,
    pub(crate) published: Arc<Published>,
    /// Obsolete files that could not be removed yet.
    pub(crate) leftover: Vec<PathBuf>,
}

/// The frame of a batch. An encoding error fails the whole batch, in `finish`.
struct Encoder<'a> {
    frame: Vec<u8>,
    encryptor: &'a mut Encryptor,
    failed: Option<io::Error>,
}

/// The result of a transaction if its batch becomes durable.
enum Decision {
    Commit(Revision),
    /// The conditions hold and nothing changes.
    Unchanged(Revision),
    Conflict {
        key: Key,
        /// The condition failed on a transaction of the same batch.
        pending: bool,
    },
}

impl Writer {
    /// Runs until [`Message::Stop`].
    pub(crate) fn run(mut self) {
        if self.rotation.is_due() {
            self.compact();
        }
        loop {
            let tick = if self.rotation.is_due() { RETRY_AFTER } else { TRIM_INTERVAL };
            let idle = self.expiry.wait((self.clock)()).map_or(tick, |wait| wait.min(tick));
            let Work { requests, snapshot, rotations, stop, .. } = self.queue.take(idle);
            if let Some(result) = snapshot {
                self.snapshot_ended(result);
            }
            for (next, reply) in rotations {
                // The caller may have dropped the future; the configuration is in use.
                let _ = reply.send(self.rotate(next));
            }
            self.process(requests);
            self.compact();
            if stop {
                self.compaction.join();
                return;
            }
        }
    }

    fn process(&mut self, requests: Vec<(Txn, Reply)>) {
        let now = (self.clock)();
        let expired = self.expiry.due(now);
        if requests.is_empty() && expired.is_empty() {
            self.memory.trim(Instant::now());
            return;
        }
        let state = self.memory.read();
        let mut batch = Batch::after(state.revision());
        let first = state.revision() + 1;
        let mut encoder = Encoder::new(&mut self.encryptor);
        let mut decisions = Vec::with_capacity(requests.len());
        for (txn, reply) in requests {
            decisions.push((decide(&state, &mut batch, &mut encoder, txn, now), reply));
        }
        for compare in &expired {
            let txn = Txn { compares: vec![compare.clone()], ops: vec![Op::Delete { key: compare.key.clone() }] };
            decide(&state, &mut batch, &mut encoder, txn, now);
        }
        drop(state);
        let encoded = encoder.finish();

        let started = Instant::now();
        let written = encoded.and_then(|mut frame| match batch.events().is_empty() {
            true => Ok(()),
            false => self.log.append(first, &mut frame),
        });
        let took = started.elapsed();
        if took > SLOW_WRITE {
            tracing::warn!(?took, "slow write to the log: commits wait for the disk");
        }
        match &written {
            Ok(()) => self.publish(&batch),
            Err(error) => self.failed(error, expired, now),
        }
        let failure = written.err().map(|error| CommitError::from(&error));
        let count = decisions.len();
        self.answer(decisions, failure.as_ref());
        if failure.is_none() {
            self.memory.notify(batch.revision(), batch.events());
        }
        self.queue.acknowledged(count, took);
    }

    fn publish(&mut self, batch: &Batch) {
        if batch.events().is_empty() {
            return;
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!("the log is writable again");
        }
        for event in batch.events().iter().filter(|event| !event.deleted) {
            self.expiry.track(&event.entry);
        }
        self.memory.publish(batch.revision(), batch.events(), Instant::now());
    }

    fn failed(&mut self, error: &io::Error, expired: Vec<Compare>, now: SystemTime) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, "cannot write the log: changes are refused until it is writable");
        }
        self.expiry.retry(expired, now);
    }

    fn answer(&self, decisions: Vec<(Decision, Reply)>, failure: Option<&CommitError>) {
        for (decision, reply) in decisions {
            // Counted before the reply, so that a client with a reply finds it in the statistics.
            let answer = match (decision, failure) {
                // Refused because of durable state, even if the batch failed.
                (Decision::Conflict { key, pending: false }, _) | (Decision::Conflict { key, .. }, None) => {
                    self.counters.conflict();
                    Err(CommitError::Conflict { key })
                }
                (_, Some(failure)) => {
                    self.counters.failure();
                    Err(failure.clone())
                }
                (Decision::Commit(revision), None) => {
                    self.counters.commit();
                    Ok(revision)
                }
                (Decision::Unchanged(revision), None) => Ok(revision),
            };
            // The caller may have dropped the future; the change stands.
            let _ = reply.send(answer);
        }
    }

    fn compact(&mut self) {
        let (revision, live, entries) = {
            let state = self.memory.read();
            let live = state.live_bytes() as u64;
            let rewrite = self.compaction.is_idle() && self.rotation.is_due_at(Instant::now());
            if !rewrite && !self.compaction.is_due(self.log.bytes(), live) {
                return;
            }
            (state.revision(), live, state.entries().cloned().collect::<Vec<_>>())
        };
        tracing::debug!(revision, live, log = self.log.bytes(), "compact log");
        let started = self.log.begin_segment(revision + 1).and_then(|()| {
            let job = Job {
                disk: Arc::clone(&self.disk),
                dir: self.dir.clone(),
                revision,
                entries,
                obsolete: self.leftover.iter().cloned().chain(self.log.before(revision + 1)).collect(),
                previous: self.compaction.newest,
                encryption: Arc::clone(self.rotation.current()),
                generation: self.rotation.generation(),
            };
            let sender = self.sender.clone();
            self.compaction.start(job, move |result| {
                // The writer joins this thread before it ends; at worst the message is dropped.
                let _ = sender.send(Message::Snapshot(result));
            })
        });
        if let Err(error) = started {
            self.compaction.failed(&error, self.log.bytes());
            self.rotation.failed(Instant::now());
        }
    }

    fn snapshot_ended(&mut self, result: io::Result<Written>) {
        if let Ok(Written { revision, .. }) = &result {
            self.log.forget_before(revision + 1);
            self.counters.snapshot();
        }
        self.compaction.ended(&result, self.log.bytes());
        match result {
            Ok(Written { revision, generation, left }) if left.is_empty() => {
                self.leftover = left;
                if self.rotation.replaced(generation) {
                    self.counters.reencryption();
                    self.published.pending.send_replace(false);
                    let keys = key_names(self.rotation.current());
                    tracing::info!(
                        revision,
                        ?keys,
                        "rewrote all stored values with the current encryption configuration"
                    );
                }
            }
            Ok(Written { left, .. }) => {
                self.leftover = left;
                self.rotation.failed(Instant::now());
            }
            Err(_) => self.rotation.failed(Instant::now()),
        }
    }

    /// Switches to another encryption configuration, if everything stored can be read with it.
    fn rotate(&mut self, next: Arc<Encryption>) -> Result<(), RotationError> {
        if *next == **self.rotation.current() {
            return Ok(());
        }
        let tables: Vec<Table> = self.memory.read().counts().map(|(table, _)| table).collect();
        self.rotation.check(&next, &tables)?;
        if next.encrypts() {
            data_dir::write_format(&self.dir, &*self.disk, data_dir::FORMAT_ENCRYPTED)?;
        }
        self.encryptor = Encryptor::new(Arc::clone(&next));
        self.rotation.begin(Arc::clone(&next), &tables);
        let rewrites = self.rotation.is_due();
        tracing::info!(keys = ?key_names(&next), rewrites, "changed encryption configuration");
        self.published.pending.send_replace(rewrites);
        *self.published.encryption.write() = next;
        Ok(())
    }
}

/// The names of the keys that new values are encrypted with.
fn key_names(encryption: &Encryption) -> Vec<Box<str>> {
    encryption.writing_keys().into_values().collect()
}

// === impl Encoder ===

impl<'a> Encoder<'a> {
    fn new(encryptor: &'a mut Encryptor) -> Self {
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        Self { frame, encryptor, failed: None }
    }

    /// Appends these events as one transaction.
    fn txn(&mut self, revision: Revision, events: &[Arc<Event>]) {
        if let Err(error) = record::encode_txn(&mut self.frame, revision, events, self.encryptor) {
            self.failed.get_or_insert(error);
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        self.failed.map_or(Ok(self.frame), Err)
    }
}

/// Checks a transaction on top of state and batch; if its conditions hold, adds it to the batch and to the frame.
fn decide(state: &State, batch: &mut Batch, encoder: &mut Encoder<'_>, txn: Txn, now: SystemTime) -> Decision {
    for compare in txn.compares {
        if let Err(CompareFailed { pending }) = batch.check(state, &compare) {
            let Compare { key, .. } = compare;
            return Decision::Conflict { key, pending };
        }
    }
    let changes = txn.ops.into_iter().map(|op| change(op, now));
    let before = batch.revision();
    let events = batch.add(state, changes);
    if events.is_empty() {
        return Decision::Unchanged(before);
    }
    encoder.txn(before + 1, events);
    Decision::Commit(batch.revision())
}

fn change(op: Op, now: SystemTime) -> Change {
    match op {
        Op::Delete { key } => Change { key, put: None },
        Op::Put { key, value, facts, ttl } => {
            let expires = ttl.and_then(|ttl| expiry::deadline(now, ttl));
            Change { key, put: Some(Put { value, facts, expires }) }
        }
    }
}

/// Copies a value out of its buffer, which may be larger, because entries live long.
pub(crate) fn copied(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}
