//! Nodes by name, and when each was last heard of.
//!
//! A heartbeat is a change of the Node's Lease or of the time in its Ready condition. What counts is when we saw the change,
//! by our own clock that never jumps, not what the node's clock says.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use store::Entry;

use super::Both;
use crate::objects::node::Node;

/// Where Nodes keep their Leases.
const LEASES: &str = "kube-node-lease/";

/// All Nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<Box<str>, Arc<Node>>,
    heard: HashMap<Box<str>, Instant>,
    /// When those went that were there.
    gone: HashMap<Box<str>, Instant>,
}

impl Nodes {
    pub(super) fn apply(&mut self, entry: &Arc<Entry>, deleted: bool, at: Instant) -> Both<Node> {
        let key = &entry.key.name;
        let old = self.nodes.remove(key);
        if deleted {
            self.heard.remove(key);
            self.gone.insert(key.clone(), at);
            return Both { old, new: None };
        }
        let new = Arc::new(Node::read(entry));
        if old.as_ref().is_none_or(|old| old.heartbeat != new.heartbeat) {
            self.heard.insert(key.clone(), at);
        }
        self.gone.remove(key);
        self.nodes.insert(key.clone(), Arc::clone(&new));
        Both { old, new: Some(new) }
    }

    /// A Lease was written.
    pub(super) fn heard(&mut self, lease: &str, at: Instant) {
        if let Some(name) = lease.strip_prefix(LEASES)
            && let Some(heard) = self.heard.get_mut(name)
        {
            *heard = at;
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

    /// When a Node was last heard of.
    #[must_use]
    pub fn last_heard(&self, name: &str) -> Option<Instant> {
        self.heard.get(name).copied()
    }

    /// When a Node went that is not there now, if we saw it go.
    #[must_use]
    pub fn gone_since(&self, name: &str) -> Option<Instant> {
        self.gone.get(name).copied()
    }
}
