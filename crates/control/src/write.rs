//! What a controller asks for, and how it is carried out.

use std::sync::Arc;
use std::time::Duration;

use api::facts::Facts;
use api::kind::Kind;
use api::kinds;
use api::object;
use api::value::ValueExt as _;
use bytes::Bytes;
use serde_json::Value;
use store::{CommitError, Compare, Key, Op, Store, Table, Txn};

/// One change. All of them carry the revision their controller has seen, so that none overwrites what it does not know.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Stores an object of a kind; `modified` is 0 for a new one.
    Object {
        /// The store's table of the kind.
        table: &'static str,
        /// The object.
        object: Box<Value>,
        /// What it replaces.
        modified: u64,
    },
    /// Stores bytes that are no object.
    Raw {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// What it replaces.
        modified: u64,
    },
    /// Removes an entry.
    Delete {
        /// Which.
        key: Key,
        /// The state that was seen.
        modified: u64,
    },
}

impl Write {
    /// A new object.
    #[must_use]
    pub fn create(table: &'static str, object: Value) -> Self {
        Self::Object { table, object: Box::new(object), modified: 0 }
    }

    fn add_to(&self, txn: &mut Txn) {
        let (key, modified) = match self {
            Self::Object { table, object, modified } => (object_key(table, object), *modified),
            Self::Raw { key, modified, .. } | Self::Delete { key, modified } => (key.clone(), *modified),
        };
        txn.compares.push(Compare { key: key.clone(), modified });
        txn.ops.push(match self {
            Self::Object { table, object, .. } => {
                let kind = kind_of(table);
                let ttl = kind.ttl.map(Duration::from_secs);
                Op::Put { key, value: object::encode(object), facts: Arc::new(kind.facts(object)), ttl }
            }
            Self::Raw { value, .. } => {
                Op::Put { key, value: value.clone(), facts: Arc::new(Facts::default()), ttl: None }
            }
            Self::Delete { .. } => Op::Delete { key },
        });
    }
}

fn kind_of(table: &str) -> &'static Kind {
    kinds::by_table(table).unwrap_or_else(|| panic!("no kind is stored in {table}"))
}

/// The key of an object.
pub(crate) fn object_key(table: &str, object: &Value) -> Key {
    let (namespace, name) = (object.text("metadata.namespace"), object.text("metadata.name"));
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    Key { table: Table::named(table), name: name.into() }
}

/// Carries writes out together: all or nothing.
///
/// # Errors
/// When one of them no longer fits what is stored, or the store cannot write.
pub async fn commit(store: &dyn Store, writes: &[Write]) -> Result<(), CommitError> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut txn = Txn::default();
    for write in writes {
        write.add_to(&mut txn);
    }
    store.commit(txn).await.map(|_| ())
}
