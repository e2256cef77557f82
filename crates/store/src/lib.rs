//! The storage of the API server: revisions, transactions, watches.
//!
//! In: transactions ([`Store::commit`]). Out: entries ([`Store::get`], [`Store::range`]) and events in order ([`Store::watch`]). One
//! counter, the revision, numbers all changes. The interface is that of etcd, so that etcd can implement the same trait:
//! compare on revisions, several operations in one transaction, watch from a revision, compaction of history.
//!
//! [`Embedded`] keeps everything in memory and every acknowledged transaction on disk:
//!
//! ```text
//! commit ─▶ writer thread: compare, stage ─▶ log: one write, one fdatasync ─▶ memory: publish ─▶ reply
//!                                                                               ├─▶ get, range
//!                                                                               └─▶ watch
//! ```
//! Changes become visible after they are durable. Readers never wait for the disk.

pub mod admission;
pub mod allocation;
mod batch;
mod compaction;
mod data_dir;
pub mod disk;
mod embedded;
pub mod encryption;
mod expiry;
mod followed;
mod frame;
mod history;
mod key;
mod kinds;
mod log;
mod memory;
mod node_port_ranges;
mod queue;
mod record;
mod recover;
mod rotation;
mod snapshot;
mod stats;
pub mod tools;
mod txn;
mod watch;
mod writer;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use embedded::{Clock, Embedded, Index, OpenError, Options};
pub use encryption::Encryption;
pub use followed::{Current, Followed};
pub use history::Retention;
pub use key::{Entry, Event, Key, Table};
pub use kinds::KindCatalog;
pub use rotation::RotationError;
pub use stats::Stats;
pub use txn::{CommitError, Compare, Op, Txn};
pub use watch::Watch;

/// Numbers the changes of the whole store. An empty store is at 1, so its first change is 2.
pub type Revision = u64;

/// The revision has been compacted; read the current state and watch from its revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("revision {requested} has been compacted, the oldest is {oldest}")]
pub struct Compacted {
    /// The requested revision.
    pub requested: Revision,
    /// The oldest revision that can be read.
    pub oldest: Revision,
}

/// The entries of a range at one revision.
#[derive(Clone, Debug)]
pub struct Range {
    /// The entries, in the order of their names.
    pub entries: Vec<Arc<Entry>>,
    /// The newest revision at the time of the read; a watch after it misses no change to the current state.
    pub revision: Revision,
}

/// The size of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSize {
    /// The number of its entries.
    pub entries: usize,
    /// The size of their values, in bytes.
    pub bytes: usize,
}

/// A store of entries. Reads are served from memory; only `commit` waits.
pub trait Store: Send + Sync {
    /// The newest published revision.
    fn revision(&self) -> Revision;

    /// Every table can be read and watched from this revision on.
    fn compacted(&self) -> Revision;

    /// The current entry of a key.
    fn get(&self, key: &Key) -> Option<Arc<Entry>>;

    /// All entries of a table whose name starts with `prefix`, now or `at` an older revision. A future revision reads the
    /// current state.
    fn range(&self, table: Table, prefix: &str, at: Option<Revision>) -> Result<Range, Compacted>;

    /// The current size of a table. Implementations may count while writing instead of reading every entry.
    fn size(&self, table: Table) -> TableSize {
        let entries = self.range(table, "", None).map_or_else(|_| Vec::new(), |range| range.entries);
        TableSize { entries: entries.len(), bytes: entries.iter().map(|entry| entry.value.len()).sum() }
    }

    /// Applies a transaction: all of it or nothing. Returns revision R: each change has a revision that is at most R and greater than
    /// every revision before the transaction, and a read at R or later sees all changes. Changes may share a revision or not (see
    /// [`Txn`]). A transaction that changes nothing returns the current revision. Transactions are queued in the order of
    /// calls; dropping the future does not cancel the transaction.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// Every change after a revision to entries of a table whose name starts with `prefix`.
    fn watch(&self, table: Table, prefix: &str, after: Revision) -> Result<Watch, Compacted>;
}
