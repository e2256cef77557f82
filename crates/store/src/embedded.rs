//! The embedded store: open, close, and the [`Store`] trait on top of memory and writer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::SystemTime;

use api::facts::Facts;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use crate::compaction::{self, Compaction};
use crate::data_dir::{DataDir, FORMAT_ENCRYPTED, FORMAT_PLAIN, snapshot_path};
use crate::disk::{self, Disk};
use crate::encryption::{DecryptError, Decryptor, Encryption, Encryptor};
use crate::expiry::Expiry;
use crate::history::Retention;
use crate::log::Log;
use crate::memory::Memory;
use crate::queue::{Message, Queue};
use crate::recover::Recovery;
use crate::rotation::{Published, Rotation, RotationError};
use crate::snapshot;
use crate::stats::{Counters, Stats};
use crate::writer::{Writer, copied};
use crate::{CommitError, Compacted, Entry, Key, Op, Range, Revision, Store, Table, TableSize, Txn, Watch};

/// The largest transaction in bytes; far above what the API accepts.
const MAX_TXN: usize = 64 << 20;

/// Returns the facts of a stored value, given the name of its table; used when the store is opened.
pub type Index = fn(table: &str, value: &[u8]) -> Facts;

/// The wall clock, by which entries expire.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Options of a store. The default suits a server.
#[derive(Clone)]
pub struct Options {
    /// How much history is retained.
    pub retention: Retention,
    /// The log is compacted when it is longer than this, in bytes, and longer than twice the size of the entries.
    pub compact_after: u64,
    /// The wall clock.
    pub clock: Clock,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The first revision of a new store. Earlier revisions count as compacted, so that clients of another store list again.
    pub first_revision: Revision,
    /// Which values are encrypted in files, and with which keys.
    pub encryption: Arc<Encryption>,
}

impl Default for Options {
    fn default() -> Self {
        #[allow(clippy::disallowed_methods, reason = "the one place where the store's clock is the machine's")]
        let clock = Arc::new(SystemTime::now);
        Self {
            retention: Retention::default(),
            compact_after: 16 << 20,
            clock,
            disk: Arc::new(disk::Real),
            first_revision: 1,
            encryption: Arc::default(),
        }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// A newer version of the program wrote it.
    #[error("{} has format {found}, this program supports up to {known}; use the newer version that wrote it", dir.display())]
    Format {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The newest supported format.
        known: u32,
    },
    /// A file is damaged.
    #[error(
        "{}: damaged at byte {offset}: {why}; restore a backup into an empty directory with `waypost store restore`",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A value cannot be read with the encryption configuration that was given.
    #[error("{}: {why}", file.display())]
    Encryption {
        /// The file.
        file: PathBuf,
        /// The first such value, and why.
        why: DecryptError,
    },
    /// An I/O error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A store in memory and in a directory of its own.
pub struct Embedded {
    memory: Arc<Memory>,
    counters: Arc<Counters>,
    queue: Sender<Message>,
    disk: Arc<dyn Disk>,
    running: Mutex<Option<Running>>,
    published: Arc<Published>,
}

/// Dropped when the store is closed. The directory stays locked until the writer has ended.
struct Running {
    writer: JoinHandle<()>,
    _data_dir: DataDir,
}

// === impl Embedded ===

impl Embedded {
    /// Opens the store in a directory, creating it if needed, and recovers acknowledged transactions.
    ///
    /// # Errors
    ///
    /// When the directory is in use, cannot be read or is damaged, or the key of a value is missing.
    pub fn open(dir: impl AsRef<Path>, index: Index, options: Options) -> Result<Self, OpenError> {
        let Options { retention, compact_after, clock, disk, first_revision, encryption } = options;
        let data_dir = DataDir::lock(dir.as_ref())?;
        let failed = |source| OpenError::Io { path: data_dir.dir().to_owned(), source };
        let mut listing = data_dir.list()?;
        data_dir.check_format(&listing)?;
        if first_revision > 1 && listing.is_empty() {
            let path = snapshot_path(data_dir.dir(), first_revision);
            let mut encryptor = Encryptor::new(Arc::clone(&encryption));
            snapshot::write(&*disk, &path, first_revision, &[], &mut encryptor).map_err(failed)?;
            listing = data_dir.list()?;
        }
        let mut recovery = Recovery::new(index, &retention, Decryptor::new(Arc::clone(&encryption)));
        recovery.run(&listing)?;
        report(&recovery);

        let rotation = Rotation::new(Arc::clone(&encryption), recovery.decryptor.tally());
        data_dir.write_format(&*disk, if encryption.encrypts() { FORMAT_ENCRYPTED } else { FORMAT_PLAIN })?;
        let counters = Arc::new(Counters::default());
        let mut log = Log::new(Arc::clone(&disk), data_dir.dir(), Arc::clone(&counters));
        log.resume(recovery.segments, recovery.salt).map_err(failed)?;
        let leftover =
            compaction::remove(&*disk, recovery.obsolete.iter().chain(&listing.unfinished).map(PathBuf::as_path));

        let mut expiry = Expiry::default();
        recovery.memory.read().entries().for_each(|entry| expiry.track(entry));
        let newest_snapshot = listing.snapshots.last().map(|(revision, _)| *revision);
        let (pending, _) = watch::channel(rotation.is_due());
        let published = Arc::new(Published { encryption: RwLock::new(Arc::clone(&encryption)), pending });
        let (queue, receiver) = mpsc::channel();
        let writer = Writer {
            memory: Arc::clone(&recovery.memory),
            log,
            queue: Queue::new(receiver),
            sender: queue.clone(),
            counters: Arc::clone(&counters),
            expiry,
            compaction: Compaction::new(compact_after, newest_snapshot),
            disk: Arc::clone(&disk),
            dir: data_dir.dir().to_owned(),
            clock,
            failing: false,
            encryptor: Encryptor::new(encryption),
            rotation,
            published: Arc::clone(&published),
            leftover,
        };
        let writer = Builder::new().name("waypost-store-writer".into()).spawn(move || writer.run()).map_err(failed)?;
        let running = Mutex::new(Some(Running { writer, _data_dir: data_dir }));
        Ok(Self { memory: recovery.memory, counters, queue, disk, running, published })
    }

    /// Finishes queued transactions, stops the writer and unlocks the directory. Reads still work afterwards; commits
    /// fail with [`CommitError::Closed`]. Blocks on the disk.
    pub fn close(&self) {
        let Some(running) = self.running.lock().take() else { return };
        // Fails if the writer has already ended.
        let _ = self.queue.send(Message::Stop);
        if running.writer.join().is_err() {
            tracing::error!("store writer panicked");
        }
    }

    /// Changes the encryption configuration of the running store. Once this returns, new values are written with it; existing
    /// files are rewritten in the background, after which [`Embedded::reencrypted`] returns.
    ///
    /// # Errors
    ///
    /// When a stored value could not be read with it; the previous configuration stays in use.
    pub fn set_encryption(&self, encryption: Encryption) -> BoxFuture<'static, Result<(), RotationError>> {
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Message::Encrypt((Arc::new(encryption), reply))).is_err() {
            return std::future::ready(Err(RotationError::Closed)).boxed();
        }
        answer.map(|answer| answer.unwrap_or(Err(RotationError::Closed))).boxed()
    }

    /// The current encryption configuration.
    #[must_use]
    pub fn encryption(&self) -> Arc<Encryption> {
        Arc::clone(&self.published.encryption.read())
    }

    /// Returns when no file holds a value written under another encryption configuration.
    pub async fn reencrypted(&self) {
        // The sender exists as long as the store.
        let _ = self.published.pending.subscribe().wait_for(|pending| !pending).await;
    }

    /// The current statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.memory.read();
        Stats {
            entries: state.counts().map(|(_, entries)| entries as u64).sum(),
            events_kept: state.events_kept() as u64,
            watchers: self.memory.watcher_count(),
            reencrypting: u64::from(*self.published.pending.borrow()),
            secrets_encrypted: u64::from(self.published.encryption.read().encrypts_resource("secrets", "")),
            ..self.counters.read()
        }
    }

    /// All entries at one revision.
    pub(crate) fn view(&self) -> (Revision, Vec<Arc<Entry>>) {
        let state = self.memory.read();
        (state.revision(), state.entries().cloned().collect())
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }
}

impl Store for Embedded {
    fn revision(&self) -> Revision {
        self.memory.read().revision()
    }

    fn compacted(&self) -> Revision {
        self.memory.read().compacted()
    }

    fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.memory.read().get(key).cloned()
    }

    fn range(&self, table: Table, prefix: &str, at: Option<Revision>) -> Result<Range, Compacted> {
        self.memory.range(table, prefix, at)
    }

    fn size(&self, table: Table) -> TableSize {
        self.memory.read().size(table)
    }

    fn commit(&self, mut txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>> {
        let bytes = txn.size();
        if bytes > MAX_TXN {
            return std::future::ready(Err(CommitError::TooLarge { bytes })).boxed();
        }
        for op in &mut txn.ops {
            if let Op::Put { value, .. } = op {
                *value = copied(value);
            }
        }
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Message::Commit(txn, reply)).is_err() {
            return std::future::ready(Err(CommitError::Closed)).boxed();
        }
        answer.map(|answer| answer.unwrap_or(Err(CommitError::Closed))).boxed()
    }

    fn watch(&self, table: Table, prefix: &str, after: Revision) -> Result<Watch, Compacted> {
        Watch::start(Arc::clone(&self.memory), table, prefix, after)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

fn report(recovery: &Recovery) {
    if let Some(torn) = &recovery.torn {
        tracing::warn!(file = %torn.file.display(), offset = torn.offset, bytes = torn.bytes,
            "truncate torn write at the end of the log: it was never acknowledged");
    }
    for damage in &recovery.damaged_snapshots {
        tracing::warn!(%damage, "skip damaged snapshot: an older one and the log replace it");
    }
}
