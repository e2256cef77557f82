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
use crate::compaction::{Compaction, Job};
use crate::disk::Disk;
use crate::embedded::Clock;
use crate::expiry::{self, Expiry};
use crate::figures::Counters;
use crate::log::Log;
use crate::memory::{Memory, State};
use crate::queue::{Message, Queue, Reply, Taken};
use crate::{CommitError, Compare, Key, Op, Revision, Txn, frame, record};

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
        loop {
            let idle = self.expiry.wait((self.clock)()).map_or(TICK, |wait| wait.min(TICK));
            let Taken { requests, snapshot, stop, .. } = self.queue.take(idle);
            if let Some(result) = snapshot {
                self.snapshot_ended(&result);
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
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        let mut verdicts = Vec::with_capacity(requests.len());
        for (txn, reply) in requests {
            verdicts.push((decide(&state, &mut batch, &mut frame, txn, now), reply));
        }
        for compare in &expired {
            let txn = Txn { compares: vec![compare.clone()], ops: vec![Op::Delete { key: compare.key.clone() }] };
            decide(&state, &mut batch, &mut frame, txn, now);
        }
        drop(state);

        let began = Instant::now();
        let written = if batch.events().is_empty() { Ok(()) } else { self.log.append(first, &mut frame) };
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
            if !self.compaction.is_due(self.log.bytes(), live) {
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
                segments: self.log.before(revision + 1),
                previous: self.compaction.newest,
            };
            let mailbox = self.mailbox.clone();
            self.compaction.start(job, move |result| {
                // The writer waits for this thread before it ends, so the letter is at worst not read.
                let _ = mailbox.send(Message::Snapshot(result));
            })
        });
        if let Err(error) = started {
            self.compaction.failed(&error, self.log.bytes());
        }
    }

    fn snapshot_ended(&mut self, result: &io::Result<Revision>) {
        if let Ok(revision) = result {
            self.log.forget_before(revision + 1);
            self.counters.snapshot();
        }
        self.compaction.ended(result, self.log.bytes());
    }
}

/// Checks a transaction on top of state and batch; if it holds, adds it to the batch and to the frame.
fn decide(state: &State, batch: &mut Batch, frame: &mut Vec<u8>, txn: Txn, now: SystemTime) -> Verdict {
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
    record::encode_txn(frame, before + 1, events);
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
