//! The store in this process: opening, closing, and the [`Store`] trait on top of memory and writer.

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
use crate::disk::{self, Disk};
use crate::encryption::{DecryptError, Decryptor, Encryption, Encryptor};
use crate::expiry::Expiry;
use crate::figures::{Counters, Figures};
use crate::history::Keep;
use crate::home::{FORMAT_ENCRYPTED, FORMAT_PLAIN, Home, snapshot_path};
use crate::log::Log;
use crate::memory::Memory;
use crate::queue::{Message, Queue};
use crate::recover::Recovery;
use crate::rotation::{Published, Rotation, RotationError};
use crate::snapshot;
use crate::writer::{Writer, alone};
use crate::{CommitError, Compacted, Entry, Key, Op, Range, Revision, Store, Table, TableSize, Txn, Watch};

/// No transaction may be larger; far above what the API accepts.
const MAX_TXN: usize = 64 << 20;

/// Takes the facts out of a stored value, given its table's name; used when the store is opened.
pub type Index = fn(table: &str, value: &[u8]) -> Facts;

/// Tells the time of day, by which entries expire.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// How a store behaves. The default suits a server.
#[derive(Clone)]
pub struct Options {
    /// How much history is kept.
    pub keep: Keep,
    /// The log is not compacted before it is so many bytes long (nor before it is twice what it describes).
    pub compact_after: u64,
    /// The time of day.
    pub clock: Clock,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Where a new store begins to count. Revisions before it were never given out here: whoever has one got it elsewhere,
    /// and is told to start again.
    pub first_revision: Revision,
    /// Which values are encrypted in files, and with which keys.
    pub encryption: Arc<Encryption>,
}

impl Default for Options {
    fn default() -> Self {
        #[allow(clippy::disallowed_methods, reason = "the one place where the store's clock is the machine's")]
        let clock = Arc::new(SystemTime::now);
        Self {
            keep: Keep::default(),
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
    /// Somebody has it open.
    #[error("{} is in use by another process", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// A version of the program that is not this one wrote it.
    #[error("{} has format {found}, this program knows {known}; use the newer program that wrote it", dir.display())]
    Format {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// A file is not what was written.
    #[error(
        "{}: damaged at byte {offset}: {why}; bring back a backup into an empty directory with `waypost store restore`",
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
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
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

/// What lives until the store is closed. The directory stays locked until the writer has ended.
struct Running {
    writer: JoinHandle<()>,
    _home: Home,
}

// === impl Embedded ===

impl Embedded {
    /// Opens the store in a directory, making it if need be, and recovers what was acknowledged.
    ///
    /// # Errors
    ///
    /// When the directory is in use, cannot be read, holds something that cannot be trusted, or a value whose key is missing.
    pub fn open(dir: impl AsRef<Path>, index: Index, options: Options) -> Result<Self, OpenError> {
        let Options { keep, compact_after, clock, disk, first_revision, encryption } = options;
        let home = Home::lock(dir.as_ref())?;
        let failed = |source| OpenError::Io { path: home.dir().to_owned(), source };
        let mut listing = home.list()?;
        home.check_format(&listing)?;
        if first_revision > 1 && listing.is_empty() {
            let path = snapshot_path(home.dir(), first_revision);
            let mut encryptor = Encryptor::new(Arc::clone(&encryption));
            snapshot::write(&*disk, &path, first_revision, &[], &mut encryptor).map_err(failed)?;
            listing = home.list()?;
        }
        let mut found = Recovery::new(index, &keep, Decryptor::new(Arc::clone(&encryption)));
        found.run(&listing)?;
        report(&found);

        let rotation = Rotation::new(Arc::clone(&encryption), found.decryptor.tally());
        home.write_format(&*disk, if encryption.encrypts() { FORMAT_ENCRYPTED } else { FORMAT_PLAIN })?;
        let counters = Arc::new(Counters::default());
        let mut log = Log::new(Arc::clone(&disk), home.dir(), Arc::clone(&counters));
        log.resume(found.segments, found.salt).map_err(failed)?;
        let leftover =
            compaction::remove(&*disk, found.obsolete.iter().chain(&listing.unfinished).map(PathBuf::as_path));

        let mut expiry = Expiry::default();
        found.memory.read().entries().for_each(|entry| expiry.note(entry));
        let newest_snapshot = listing.snapshots.last().map(|(revision, _)| *revision);
        let (pending, _) = watch::channel(rotation.is_due());
        let published = Arc::new(Published { encryption: RwLock::new(Arc::clone(&encryption)), pending });
        let (queue, receiver) = mpsc::channel();
        let writer = Writer {
            memory: Arc::clone(&found.memory),
            log,
            queue: Queue::new(receiver),
            mailbox: queue.clone(),
            counters: Arc::clone(&counters),
            expiry,
            compaction: Compaction::new(compact_after, newest_snapshot),
            disk: Arc::clone(&disk),
            dir: home.dir().to_owned(),
            clock,
            failing: false,
            encryptor: Encryptor::new(encryption),
            rotation,
            published: Arc::clone(&published),
            leftover,
        };
        let writer = Builder::new().name("waypost-store-writer".into()).spawn(move || writer.run()).map_err(failed)?;
        let running = Mutex::new(Some(Running { writer, _home: home }));
        Ok(Self { memory: found.memory, counters, queue, disk, running, published })
    }

    /// Answers what was asked for, ends the writer and frees the directory. Reads still work afterwards; commits
    /// are [`CommitError::Closed`]. Blocks for as long as the disk does.
    pub fn close(&self) {
        let Some(running) = self.running.lock().take() else { return };
        // If nobody hears it, the writer has already ended.
        let _ = self.queue.send(Message::Stop);
        if running.writer.join().is_err() {
            tracing::error!("the writer of the store panicked");
        }
    }

    /// Goes on with another encryption configuration while the store is in use. From the answer on, new values are written by
    /// it; what is in files already is written anew in the background, after which [`Embedded::rewritten`] comes back.
    ///
    /// # Errors
    ///
    /// When something stored could not be read with it; then the configuration before stays in use.
    pub fn set_encryption(&self, encryption: Encryption) -> BoxFuture<'static, Result<(), RotationError>> {
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Message::Encrypt((Arc::new(encryption), reply))).is_err() {
            return std::future::ready(Err(RotationError::Closed)).boxed();
        }
        answer.map(|answer| answer.unwrap_or(Err(RotationError::Closed))).boxed()
    }

    /// The encryption configuration that is in use.
    #[must_use]
    pub fn encryption(&self) -> Arc<Encryption> {
        Arc::clone(&self.published.encryption.read())
    }

    /// Comes back when no file holds a value that another encryption configuration wrote.
    pub async fn rewritten(&self) {
        // The sender lives as long as the store.
        let _ = self.published.pending.subscribe().wait_for(|pending| !pending).await;
    }

    /// How the store is doing.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.memory.read();
        Figures {
            entries: state.counts().map(|(_, entries)| entries as u64).sum(),
            events_kept: state.events_kept() as u64,
            watchers: self.memory.watcher_count(),
            reencrypting: u64::from(*self.published.pending.borrow()),
            secrets_encrypted: u64::from(self.published.encryption.read().encrypts_resource("secrets", "")),
            ..self.counters.read()
        }
    }

    /// Everything there is, at one revision.
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
                *value = alone(value);
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

fn report(found: &Recovery) {
    if let Some(torn) = &found.torn {
        tracing::warn!(file = %torn.file.display(), offset = torn.offset, bytes = torn.bytes,
            "the last write was torn by a crash and is cut off; nobody was told that it is durable");
    }
    for avoided in &found.avoided {
        tracing::warn!(%avoided, "an older snapshot and the log replace a damaged snapshot");
    }
}
