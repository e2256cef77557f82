//! Counters and gauges of the store. The writer updates them; the server exports them as metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A reading of all statistics. Counters start at zero when the store is opened.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stats {
    /// Committed transactions that changed something.
    pub commits: u64,
    /// Transactions refused because a condition did not hold.
    pub conflicts: u64,
    /// Transactions refused because they could not be written.
    pub failures: u64,
    /// Writes to the log; each holds one or more commits.
    pub batches: u64,
    /// Calls of fdatasync on the log.
    pub fsyncs: u64,
    /// Seconds spent in fdatasync.
    pub fsync_seconds_total: f64,
    /// Bytes written to the log.
    pub bytes_written: u64,
    /// Current entries.
    pub entries: u64,
    /// Events currently in memory.
    pub events_kept: u64,
    /// Current watches.
    pub watchers: u64,
    /// Current size of the log, which a restart reads, in bytes.
    pub log_bytes: u64,
    /// Snapshots written.
    pub snapshots: u64,
    /// Rewrites of all files after changes of the encryption configuration.
    pub reencryptions: u64,
    /// 1 while files may hold values written under another encryption configuration, else 0.
    pub reencrypting: u64,
    /// 1 while new Secrets are encrypted, else 0.
    pub secrets_encrypted: u64,
}

/// The live counters.
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

    pub(crate) fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn snapshot(&self) {
        self.snapshots.fetch_add(1, Relaxed);
    }

    pub(crate) fn reencryption(&self) {
        self.reencryptions.fetch_add(1, Relaxed);
    }

    /// The current values of the counters; gauges are zero.
    pub(crate) fn read(&self) -> Stats {
        Stats {
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
            ..Stats::default()
        }
    }
}
