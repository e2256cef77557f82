//! Revisions, transactions and watch: where every object lives.
//!
//! Transactions flow in through [`Store::commit`]; entries flow out through [`Store::get`] and [`Store::range`], and
//! every change flows out once more, in order, through [`Store::watch`]. One counter, the revision, numbers all
//! changes. The shape is that of etcd, so that etcd can stand behind the same trait: compare on revisions, several
//! operations in one transaction, watch from a revision, history that is forgotten after a while.
//!
//! [`Embedded`] keeps everything in memory and every acknowledged transaction on disk:
//!
//! ```text
//! commit ─▶ writer thread: compare, stage ─▶ log: one write, one fdatasync ─▶ memory: publish ─▶ answer
//!                                                                               ├─▶ get, range
//!                                                                               └─▶ watch
//! ```
//! Nothing is visible before it is durable, and no reader ever waits for the disk.

pub mod admission;
pub mod allocation;
mod batch;
mod compaction;
pub mod disk;
mod embedded;
pub mod encryption;
mod expiry;
mod figures;
mod frame;
mod history;
mod home;
mod key;
mod log;
mod memory;
mod queue;
mod record;
mod recover;
mod rotation;
mod snapshot;
pub mod tools;
mod txn;
mod watch;
mod writer;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use embedded::{Clock, Embedded, Index, OpenError, Options};
pub use encryption::Encryption;
pub use figures::Figures;
pub use history::Keep;
pub use key::{Entry, Event, Key, Table};
pub use rotation::RotationError;
pub use txn::{CommitError, Compare, Op, Txn};
pub use watch::Watch;

/// Numbers the changes of the whole store. An empty store is at 1, so its first change is 2.
pub type Revision = u64;

/// The wanted revision is older than what the store remembers; read the present state and start again from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("revision {asked} is no longer known, the oldest is {oldest}")]
pub struct Compacted {
    /// The revision that was asked for.
    pub asked: Revision,
    /// The oldest revision that can be answered.
    pub oldest: Revision,
}

/// What a range held at one revision.
#[derive(Clone, Debug)]
pub struct Range {
    /// The entries, in the order of their names.
    pub entries: Vec<Arc<Entry>>,
    /// The newest revision when the answer was made; a watch after it misses nothing when the range was read at the
    /// present.
    pub revision: Revision,
}

/// How much a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSize {
    /// The number of its entries.
    pub entries: usize,
    /// The size of their values, in bytes.
    pub bytes: usize,
}

/// A place for entries. Reads are answered from memory; only `commit` waits.
pub trait Store: Send + Sync {
    /// The newest published revision.
    fn revision(&self) -> Revision;

    /// Every table can be read and watched from this revision on; what is older may be forgotten.
    fn compacted(&self) -> Revision;

    /// The present state of one key.
    fn get(&self, key: &Key) -> Option<Arc<Entry>>;

    /// All entries of a table whose name starts with `prefix`, now or as they were `at` an older revision. A
    /// revision of the future reads as the present.
    fn range(&self, table: Table, prefix: &str, at: Option<Revision>) -> Result<Range, Compacted>;

    /// How much a table holds at present. An implementation that counts as it writes answers without reading every entry.
    fn size(&self, table: Table) -> TableSize {
        let entries = self.range(table, "", None).map_or_else(|_| Vec::new(), |range| range.entries);
        TableSize { entries: entries.len(), bytes: entries.iter().map(|entry| entry.value.len()).sum() }
    }

    /// Applies a transaction: all of it or nothing. Every change in it gets the same, new revision, which is the
    /// answer; a transaction that changes nothing answers the present revision. The transaction is handed over by
    /// this call, in the order of calls; dropping the future does not take it back.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// Every change after a revision to entries of a table whose name starts with `prefix`.
    fn watch(&self, table: Table, prefix: &str, after: Revision) -> Result<Watch, Compacted>;
}
