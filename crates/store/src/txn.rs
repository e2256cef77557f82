//! What a writer asks for: conditions on revisions, and changes that happen together or not at all.

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
        /// What selectors ask of the value; must be what the store's index function would say of it.
        facts: Arc<Facts>,
        /// How long the entry lives, counted from the commit; for ever if `None`.
        ttl: Option<Duration>,
    },
    /// Deletes a key; nothing happens when it does not exist.
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
    /// Its `modified` revision; 0 says that the key must not exist.
    pub modified: Revision,
}

/// Conditions and changes. Changes are applied in order, with consecutive revisions (in etcd they would share one);
/// whoever reads the present sees all of them or none.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// All must hold, else nothing happens.
    pub compares: Vec<Compare>,
    /// What to change; may be empty to only check.
    pub ops: Vec<Op>,
}

impl Txn {
    /// A transaction that does nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the key does not exist.
    #[must_use]
    pub fn absent(self, key: Key) -> Self {
        self.unchanged(key, 0)
    }

    /// Only if the key is still at this revision.
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

    /// Creates or replaces a key that lives only for a while.
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

    /// About how many bytes it puts on disk.
    pub(crate) fn size(&self) -> usize {
        let size = |op: &Op| match op {
            Op::Put { key, value, .. } => key.name.len() + value.len() + 64,
            Op::Delete { key } => key.name.len() + 64,
        };
        self.ops.iter().map(size).sum()
    }
}

/// Why a transaction did not happen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// A condition does not hold.
    #[error("{key} has changed")]
    Conflict {
        /// The key of the first condition that does not hold.
        key: Key,
    },
    /// There is no room on the disk. Nothing was changed; the next commit tries again.
    #[error("no room to store the change: {0}")]
    Full(String),
    /// The disk failed. Nothing was changed; the next commit tries again.
    #[error("the change could not be stored: {0}")]
    Io(String),
    /// More bytes than one transaction may have.
    #[error("a transaction of {bytes} bytes is too large")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl CommitError {
    /// Whether a condition did not hold: read again, then decide again.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether room is missing.
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
