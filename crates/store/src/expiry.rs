//! Time to live: which entries expire, and when.
//!
//! In: published entries. Out: expired keys, with the revision they must still have. Deadlines are wall-clock times, because they
//! outlive the process.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use crate::{Compare, Entry, Key, Revision};

/// The largest number of deletions in one batch, which bounds the latency of commits.
const MAX_PER_BATCH: usize = 500;
/// The delay before deletions are retried after a batch failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// See the module. A replaced version stays until its deadline and is then skipped by its revision.
#[derive(Default)]
pub(crate) struct Expiry {
    /// Deadline in milliseconds since 1970, revision of the version, key.
    deadlines: BTreeSet<(u64, Revision, Key)>,
    not_before: Option<SystemTime>,
}

impl Expiry {
    /// Tracks an entry, if it expires.
    pub(crate) fn track(&mut self, entry: &Entry) {
        if let Some(millis) = entry.expires {
            self.deadlines.insert((millis.get(), entry.modified, entry.key.clone()));
        }
    }

    /// The expired versions, at most [`MAX_PER_BATCH`].
    pub(crate) fn due(&mut self, now: SystemTime) -> Vec<Compare> {
        let mut due = Vec::new();
        if self.not_before.is_some_and(|then| now < then) {
            return due;
        }
        self.not_before = None;
        while due.len() < MAX_PER_BATCH
            && self.deadlines.first().is_some_and(|(at, ..)| *at <= millis(now))
            && let Some((_, modified, key)) = self.deadlines.pop_first()
        {
            due.push(Compare { key, modified });
        }
        due
    }

    /// Schedules failed deletions again, after [`RETRY_DELAY`].
    pub(crate) fn retry(&mut self, failed: Vec<Compare>, now: SystemTime) {
        if !failed.is_empty() {
            self.deadlines.extend(failed.into_iter().map(|Compare { key, modified }| (0, modified, key)));
            self.not_before = Some(now + RETRY_DELAY);
        }
    }

    /// The time until the next deadline.
    pub(crate) fn wait(&self, now: SystemTime) -> Option<Duration> {
        let (next, ..) = self.deadlines.first()?;
        let delay = self.not_before.and_then(|then| then.duration_since(now).ok()).unwrap_or_default();
        Some(Duration::from_millis(next.saturating_sub(millis(now))).max(delay))
    }
}

/// The deadline of an entry with this time to live.
pub(crate) fn deadline(now: SystemTime, ttl: Duration) -> Option<NonZeroU64> {
    NonZeroU64::new(millis(now).saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
