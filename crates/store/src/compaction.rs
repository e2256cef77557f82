//! Keeps the log short: a snapshot of what is, then the segments before it can go.
//!
//! The writer moves on to a fresh segment and hands over pointers to all entries; a thread of its own writes them
//! out while commits go on. At every moment the files on disk are enough: old segments go only after the snapshot is
//! durable under its name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::disk::Disk;
use crate::home::snapshot_path;
use crate::{Entry, Revision, snapshot};

/// After a failure, the log must grow by this before it is tried again.
const RETRY_AFTER: u64 = 1 << 20;

/// What one snapshot needs.
pub(crate) struct Job {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) revision: Revision,
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Segments that hold nothing after the snapshot's revision.
    pub(crate) segments: Vec<PathBuf>,
    /// The snapshot before, if there is one.
    pub(crate) previous: Option<Revision>,
}

/// When to write a snapshot.
pub(crate) struct Compaction {
    /// The log may always be this long.
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

    /// Whether the log has outgrown what it describes.
    pub(crate) fn is_due(&self, log_bytes: u64, live_bytes: u64) -> bool {
        self.running.is_none() && log_bytes > self.least.max(2 * live_bytes).max(self.retry_at)
    }

    /// Writes the snapshot in the background; `done` is called from there.
    pub(crate) fn start(
        &mut self,
        job: Job,
        done: impl FnOnce(io::Result<Revision>) + Send + 'static,
    ) -> io::Result<()> {
        let run = move || done(job.run().map(|()| job.revision));
        self.running = Some(Builder::new().name("waypost-store-snapshot".into()).spawn(run)?);
        Ok(())
    }

    /// Takes note of how the snapshot ended.
    pub(crate) fn ended(&mut self, result: &io::Result<Revision>, log_bytes: u64) {
        self.join();
        match result {
            Ok(revision) => {
                self.newest = Some(*revision);
                self.retry_at = 0;
            }
            Err(error) => self.failed(error, log_bytes),
        }
    }

    /// Takes note that no snapshot could be written.
    pub(crate) fn failed(&mut self, error: &io::Error, log_bytes: u64) {
        tracing::warn!(%error, "the log cannot be compacted yet");
        self.retry_at = log_bytes + RETRY_AFTER;
    }

    /// Waits for a snapshot that is being written.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.running.take()
            && thread.join().is_err()
        {
            tracing::error!("the snapshot thread panicked");
        }
    }
}

impl Job {
    fn run(&self) -> io::Result<()> {
        let path = snapshot_path(&self.dir, self.revision);
        snapshot::write(&*self.disk, &path, self.revision, &self.entries)?;
        let previous = self.previous.filter(|previous| *previous < self.revision);
        let previous = previous.map(|previous| snapshot_path(&self.dir, previous));
        remove(&*self.disk, self.segments.iter().chain(&previous).map(PathBuf::as_path));
        Ok(())
    }
}

/// Removes files nobody needs any more; what cannot be removed costs room and nothing else.
pub(crate) fn remove<'a>(disk: &dyn Disk, paths: impl Iterator<Item = &'a Path>) {
    for path in paths {
        match disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %path.display(), %error, "cannot remove an old file");
            }
            _ => {}
        }
    }
}
