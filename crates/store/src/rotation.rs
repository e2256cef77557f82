//! Rotation of encryption keys: the current configuration, and which keys older values in files still need.
//!
//! In: configurations, and results of snapshots. Out: whether a configuration is accepted, and whether all files must be rewritten. A
//! configuration applies to new values as soon as it is accepted, and to older ones when the next snapshot replaces the log and
//! the previous snapshot. Until then their keys are needed: a restart reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Table;
use crate::encryption::{Encryption, KeyId, Values};

/// The backoff after a failed rewrite; doubles with each failure, up to [`MAX_RETRY_AFTER`].
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(2);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Why an encryption configuration is not accepted. The previous one stays in use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RotationError {
    /// A key is missing that a restart would need.
    #[error(
        "key {name:?} (id {id}) is still in use; keep it in the encryption configuration, after the new key, until everything is \
         encrypted with the new one"
    )]
    KeyInUse {
        /// Its name.
        name: String,
        /// Its id.
        id: KeyId,
    },
    /// `identity` is missing where plain values are stored.
    #[error(
        "values of {table} are stored that are not encrypted; list `identity: {{}}` as the last provider until everything is encrypted"
    )]
    PlainInUse {
        /// The table.
        table: Table,
    },
    /// The format of the directory could not be changed.
    #[error("the store cannot be prepared for encryption: {0}")]
    Io(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl From<io::Error> for RotationError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// See the module.
pub(crate) struct Rotation {
    current: Arc<Encryption>,
    /// Counts the accepted configurations.
    generation: u64,
    /// Values in files that `current` would write differently.
    outdated: Outdated,
    /// Whether the files must be rewritten.
    due: bool,
    /// After failures: the time of the next attempt, and the next backoff.
    not_before: Option<Instant>,
    backoff: Duration,
}

/// How values are stored that older configurations wrote.
#[derive(Default)]
struct Outdated {
    keys: BTreeMap<KeyId, Box<str>>,
    plain: BTreeSet<Table>,
}

impl Rotation {
    /// From what recovery found in the files.
    pub(crate) fn new(current: Arc<Encryption>, found: &BTreeMap<Table, Values>) -> Self {
        let mut outdated = Outdated::default();
        for (table, values) in found {
            let wanted = current.writing_key(*table);
            if values.plain > 0 && wanted.is_some() {
                outdated.plain.insert(*table);
            }
            let others = values.encrypted.iter().filter(|(id, _)| Some(**id) != wanted);
            outdated.keys.extend(others.map(|(id, (name, _))| (*id, name.as_str().into())));
        }
        let due = !outdated.keys.is_empty() || !outdated.plain.is_empty();
        Self { current, generation: 0, outdated, due, not_before: None, backoff: RETRY_AFTER }
    }

    /// The configuration that new values are written with.
    pub(crate) const fn current(&self) -> &Arc<Encryption> {
        &self.current
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether files may hold values of another configuration.
    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// Whether it is time to rewrite the files.
    pub(crate) fn is_due_at(&self, now: Instant) -> bool {
        self.due && self.not_before.is_none_or(|then| now >= then)
    }

    /// Whether this configuration can read everything that is stored in `tables`, which are all.
    pub(crate) fn check(&self, next: &Encryption, tables: &[Table]) -> Result<(), RotationError> {
        let in_use = self.current.writing_keys().into_iter().chain(self.outdated.keys.clone());
        if let Some((id, name)) = in_use.into_iter().find(|(id, _)| !next.has_key(*id)) {
            return Err(RotationError::KeyInUse { name: name.into(), id });
        }
        let written = tables.iter().filter(|table| self.current.writing_key(**table).is_none());
        match written.chain(&self.outdated.plain).find(|table| !next.reads_plain(**table)) {
            Some(table) => Err(RotationError::PlainInUse { table: *table }),
            None => Ok(()),
        }
    }

    /// Switches to another configuration, which was checked. `tables` are all tables.
    pub(crate) fn begin(&mut self, next: Arc<Encryption>, tables: &[Table]) {
        let current = std::mem::replace(&mut self.current, next);
        if tables.iter().all(|table| current.writing_key(*table) == self.current.writing_key(*table)) {
            // Only the keys for reading have changed.
            return;
        }
        self.outdated.keys.extend(current.writing_keys());
        self.outdated.plain.extend(tables.iter().filter(|table| current.writing_key(**table).is_none()));
        self.generation += 1;
        self.due = true;
        self.reset_backoff();
    }

    /// Records that a snapshot of a generation has replaced all older files. Returns whether this completes the rotation.
    pub(crate) fn replaced(&mut self, generation: u64) -> bool {
        if !self.due || generation != self.generation {
            return false;
        }
        self.outdated = Outdated::default();
        self.due = false;
        self.reset_backoff();
        true
    }

    /// Resets the backoff.
    fn reset_backoff(&mut self) {
        self.not_before = None;
        self.backoff = RETRY_AFTER;
    }

    /// Records that the files could not be rewritten, or not all old ones removed.
    pub(crate) fn failed(&mut self, now: Instant) {
        if self.due {
            self.not_before = Some(now + self.backoff);
            self.backoff = (self.backoff * 2).min(MAX_RETRY_AFTER);
        }
    }
}

/// The state that other threads read.
pub(crate) struct Published {
    /// The current configuration.
    pub(crate) encryption: RwLock<Arc<Encryption>>,
    /// Whether files may still hold values of another configuration.
    pub(crate) pending: watch::Sender<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encryption::testing::encryption;

    fn secrets() -> Table {
        Table::named("secrets")
    }

    fn config(providers: &[&str]) -> Arc<Encryption> {
        Arc::new(encryption(&[("secrets", providers)]))
    }

    fn stored(plain: u64, keys: &[&str]) -> BTreeMap<Table, Values> {
        let encrypted = keys.iter().flat_map(|key| config(&[key]).writing_keys());
        let encrypted = encrypted.map(|(id, name)| (id, (name.into(), 1))).collect();
        BTreeMap::from([(secrets(), Values { plain, encrypted })])
    }

    fn in_use(result: Result<(), RotationError>) -> String {
        match result {
            Err(RotationError::KeyInUse { name, .. }) => name,
            other => panic!("a key is in use: {other:?}"),
        }
    }

    #[test]
    fn recovery_detects_values_of_other_configurations() {
        for (providers, plain, keys, due) in [
            (&["one:a"][..], 0, &["one:a"][..], false),
            (&["one:a"], 0, &[], false),
            (&["two:b", "one:a"], 0, &["one:a"], true),
            (&["two:b", "one:a"], 0, &["one:a", "two:b"], true),
            (&["one:a", "identity"], 1, &["one:a"], true),
            (&["identity", "one:a"], 1, &["one:a"], true),
            (&["identity", "one:a"], 1, &[], false),
        ] {
            let rotation = Rotation::new(config(providers), &stored(plain, keys));
            assert_eq!(rotation.is_due(), due, "{providers:?} {plain} {keys:?}");
        }
    }

    #[test]
    fn a_key_is_needed_until_a_snapshot_has_replaced_what_it_encrypted() {
        let mut rotation = Rotation::new(config(&["one:a"]), &stored(0, &["one:a"]));
        let tables = [secrets()];
        assert_eq!(in_use(rotation.check(&config(&["two:b"]), &tables)), "one");
        let both = config(&["two:b", "one:a"]);
        assert_eq!(rotation.check(&both, &tables), Ok(()));
        rotation.begin(both, &tables);
        assert!(rotation.is_due());
        assert_eq!(in_use(rotation.check(&config(&["two:b"]), &tables)), "one");
        assert!(!rotation.replaced(0), "a snapshot of the time before");
        assert!(rotation.replaced(1) && !rotation.is_due() && !rotation.replaced(1));
        assert_eq!(rotation.check(&config(&["two:b"]), &tables), Ok(()));
        assert_eq!(in_use(rotation.check(&config(&["one:a"]), &tables)), "two");
    }

    #[test]
    fn identity_is_needed_while_plain_values_are_stored() {
        let none = Arc::new(Encryption::default());
        let mut rotation = Rotation::new(none, &stored(1, &[]));
        let tables = [secrets()];
        let strict = config(&["one:a"]);
        assert_eq!(rotation.check(&strict, &tables), Err(RotationError::PlainInUse { table: secrets() }));
        assert_eq!(rotation.check(&strict, &[]), Ok(()), "there are no Secrets");
        rotation.begin(config(&["one:a", "identity"]), &tables);
        assert_eq!(rotation.check(&strict, &tables), Err(RotationError::PlainInUse { table: secrets() }));
        assert!(rotation.replaced(1));
        assert_eq!(rotation.check(&strict, &tables), Ok(()));
    }

    #[test]
    fn adding_or_removing_a_read_key_rewrites_nothing() {
        let mut rotation = Rotation::new(config(&["one:a"]), &stored(0, &["one:a"]));
        rotation.begin(config(&["one:a", "two:b"]), &[secrets()]);
        assert!(!rotation.is_due());
        rotation.begin(config(&["two:b", "one:a"]), &[Table::named("pods")]);
        assert!(!rotation.is_due(), "there are no Secrets");
    }

    #[test]
    fn failures_are_retried_with_backoff() {
        let mut rotation = Rotation::new(config(&["two:b", "one:a"]), &stored(0, &["one:a"]));
        let now = Instant::now();
        assert!(rotation.is_due_at(now));
        rotation.failed(now);
        assert!(!rotation.is_due_at(now) && rotation.is_due() && rotation.is_due_at(now + RETRY_AFTER));
        rotation.failed(now);
        assert!(!rotation.is_due_at(now + RETRY_AFTER) && rotation.is_due_at(now + RETRY_AFTER * 2));
        (0..9).for_each(|_| rotation.failed(now));
        assert!(rotation.is_due_at(now + MAX_RETRY_AFTER), "it does not wait for ever");
    }
}
