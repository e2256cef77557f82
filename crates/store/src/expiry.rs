//! Which entries end by themselves, and when.
//!
//! Events flow in as they are published; keys whose time has come flow out, with the revision they must still have.
//! Deadlines are wall-clock times, because they outlive the process.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use crate::{Compare, Entry, Key, Revision};

/// No more than so many are deleted in one batch, to leave room for writers.
const AT_ONCE: usize = 500;
/// After a batch failed, deleting waits this long before it is tried again.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module. A version that was replaced stays here until its time and is then skipped by its revision.
#[derive(Default)]
pub(crate) struct Expiry {
    /// Time in milliseconds, the version's revision, its key; the next one first.
    deadlines: BTreeSet<(u64, Revision, Key)>,
    not_before: Option<SystemTime>,
}

impl Expiry {
    /// Takes note of an entry, if it ends.
    pub(crate) fn note(&mut self, entry: &Entry) {
        if let Some(millis) = entry.expires {
            self.deadlines.insert((millis.get(), entry.modified, entry.key.clone()));
        }
    }

    /// What is due by now.
    pub(crate) fn due(&mut self, now: SystemTime) -> Vec<Compare> {
        let mut due = Vec::new();
        if self.not_before.is_some_and(|then| now < then) {
            return due;
        }
        self.not_before = None;
        while due.len() < AT_ONCE
            && self.deadlines.first().is_some_and(|(at, ..)| *at <= millis(now))
            && let Some((_, modified, key)) = self.deadlines.pop_first()
        {
            due.push(Compare { key, modified });
        }
        due
    }

    /// They could not be deleted: they are due again, a little later.
    pub(crate) fn put_back(&mut self, failed: Vec<Compare>, now: SystemTime) {
        if !failed.is_empty() {
            self.deadlines.extend(failed.into_iter().map(|Compare { key, modified }| (0, modified, key)));
            self.not_before = Some(now + PATIENCE);
        }
    }

    /// How long nothing will be due.
    pub(crate) fn wait(&self, now: SystemTime) -> Option<Duration> {
        let (next, ..) = self.deadlines.first()?;
        let patience = self.not_before.and_then(|then| then.duration_since(now).ok()).unwrap_or_default();
        Some(Duration::from_millis(next.saturating_sub(millis(now))).max(patience))
    }
}

/// When an entry with this time to live ends.
pub(crate) fn deadline(now: SystemTime, ttl: Duration) -> Option<NonZeroU64> {
    NonZeroU64::new(millis(now).saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
