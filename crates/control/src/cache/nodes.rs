//! Nodes by name, and their last heartbeats.
//!
//! A heartbeat is a change of the Node's Lease or of the heartbeat time of its Ready condition. Its time is when the change was received, by the
//! monotonic clock of this server; the clock of the node is not trusted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use store::Entry;

use super::Versions;
use crate::objects::node::Node;

/// The namespace of Node Leases.
const LEASES: &str = "kube-node-lease/";

/// All Nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<Box<str>, Arc<Node>>,
    heartbeats: HashMap<Box<str>, Instant>,
    /// When Nodes were deleted.
    deleted_at: HashMap<Box<str>, Instant>,
}

impl Nodes {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, deleted: bool, at: Instant) -> Versions<Node> {
        let key = &entry.key.name;
        let old = self.nodes.remove(key);
        if deleted {
            self.heartbeats.remove(key);
            self.deleted_at.insert(key.clone(), at);
            return Versions { old, new: None };
        }
        let new = Arc::new(Node::read(entry));
        if old.as_ref().is_none_or(|old| old.heartbeat != new.heartbeat) {
            self.heartbeats.insert(key.clone(), at);
        }
        self.deleted_at.remove(key);
        self.nodes.insert(key.clone(), Arc::clone(&new));
        Versions { old, new: Some(new) }
    }

    /// A Lease was written.
    pub(super) fn record_heartbeat(&mut self, lease: &str, at: Instant) {
        if let Some(name) = lease.strip_prefix(LEASES)
            && let Some(last) = self.heartbeats.get_mut(name)
        {
            *last = at;
        }
    }

    /// The Node of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// The last heartbeat of a Node.
    #[must_use]
    pub fn last_heartbeat(&self, name: &str) -> Option<Instant> {
        self.heartbeats.get(name).copied()
    }

    /// When a Node was deleted, if this server observed it.
    #[must_use]
    pub fn deleted_since(&self, name: &str) -> Option<Instant> {
        self.deleted_at.get(name).copied()
    }
}
