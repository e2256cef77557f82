//! The one thread that changes the store.
//!
//! Transactions flow in through the [`crate::queue`]; the thread takes all that wait, decides each on top of the ones
//! before it, makes the whole batch durable at once, publishes it and answers. While it waits for the disk the next
//! batch gathers by itself: the busier the store, the more commits share one fdatasync.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;

use crate::batch::{Batch, Broken, Change, Put};
use crate::compaction::{Compaction, Job, Written};
use crate::disk::Disk;
use crate::embedded::Clock;
use crate::encryption::{Encryption, Encryptor};
use crate::expiry::{self, Expiry};
use crate::figures::Counters;
use crate::log::Log;
use crate::memory::{Memory, State};
use crate::queue::{Message, Queue, Reply, Taken};
use crate::rotation::{Published, RETRY_AFTER, Rotation, RotationError};
use crate::{CommitError, Compare, Event, Key, Op, Revision, Table, Txn, frame, home, record};

/// History is looked at this often even when nothing is written.
const TICK: Duration = Duration::from_secs(10);
/// A disk that takes longer than this is worth a word: people wait for it.
const SLOW: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Writer {
    pub(crate) memory: Arc<Memory>,
    pub(crate) log: Log,
    pub(crate) queue: Queue,
    /// The other end of the queue, for the snapshot thread.
    pub(crate) mailbox: Sender<Message>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) expiry: Expiry,
    pub(crate) compaction: Compaction,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) clock: Clock,
    /// Whether the last batch could not be written; said once, not once per batch.
    pub(crate) failing: bool,
    /// Encrypts what is written to the log.
    pub(crate) encryptor: Encryptor,
    pub(crate) rotation: Rotation,
    pub(crate) published: Arc<Published>,
    /// Superfluous files that could not be removed yet.
    pub(crate) leftover: Vec<PathBuf>,
}

/// The frame of a batch. What cannot be encoded fails the batch as a whole, once it is complete.
struct Encoder<'a> {
    frame: Vec<u8>,
    encryptor: &'a mut Encryptor,
    failed: Option<io::Error>,
}

/// What a transaction comes to if its batch becomes durable.
enum Verdict {
    Commit(Revision),
    /// Nothing to write: the conditions hold, and that is all.
    Unchanged(Revision),
    Conflict {
        key: Key,
        /// The condition broke on a transaction of the same batch.
        pending: bool,
    },
}

impl Writer {
    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        if self.rotation.is_due() {
            self.compact();
        }
        loop {
            let tick = if self.rotation.is_due() { RETRY_AFTER } else { TICK };
            let idle = self.expiry.wait((self.clock)()).map_or(tick, |wait| wait.min(tick));
            let Taken { requests, snapshot, rotations, stop, .. } = self.queue.take(idle);
            if let Some(result) = snapshot {
                self.snapshot_ended(result);
            }
            for (next, reply) in rotations {
                // Who asked may have gone; the configuration is in use.
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
            self.memory.forget(Instant::now());
            return;
        }
        let state = self.memory.read();
        let mut batch = Batch::after(state.revision());
        let first = state.revision() + 1;
        let mut encoder = Encoder::new(&mut self.encryptor);
        let mut verdicts = Vec::with_capacity(requests.len());
        for (txn, reply) in requests {
            verdicts.push((decide(&state, &mut batch, &mut encoder, txn, now), reply));
        }
        for compare in &expired {
            let txn = Txn { compares: vec![compare.clone()], ops: vec![Op::Delete { key: compare.key.clone() }] };
            decide(&state, &mut batch, &mut encoder, txn, now);
        }
        drop(state);
        let encoded = encoder.finish();

        let began = Instant::now();
        let written = encoded.and_then(|mut frame| match batch.events().is_empty() {
            true => Ok(()),
            false => self.log.append(first, &mut frame),
        });
        let took = began.elapsed();
        if took > SLOW {
            tracing::warn!(?took, "the disk took long to write; every answer to a change waits for it");
        }
        match &written {
            Ok(()) => self.publish(&batch),
            Err(error) => self.failed(error, expired, now),
        }
        let failure = written.err().map(|error| CommitError::from(&error));
        let answered = verdicts.len();
        self.answer(verdicts, failure.as_ref());
        if failure.is_none() {
            self.memory.ring(batch.revision(), batch.events());
        }
        self.queue.answered(answered, took);
    }

    fn publish(&mut self, batch: &Batch) {
        if batch.events().is_empty() {
            return;
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!("the log can be written again");
        }
        for event in batch.events().iter().filter(|event| !event.deleted) {
            self.expiry.note(&event.entry);
        }
        self.memory.publish(batch.revision(), batch.events(), Instant::now());
    }

    fn failed(&mut self, error: &io::Error, expired: Vec<Compare>, now: SystemTime) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, "the log cannot be written; changes are refused until it can");
        }
        self.expiry.put_back(expired, now);
    }

    fn answer(&self, verdicts: Vec<(Verdict, Reply)>, failure: Option<&CommitError>) {
        for (verdict, reply) in verdicts {
            // Counted before it is answered: who has the answer finds it in the figures.
            let answer = match (verdict, failure) {
                // It was refused because of durable state, whatever became of the batch.
                (Verdict::Conflict { key, pending: false }, _) | (Verdict::Conflict { key, .. }, None) => {
                    self.counters.conflict();
                    Err(CommitError::Conflict { key })
                }
                (_, Some(failure)) => {
                    self.counters.failure();
                    Err(failure.clone())
                }
                (Verdict::Commit(revision), None) => {
                    self.counters.commit();
                    Ok(revision)
                }
                (Verdict::Unchanged(revision), None) => Ok(revision),
            };
            // Who asked may have gone; the change stands.
            let _ = reply.send(answer);
        }
    }

    fn compact(&mut self) {
        let (revision, live, entries) = {
            let state = self.memory.read();
            let live = state.live_bytes() as u64;
            let anew = self.compaction.is_idle() && self.rotation.is_due_at(Instant::now());
            if !anew && !self.compaction.is_due(self.log.bytes(), live) {
                return;
            }
            (state.revision(), live, state.entries().cloned().collect::<Vec<_>>())
        };
        tracing::debug!(revision, live, log = self.log.bytes(), "compacting the log");
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
            let mailbox = self.mailbox.clone();
            self.compaction.start(job, move |result| {
                // The writer waits for this thread before it ends, so the letter is at worst not read.
                let _ = mailbox.send(Message::Snapshot(result));
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

    /// Goes on with another encryption configuration, if everything stored can be read with it.
    fn rotate(&mut self, next: Arc<Encryption>) -> Result<(), RotationError> {
        if *next == **self.rotation.current() {
            return Ok(());
        }
        let tables: Vec<Table> = self.memory.read().counts().map(|(table, _)| table).collect();
        self.rotation.check(&next, &tables)?;
        if next.encrypts() {
            home::write_format(&self.dir, &*self.disk, home::FORMAT_ENCRYPTED)?;
        }
        self.encryptor = Encryptor::new(Arc::clone(&next));
        self.rotation.begin(Arc::clone(&next), &tables);
        let rewrites = self.rotation.is_due();
        tracing::info!(keys = ?key_names(&next), rewrites, "changed the encryption configuration of the store");
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

    /// Appends the transaction that these events are.
    fn txn(&mut self, revision: Revision, events: &[Arc<Event>]) {
        if let Err(error) = record::encode_txn(&mut self.frame, revision, events, self.encryptor) {
            self.failed.get_or_insert(error);
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        self.failed.map_or(Ok(self.frame), Err)
    }
}

/// Checks a transaction on top of state and batch; if it holds, adds it to the batch and to the frame.
fn decide(state: &State, batch: &mut Batch, encoder: &mut Encoder<'_>, txn: Txn, now: SystemTime) -> Verdict {
    for compare in txn.compares {
        if let Err(Broken { pending }) = batch.check(state, &compare) {
            let Compare { key, .. } = compare;
            return Verdict::Conflict { key, pending };
        }
    }
    let changes = txn.ops.into_iter().map(|op| change(op, now));
    let before = batch.revision();
    let events = batch.add(state, changes);
    if events.is_empty() {
        return Verdict::Unchanged(before);
    }
    encoder.txn(before + 1, events);
    Verdict::Commit(batch.revision())
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

/// A value that keeps nothing but itself in memory: what is handed over may be a piece of a larger buffer, or have
/// room to grow, and it will be kept for long.
pub(crate) fn alone(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}
