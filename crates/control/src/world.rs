//! The cluster as the controllers see it: objects in their small forms, and the ways from one to another.
//!
//! In: every change of every table, each once and in its order. Out: answers that cost the same whatever else the cluster
//! holds: which Pods a selector matches, which Services select a Pod, which slices a Service has, what an object owns.
//! Only the runner changes a world; controllers read it.

mod labels;
mod load_balancers;
mod nodes;
mod owners;
mod pods;
mod services;
mod slices;
mod unmatched;
mod workloads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use api::view::Ownership;
use store::{Entry, Table};

pub use load_balancers::LoadBalancers;
pub use nodes::Nodes;
pub use owners::{Dependent, Owners};
pub use pods::{Load, Pods};
pub use services::Services;
pub use slices::Slices;
pub(crate) use slices::service_of;
pub use unmatched::Unmatched;
pub use workloads::Workloads;

use crate::load_balancer;
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::objects::service::Service;

/// The tables that a world is made of besides those of kinds.
pub(crate) const RAW_TABLES: [&str; 3] = ["nodeports", "ranges", load_balancer::CLAIMS];

/// The cluster.
#[derive(Debug, Default)]
pub struct World {
    /// Pods, by name and by label.
    pub pods: Pods,
    /// Services, by name and by what they select.
    pub services: Services,
    /// Nodes, and when each was last heard of.
    pub nodes: Nodes,
    /// EndpointSlices by Service.
    pub slices: Slices,
    /// Services that say that no Pod matches them.
    pub unmatched: Unmatched,
    /// What keeps Pods or ReplicaSets.
    pub workloads: Workloads,
    /// Services that want load balancers, and the addresses of these.
    pub load_balancers: LoadBalancers,
    /// Who owns what.
    pub owners: Owners,
    /// Namespaces that are being deleted.
    pub terminating: BTreeSet<Box<str>>,
}

/// One object changed.
#[derive(Debug)]
pub struct Change {
    /// The table of the object.
    pub table: Table,
    /// Its new form; the last one when it was deleted.
    pub entry: Arc<Entry>,
    /// Its form before.
    pub previous: Option<Arc<Entry>>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Whether it is no news, but was there when we began to look.
    pub initial: bool,
    /// Its metadata; empty for entries that are no objects.
    pub metadata: Ownership,
    /// The same once more, for kinds that have a small form.
    pub what: What,
}

/// A change of a kind that has a small form.
#[derive(Debug)]
pub enum What {
    /// A Pod.
    Pod(Both<Pod>),
    /// A Service.
    Service(Both<Service>),
    /// A Node.
    Node(Both<Node>),
    /// Anything else.
    Other,
}

/// An object before and after.
#[derive(Clone, Debug)]
pub struct Both<T> {
    /// Before, unless it is new.
    pub old: Option<Arc<T>>,
    /// After, unless it is gone.
    pub new: Option<Arc<T>>,
}

impl Change {
    /// The key of the object.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.entry.key.name
    }

    /// Whether it belongs to a table.
    #[must_use]
    pub fn is_of(&self, table: &str) -> bool {
        self.table.as_str() == table
    }
}

impl World {
    /// Takes a change in. `at` is when it was seen, for objects that are heartbeats.
    pub fn apply(&mut self, entry: &Arc<Entry>, previous: Option<&Arc<Entry>>, deleted: bool, at: Instant) -> Change {
        let table = entry.key.table;
        let now = (!deleted).then_some(entry);
        let what = match table.as_str() {
            "pods" => What::Pod(self.pods.apply(entry, deleted)),
            "services/specs" => What::Service(self.services.apply(entry, deleted)),
            "minions" => What::Node(self.nodes.apply(entry, deleted, at)),
            _ => What::Other,
        };
        match table.as_str() {
            "endpointslices" => self.slices.apply(entry, previous, deleted),
            "services/specs" => {
                self.unmatched.apply(entry, deleted);
                self.load_balancers.apply_service(entry, deleted);
            }
            "ippools" => self.load_balancers.apply_pool(entry, deleted),
            load_balancer::CLAIMS => self.load_balancers.apply_claim(entry, deleted),
            "leases" => self.nodes.heard(&entry.key.name, at),
            _ if workloads::holds(table) => self.workloads.apply(entry, deleted),
            _ => {}
        }
        let metadata =
            if RAW_TABLES.contains(&table.as_str()) { Ownership::default() } else { ownership(&entry.value) };
        self.owners.apply(&entry.key, now.map(|_| &metadata));
        if table.as_str() == "namespaces" {
            if metadata.is_deleting() && !deleted {
                self.terminating.insert(entry.key.name.clone());
            } else {
                self.terminating.remove(&entry.key.name);
            }
        }
        Change { table, entry: Arc::clone(entry), previous: previous.cloned(), deleted, initial: false, metadata, what }
    }
}
