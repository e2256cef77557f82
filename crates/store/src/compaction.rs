//! Log compaction: writes a snapshot, then removes the segments before it.
//!
//! The writer begins a new segment and passes pointers to all entries to a thread, which writes them while commits continue. The
//! files on disk are complete at any time: old segments are removed only after the snapshot is durable under its name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::data_dir::snapshot_path;
use crate::disk::{Disk, sync_parent};
use crate::encryption::{Encryption, Encryptor};
use crate::{Entry, Revision, snapshot};

/// After a failure, the log must grow by this many bytes before the next attempt.
const RETRY_AFTER: u64 = 1 << 20;

/// The input of one snapshot.
pub(crate) struct Job {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Files to remove afterwards: segments that hold nothing after the revision, and what could not be removed before.
    pub(crate) obsolete: Vec<PathBuf>,
    /// The previous snapshot.
    pub(crate) previous: Option<Revision>,
    pub(crate) encryption: Arc<Encryption>,
    /// The generation of the encryption configuration.
    pub(crate) generation: u64,
}

/// A finished snapshot.
pub(crate) struct Written {
    pub(crate) revision: Revision,
    pub(crate) generation: u64,
    /// Obsolete files that still exist, or may reappear after a crash.
    pub(crate) left: Vec<PathBuf>,
}

/// Decides when to write a snapshot.
pub(crate) struct Compaction {
    /// A log shorter than this is not compacted, in bytes.
    least: u64,
    running: Option<JoinHandle<()>>,
    /// After a failure: the length of the log at which to try again.
    retry_at: u64,
    /// The newest snapshot on disk.
    pub(crate) newest: Option<Revision>,
}

impl Compaction {
    pub(crate) const fn new(least: u64, newest: Option<Revision>) -> Self {
        Self { least, running: None, retry_at: 0, newest }
    }

    /// Whether no snapshot is being written.
    pub(crate) const fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Whether the log is long enough to be compacted.
    pub(crate) fn is_due(&self, log_bytes: u64, live_bytes: u64) -> bool {
        self.is_idle() && log_bytes > self.least.max(2 * live_bytes).max(self.retry_at)
    }

    /// Writes the snapshot in the background; `done` is called from there.
    pub(crate) fn start(
        &mut self,
        job: Job,
        done: impl FnOnce(io::Result<Written>) + Send + 'static,
    ) -> io::Result<()> {
        let run = move || done(job.run());
        self.running = Some(Builder::new().name("waypost-store-snapshot".into()).spawn(run)?);
        Ok(())
    }

    /// Records the result of a snapshot.
    pub(crate) fn ended(&mut self, result: &io::Result<Written>, log_bytes: u64) {
        self.join();
        match result {
            Ok(written) => {
                self.newest = Some(written.revision);
                self.retry_at = 0;
            }
            Err(error) => self.failed(error, log_bytes),
        }
    }

    /// Records a failure.
    pub(crate) fn failed(&mut self, error: &io::Error, log_bytes: u64) {
        tracing::warn!(%error, "cannot compact the log: retrying when it has grown");
        self.retry_at = log_bytes + RETRY_AFTER;
    }

    /// Waits for a snapshot that is being written.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.running.take()
            && thread.join().is_err()
        {
            tracing::error!("snapshot thread panicked");
        }
    }
}

impl Job {
    fn run(self) -> io::Result<Written> {
        let Self { disk, dir, revision, entries, mut obsolete, previous, encryption, generation } = self;
        let path = snapshot_path(&dir, revision);
        snapshot::write(&*disk, &path, revision, &entries, &mut Encryptor::new(encryption))?;
        let previous = previous.filter(|previous| *previous < revision);
        obsolete.extend(previous.map(|previous| snapshot_path(&dir, previous)));
        let mut left = remove(&*disk, obsolete.iter().map(PathBuf::as_path));
        if let Err(error) = sync_parent(&path) {
            tracing::warn!(dir = %dir.display(), %error, "cannot sync the directory after removing obsolete files");
            left = obsolete;
        }
        Ok(Written { revision, generation, left })
    }
}

/// Removes obsolete files and returns those that it could not remove.
pub(crate) fn remove<'a>(disk: &dyn Disk, paths: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for path in paths {
        match disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %path.display(), %error, "cannot remove obsolete file");
                left.push(path.to_owned());
            }
            _ => {}
        }
    }
    left
}
