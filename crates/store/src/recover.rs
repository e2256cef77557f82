//! Recovery: loads files into memory when a store is opened or checked. Nothing on disk is changed.
//!
//! In: the newest complete snapshot, then every batch of the log after it, through the same code as commits; so recent history can be
//! watched across a restart. Out: the memory, and where to continue the log. Only one kind of damage is expected: a crash
//! tears the last batch, which was never acknowledged. Any other damage is an error, because skipping it could lose acknowledged
//! writes silently.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::time::Instant;

use crate::batch::Batch;
use crate::data_dir::Listing;
use crate::embedded::{Index, OpenError};
use crate::encryption::{DecryptError, Decryptor, Unreadable};
use crate::frame::{FrameError, Frames, Kind};
use crate::history::Retention;
use crate::log::Segment;
use crate::memory::Memory;
use crate::record::{Decoder, INVALID_RECORD};
use crate::{Revision, snapshot};

/// A torn end of the log.
#[derive(Clone, Debug)]
pub(crate) struct TornTail {
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The state of a recovery; complete once [`Recovery::run`] is `Ok`.
pub(crate) struct Recovery {
    index: Index,
    pub(crate) memory: Arc<Memory>,
    retention: Retention,
    /// Decrypts values, and counts how they are stored.
    pub(crate) decryptor: Decryptor,
    /// The segments after the snapshot.
    pub(crate) segments: Vec<Segment>,
    /// The salt of the last segment.
    pub(crate) salt: Option<u32>,
    pub(crate) torn: Option<TornTail>,
    /// Files that the snapshot has made obsolete.
    pub(crate) obsolete: Vec<PathBuf>,
    /// Damaged snapshots that an older one and the log replace.
    pub(crate) damaged_snapshots: Vec<String>,
}

impl Recovery {
    pub(crate) fn new(index: Index, retention: &Retention, decryptor: Decryptor) -> Self {
        Self {
            index,
            memory: Arc::new(Memory::empty(retention.clone())),
            retention: retention.clone(),
            decryptor,
            segments: Vec::new(),
            salt: None,
            torn: None,
            obsolete: Vec::new(),
            damaged_snapshots: Vec::new(),
        }
    }

    /// Reads all files.
    pub(crate) fn run(&mut self, listing: &Listing) -> Result<(), OpenError> {
        self.load_snapshot(listing)?;
        let segments = &listing.segments;
        for (place, (first, path)) in segments.iter().enumerate() {
            // A segment ends before the first revision of its successor, whatever follows in it.
            let last = segments.get(place + 1).map(|(next, _)| next.saturating_sub(1));
            let revision = self.revision();
            if last.is_some_and(|last| last <= revision) {
                self.obsolete.push(path.clone());
            } else if *first > revision + 1 {
                return Err(missing(path, 0, revision + 1, first - 1));
            } else {
                self.replay(path, *first, last)?;
            }
        }
        match listing.snapshots.last() {
            // The newest snapshot is damaged, and the log ends before its revision.
            Some((known, path)) if *known > self.revision() => Err(missing(path, 0, self.revision() + 1, *known)),
            _ => Ok(()),
        }
    }

    fn revision(&self) -> Revision {
        self.memory.read().revision()
    }

    /// Loads the newest complete snapshot. An older one is sufficient if the log reaches back to it, which `run` checks.
    fn load_snapshot(&mut self, listing: &Listing) -> Result<(), OpenError> {
        let mut damage = None;
        for (place, (revision, path)) in listing.snapshots.iter().enumerate().rev() {
            let found = snapshot::read(path, self.index, &mut self.decryptor).and_then(|(found, entries)| {
                let why = "revision differs from the file name";
                if found == *revision { Ok(entries) } else { Err(FrameError::Bad { offset: 0, why }) }
            });
            match found {
                Ok(entries) => {
                    self.memory = Arc::new(Memory::of_snapshot(*revision, entries, self.retention.clone()));
                    self.obsolete.extend(listing.snapshots[..place].iter().map(|(_, path)| path.clone()));
                    return Ok(());
                }
                Err(error @ (FrameError::Io(_) | FrameError::Encrypted(_))) => return Err(failed(path, error)),
                Err(error @ FrameError::Bad { .. }) => {
                    self.decryptor.reset();
                    let error = failed(path, error);
                    self.damaged_snapshots.push(error.to_string());
                    damage.get_or_insert(error);
                }
            }
        }
        let log_is_complete = listing.segments.first().is_some_and(|(first, _)| *first <= 2);
        damage.filter(|_| !log_is_complete).map_or(Ok(()), Err)
    }

    fn replay(&mut self, path: &Path, first: Revision, last: Option<Revision>) -> Result<(), OpenError> {
        let mut frames = Frames::open(path, Kind::Log).map_err(|error| failed(path, error))?;
        if frames.header.revision != first {
            return Err(damaged(path, 0, "first revision differs from the file name"));
        }
        loop {
            let offset = frames.offset();
            match frames.next() {
                Ok(None) => break,
                Ok(Some(_)) if last == Some(self.revision()) => break,
                Ok(Some(payload)) => self.apply(payload).map_err(|error| error.at(path, offset))?,
                Err(FrameError::Bad { .. }) if last == Some(self.revision()) => break,
                Err(FrameError::Bad { offset, why }) => {
                    let whole_after = frames.any_after(offset).map_err(|error| failed(path, error.into()))?;
                    if last.is_some() || whole_after {
                        return Err(damaged(path, offset, why));
                    }
                    self.torn = Some(TornTail { file: path.to_owned(), offset, bytes: frames.length() - offset });
                    break;
                }
                Err(error) => return Err(failed(path, error)),
            }
        }
        if let Some(last) = last.filter(|last| self.revision() < *last) {
            return Err(missing(path, frames.offset(), self.revision() + 1, last));
        }
        self.segments.push(Segment { first, path: path.to_owned(), bytes: frames.offset() });
        self.salt = Some(frames.header.salt);
        Ok(())
    }

    /// Publishes the transactions of one frame, except those that the snapshot already has.
    fn apply(&mut self, payload: &[u8]) -> Result<(), ApplyError> {
        let state = self.memory.read();
        let mut batch = Batch::after(state.revision());
        let mut decoder = Decoder::new(payload, self.index, &mut self.decryptor);
        while !decoder.is_done() {
            let record = decoder.txn()?;
            let expected = batch.revision() + 1;
            if record.revision < expected {
                continue;
            }
            if record.revision > expected {
                let why = format!("revision {} found, {expected} expected", record.revision);
                return Err(ApplyError::Damaged(why));
            }
            if batch.add(&state, record.changes).is_empty() {
                return Err(ApplyError::Damaged(format!("revision {expected} changes nothing")));
            }
        }
        drop(state);
        if !batch.events().is_empty() {
            self.memory.publish(batch.revision(), batch.events(), Instant::now());
        }
        Ok(())
    }
}

/// Why a frame cannot be applied.
enum ApplyError {
    Damaged(String),
    Encrypted(DecryptError),
}

impl ApplyError {
    fn at(self, path: &Path, offset: u64) -> OpenError {
        match self {
            Self::Damaged(why) => damaged(path, offset, &why),
            Self::Encrypted(error) => failed(path, FrameError::Encrypted(error)),
        }
    }
}

impl From<Unreadable> for ApplyError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Malformed => Self::Damaged(INVALID_RECORD.to_owned()),
            Unreadable::Encrypted(error) => Self::Encrypted(error),
        }
    }
}

fn damaged(path: &Path, offset: u64, why: &str) -> OpenError {
    OpenError::Damaged { file: path.to_owned(), offset, why: why.to_owned() }
}

fn missing(path: &Path, offset: u64, from: Revision, to: Revision) -> OpenError {
    damaged(path, offset, &format!("revisions {from} to {to} are missing"))
}

fn failed(path: &Path, error: FrameError) -> OpenError {
    match error {
        FrameError::Io(source) => OpenError::Io { path: path.to_owned(), source },
        FrameError::Bad { offset, why } => damaged(path, offset, why),
        FrameError::Encrypted(why) => OpenError::Encryption { file: path.to_owned(), why },
    }
}
