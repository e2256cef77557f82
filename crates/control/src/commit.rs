//! Commits transactions of controllers: admission, validation, the store.
//!
//! In: writes that were decided on. Out: the revisions that contain them, or why they failed. Admission webhooks are called before the
//! transaction is built, because they may change objects.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use api::custom::Kinds;
use jiff::Timestamp;
use store::{CommitError, Op, Revision, Store, Table};

use crate::admit;
use crate::feed::is_watched;
use crate::settings::Settings;
use crate::write::{Refusal, Write, WriteError, Writer};

/// The revisions that the cache must reach to contain the writes.
#[derive(Debug, Default)]
pub(crate) struct WrittenRevisions {
    pub(crate) tables: HashMap<Table, Revision>,
    pub(crate) writes: usize,
}

/// Why writes failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Conflict: the feed delivers the other change.
    Conflict,
    /// The namespace is being deleted: nothing can be created in it.
    NamespaceTerminating,
    /// Admission denied a new object; retried.
    Refused(Box<Refusal>),
    /// Another error; retried.
    Error(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("it has changed"),
            Self::NamespaceTerminating => f.write_str("the namespace is being deleted"),
            Self::Refused(refusal) => f.write_str(&refusal.why),
            Self::Error(why) => f.write_str(why),
        }
    }
}

impl WrittenRevisions {
    /// Whether these revisions of tables contain the writes.
    pub(crate) fn is_known(&self, known: &HashMap<Table, Revision>) -> bool {
        self.tables.iter().all(|(table, revision)| known.get(table).is_some_and(|known| known >= revision))
    }
}

/// Commits one transaction.
pub(crate) async fn commit(
    store: &dyn Store,
    settings: &Settings,
    kinds: &Kinds,
    writes: &[Write],
    written: &mut WrittenRevisions,
) -> Result<(), Failure> {
    let Settings { ranges, plugins, dynamic, .. } = settings;
    let dynamic = admit::needed(dynamic.as_ref());
    let mut writes = Cow::Borrowed(writes);
    if let Some(dynamic) = dynamic {
        admit::mutate(dynamic, writes.to_mut()).await.map_err(Failure::Refused)?;
    }
    let writer = Writer { store, ranges, now: Timestamp::now(), checked: true, plugins, kinds };
    let txn = writer.transaction(&writes).map_err(Failure::from)?;
    if let Some(dynamic) = dynamic {
        admit::validate(dynamic, &txn).await.map_err(Failure::Refused)?;
    }
    let tables: Vec<Table> = txn.ops.iter().map(table_of).collect();
    let revision = store.commit(txn).await.map_err(Failure::from)?;
    written.writes += tables.len();
    written.tables.extend(tables.into_iter().filter(|table| is_watched(*table)).map(|table| (table, revision)));
    Ok(())
}

fn table_of(op: &Op) -> Table {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => key.table,
    }
}

impl From<WriteError> for Failure {
    fn from(unfit: WriteError) -> Self {
        match unfit {
            WriteError::Stale(_) => Self::Conflict,
            WriteError::NoNamespace(_) => Self::NamespaceTerminating,
            WriteError::Invalid { .. } | WriteError::UnknownTable(_) => Self::Error(unfit.to_string()),
            WriteError::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        if error.is_conflict() { Self::Conflict } else { Self::Error(error.to_string()) }
    }
}
