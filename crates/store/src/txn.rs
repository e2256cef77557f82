//! Transactions: conditions on revisions, and changes that are applied atomically.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::facts::Facts;
use bytes::Bytes;

use crate::{Key, Revision};

/// One change.
#[derive(Clone, Debug)]
pub enum Op {
    /// Creates or replaces a key.
    Put {
        /// The key.
        key: Key,
        /// The new value.
        value: Bytes,
        /// The facts of the value for selectors; must equal what the index function of the store returns for it.
        facts: Arc<Facts>,
        /// The time to live, from the commit; unlimited if `None`.
        ttl: Option<Duration>,
    },
    /// Deletes a key; no effect if it does not exist.
    Delete {
        /// The key.
        key: Key,
    },
}

/// A condition: the key's newest revision must be this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// The key.
    pub key: Key,
    /// Its `modified` revision; 0 means that the key must not exist.
    pub modified: Revision,
}

/// Conditions and changes. Changes are applied in order. [`Embedded`](crate::Embedded) gives them consecutive revisions, etcd would give
/// them one; callers may rely on neither, only on the contract of [`Store::commit`](crate::Store::commit). Readers see all of the
/// changes or none.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// All must hold, else nothing is applied.
    pub compares: Vec<Compare>,
    /// The changes; may be empty to only check.
    pub ops: Vec<Op>,
}

impl Txn {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the condition that the key does not exist.
    #[must_use]
    pub fn absent(self, key: Key) -> Self {
        self.unchanged(key, 0)
    }

    /// Adds the condition that the key is still at this revision.
    #[must_use]
    pub fn unchanged(mut self, key: Key, modified: Revision) -> Self {
        self.compares.push(Compare { key, modified });
        self
    }

    /// Creates or replaces a key.
    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Bytes>, facts: Arc<Facts>) -> Self {
        self.ops.push(Op::Put { key, value: value.into(), facts, ttl: None });
        self
    }

    /// Creates or replaces a key with a time to live.
    #[must_use]
    pub fn put_for(mut self, key: Key, value: impl Into<Bytes>, facts: Arc<Facts>, ttl: Duration) -> Self {
        self.ops.push(Op::Put { key, value: value.into(), facts, ttl: Some(ttl) });
        self
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(mut self, key: Key) -> Self {
        self.ops.push(Op::Delete { key });
        self
    }

    /// The approximate size on disk, in bytes.
    pub(crate) fn size(&self) -> usize {
        let size = |op: &Op| match op {
            Op::Put { key, value, .. } => key.name.len() + value.len() + 64,
            Op::Delete { key } => key.name.len() + 64,
        };
        self.ops.iter().map(size).sum()
    }
}

/// Why a transaction was not applied. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// A condition does not hold.
    #[error("{key} has changed")]
    Conflict {
        /// The key of the first condition that does not hold.
        key: Key,
    },
    /// The disk is full; the next commit tries again.
    #[error("disk full: {0}")]
    Full(String),
    /// The disk failed; the next commit tries again.
    #[error("write to disk failed: {0}")]
    Io(String),
    /// The transaction exceeds the size limit.
    #[error("transaction of {bytes} bytes exceeds the limit")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl CommitError {
    /// Whether a condition did not hold: read again and retry.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether the disk is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl From<&io::Error> for CommitError {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}
