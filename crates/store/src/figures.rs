//! What the store counts about itself. The writer counts; the server reads and publishes under its own names.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How the store is doing. Counters start at zero when the store is opened.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Figures {
    /// Transactions that changed something.
    pub commits: u64,
    /// Transactions refused because a condition did not hold.
    pub conflicts: u64,
    /// Transactions refused because they could not be written.
    pub failures: u64,
    /// Writes to the log; each holds one or more commits.
    pub batches: u64,
    /// Times the log was made durable.
    pub fsyncs: u64,
    /// Seconds spent making the log durable.
    pub fsync_seconds_total: f64,
    /// Bytes written to the log.
    pub bytes_written: u64,
    /// Entries now.
    pub entries: u64,
    /// Events in memory now.
    pub events_kept: u64,
    /// Watches now.
    pub watchers: u64,
    /// Bytes of log that a restart would read now.
    pub log_bytes: u64,
    /// Snapshots written.
    pub snapshots: u64,
    /// Times all files were written anew because the encryption configuration changed.
    pub reencryptions: u64,
    /// 1 while files may hold what another encryption configuration wrote, else 0.
    pub reencrypting: u64,
    /// 1 while Secrets are encrypted when they are written, else 0.
    pub secrets_encrypted: u64,
}

/// The part that is counted as it happens.
#[derive(Default)]
pub(crate) struct Counters {
    commits: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
    batches: AtomicU64,
    fsyncs: AtomicU64,
    fsync_nanos: AtomicU64,
    bytes_written: AtomicU64,
    log_bytes: AtomicU64,
    snapshots: AtomicU64,
    reencryptions: AtomicU64,
}

impl Counters {
    pub(crate) fn commit(&self) {
        self.commits.fetch_add(1, Relaxed);
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.fetch_add(1, Relaxed);
    }

    pub(crate) fn failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.fsyncs.fetch_add(1, Relaxed);
        self.fsync_nanos.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: usize) {
        self.batches.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn log_is(&self, bytes: u64) {
        self.log_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn snapshot(&self) {
        self.snapshots.fetch_add(1, Relaxed);
    }

    pub(crate) fn reencryption(&self) {
        self.reencryptions.fetch_add(1, Relaxed);
    }

    /// The counted part of the figures.
    pub(crate) fn read(&self) -> Figures {
        Figures {
            commits: self.commits.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            failures: self.failures.load(Relaxed),
            batches: self.batches.load(Relaxed),
            fsyncs: self.fsyncs.load(Relaxed),
            fsync_seconds_total: Duration::from_nanos(self.fsync_nanos.load(Relaxed)).as_secs_f64(),
            bytes_written: self.bytes_written.load(Relaxed),
            log_bytes: self.log_bytes.load(Relaxed),
            snapshots: self.snapshots.load(Relaxed),
            reencryptions: self.reencryptions.load(Relaxed),
            ..Figures::default()
        }
    }
}
