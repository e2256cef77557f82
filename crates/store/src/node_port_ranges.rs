//! The ranges of node ports that namespaces have reserved: one entry of the store, so that no two writes can reserve the same
//! ports, and every claim of a node port is decided on the ranges as they are when it is committed.
//!
//! In: the entry, a namespace, a wish. Out: which ports a namespace may have, or the changed entry. A reservation takes nothing
//! from Services that have node ports already.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use api::claims::ClaimError;
use api::facts::Facts;
use api::node_port_range::NodePortRange;
use bytes::Bytes;

use crate::{Compare, Key, Op, Store, Table, Txn};

/// The reservations, as of a revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePortRanges {
    of_namespaces: BTreeMap<String, NodePortRange>,
    /// Revision of the entry; 0 if there is none.
    modified: u64,
    is_changed: bool,
}

/// The key of the entry.
pub(crate) fn key() -> Key {
    Key { table: Table::named("ranges"), name: "nodeportsofnamespaces".into() }
}

impl NodePortRanges {
    /// Reads the entry. What cannot be read reserves nothing.
    pub(crate) fn read(store: &dyn Store) -> Self {
        let Some(entry) = store.get(&key()) else { return Self::default() };
        let texts: BTreeMap<String, String> = serde_json::from_slice(&entry.value).unwrap_or_default();
        let parsed = texts.into_iter().filter_map(|(name, text)| Some((name, NodePortRange::parse(&text).ok()?)));
        Self { of_namespaces: parsed.collect(), modified: entry.modified, is_changed: false }
    }

    /// The ports that a namespace gets its node ports from: its own, or all.
    pub(crate) fn ports(&self, namespace: &str, all: &RangeInclusive<u16>) -> RangeInclusive<u16> {
        self.of_namespaces.get(namespace).map_or_else(|| all.clone(), |range| range.ports())
    }

    /// Why a namespace may not have a port, if so.
    pub(crate) fn refusal(&self, namespace: &str, port: u16) -> Option<ClaimError> {
        match self.of_namespaces.get(namespace) {
            Some(own) if own.ports().contains(&port) => None,
            Some(own) => Some(ClaimError::PortNotOfNamespace(*own)),
            None => {
                let mut all = self.of_namespaces.values();
                all.find(|range| range.ports().contains(&port)).map(|range| ClaimError::PortReserved(*range))
            }
        }
    }

    /// Sets the range of a namespace; none ends its reservation.
    ///
    /// # Errors
    /// When the range is outside of `all`, when it overlaps another one, or when too few ports would be left for the others.
    pub(crate) fn set(
        &mut self,
        namespace: &str,
        range: Option<NodePortRange>,
        all: &RangeInclusive<u16>,
    ) -> Result<(), ClaimError> {
        if self.of_namespaces.get(namespace).copied() == range {
            return Ok(());
        }
        if let Some(range) = range {
            self.check(namespace, range, all)?;
            self.of_namespaces.insert(namespace.to_owned(), range);
        } else {
            self.of_namespaces.remove(namespace);
        }
        self.is_changed = true;
        Ok(())
    }

    fn check(&self, namespace: &str, range: NodePortRange, all: &RangeInclusive<u16>) -> Result<(), ClaimError> {
        if !all.contains(&range.first) || !all.contains(&range.last) {
            return Err(ClaimError::PortOutOfRange(format!("{}-{}", all.start(), all.end())));
        }
        let others = || self.of_namespaces.iter().filter(|(name, _)| *name != namespace).map(|(_, range)| *range);
        if let Some(other) = others().find(|other| other.overlaps(range)) {
            return Err(ClaimError::RangeReserved(other));
        }
        let reserved: usize = others().chain([range]).map(|range| range.ports().len()).sum();
        if reserved > all.len() / 2 { Err(ClaimError::TooManyReserved) } else { Ok(()) }
    }

    /// Adds the condition that the ranges are still these, and their change.
    pub(crate) fn add_to(self, txn: &mut Txn) {
        txn.compares.push(Compare { key: key(), modified: self.modified });
        if !self.is_changed {
            return;
        }
        txn.ops.push(match self.of_namespaces.is_empty() {
            true => Op::Delete { key: key() },
            false => Op::Put { key: key(), value: self.encode(), facts: Arc::new(Facts::default()), ttl: None },
        });
    }

    fn encode(&self) -> Bytes {
        let texts: BTreeMap<&str, String> =
            self.of_namespaces.iter().map(|(name, range)| (name.as_str(), range.to_string())).collect();
        serde_json::to_vec(&texts).map(Bytes::from).unwrap_or_default()
    }
}
