//! The informer cache of the controllers: reduced objects and indexes between them.
//!
//! In: every change of every table, in order. Out: indexed lookups whose cost does not depend on the size of the cluster: the Pods that a selector
//! matches, the Services that select a Pod, the slices of a Service, the dependents of an object. Only the runner changes the cache.

mod budgets;
mod failed_pods;
mod gateways;
mod ingresses;
mod labels;
mod load_balancers;
mod nodes;
mod owners;
mod pods;
mod references;
mod services;
mod slices;
mod unmatched;
mod workloads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use api::custom::Catalog;
use api::kinds::{customresourcedefinition, poddisruptionbudget};
use api::object;
use api::view::Ownership;
use routing::cluster::Touched;
use store::{Entry, Store, Table};

pub use budgets::Budgets;
pub use failed_pods::FailedPods;
pub use gateways::Gateways;
pub use ingresses::{Affected, Ingresses};
pub(crate) use ingresses::{CLASSES, INGRESSES};
pub use load_balancers::LoadBalancers;
pub use nodes::Nodes;
pub use owners::{Dependent, Owners};
pub use pods::{Load, Pods};
pub use services::Services;
pub use slices::Slices;
pub(crate) use slices::service_of;
pub use unmatched::Unmatched;
pub use workloads::Workloads;

use crate::objects::load_balancer;
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::objects::service::Service;
use crate::settings::Settings;

/// Cached tables that do not belong to a kind.
pub(crate) const RAW_TABLES: [&str; 3] = ["nodeports", "ranges", load_balancer::CLAIMS];

/// The cached cluster state.
#[derive(Debug, Default)]
pub struct Cache {
    /// Pods, by name and by label.
    pub pods: Pods,
    /// When failed Pods of DaemonSets were deleted.
    pub failed_pods: FailedPods,
    /// Services, by name and by selector.
    pub services: Services,
    /// Nodes, and their last heartbeats.
    pub nodes: Nodes,
    /// EndpointSlices by Service.
    pub slices: Slices,
    /// Services with the condition that no Pod matches.
    pub unmatched: Unmatched,
    /// PodDisruptionBudgets, by selector.
    pub budgets: Budgets,
    /// Owners of Pods and ReplicaSets.
    pub workloads: Workloads,
    /// Services of type LoadBalancer, pools and claims.
    pub load_balancers: LoadBalancers,
    /// Gateways, their routes, and what these refer to.
    pub gateways: Gateways,
    /// Ingresses, their classes, and what these refer to.
    pub ingresses: Ingresses,
    /// Owner references.
    pub owners: Owners,
    /// Namespaces that are being deleted.
    pub terminating: BTreeSet<Box<str>>,
    /// The kinds, those of CustomResourceDefinitions included.
    pub kinds: Catalog,
}

/// One object changed.
#[derive(Debug)]
pub struct Change {
    /// The table of the object.
    pub table: Table,
    /// The new object; the last one when it was deleted.
    pub entry: Arc<Entry>,
    /// The previous object.
    pub previous: Option<Arc<Entry>>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Whether it belongs to the initial list.
    pub initial: bool,
    /// Its metadata; empty for entries that are not objects.
    pub metadata: Ownership,
    /// The reduced objects, for cached kinds.
    pub typed: TypedChange,
    /// What it alters for Gateways and their routes.
    pub routing: Option<Box<Touched>>,
    /// What it alters for Ingresses.
    pub ingresses: Option<Box<Affected>>,
}

/// The reduced objects of a change.
#[derive(Debug)]
pub enum TypedChange {
    /// A Pod.
    Pod(Versions<Pod>),
    /// A Service.
    Service(Versions<Service>),
    /// A Node.
    Node(Versions<Node>),
    /// Anything else.
    Other,
}

/// An object before and after.
#[derive(Clone, Debug)]
pub struct Versions<T> {
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

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let checks = &settings.certificate_checks;
        Self {
            gateways: Gateways::new(checks.clone()),
            ingresses: Ingresses::new(settings.ingress.clone(), checks.clone()),
            ..Self::default()
        }
    }

    /// Applies a change. `at` is when it was received, for heartbeats and backoff. The store has the objects that a new
    /// object of the Gateway API refers to.
    pub fn apply(
        &mut self,
        store: &dyn Store,
        entry: &Arc<Entry>,
        previous: Option<&Arc<Entry>>,
        deleted: bool,
        at: Instant,
    ) -> Change {
        let table = entry.key.table;
        let now = (!deleted).then_some(entry);
        let typed = match table.as_str() {
            "pods" => TypedChange::Pod(self.pods.apply(entry, deleted)),
            "services/specs" => TypedChange::Service(self.services.apply(entry, deleted)),
            "minions" => TypedChange::Node(self.nodes.apply(entry, deleted, at)),
            _ => TypedChange::Other,
        };
        match table.as_str() {
            "endpointslices" => self.slices.apply(entry, previous, deleted),
            "services/specs" => {
                self.unmatched.apply(entry, deleted);
                self.load_balancers.apply_service(entry, deleted);
            }
            "ippools" => self.load_balancers.apply_pool(entry, deleted),
            load_balancer::CLAIMS => self.load_balancers.apply_claim(entry, deleted),
            table if table == poddisruptionbudget::KIND.table => self.budgets.apply(entry, deleted),
            "leases" => self.nodes.record_heartbeat(&entry.key.name, at),
            table if table == customresourcedefinition::KIND.table => {
                let definition = now.map(|entry| object::decode_light(&entry.value));
                self.kinds.apply(&entry.key.name, definition.as_ref(), entry.modified);
            }
            _ if workloads::holds(table) => self.workloads.apply(entry, deleted),
            _ => {}
        }
        let metadata =
            if RAW_TABLES.contains(&table.as_str()) { Ownership::default() } else { ownership(&entry.value) };
        if let TypedChange::Pod(versions) = &typed {
            self.failed_pods.apply(versions, &metadata, at);
        }
        self.owners.apply(&entry.key, now.map(|_| &metadata));
        let routing = self.gateways.apply(store, entry, previous, deleted, at).map(Box::new);
        let ingresses = self.ingresses.apply(store, entry, deleted).map(Box::new);
        if table.as_str() == "namespaces" {
            if metadata.is_deleting() && !deleted {
                self.terminating.insert(entry.key.name.clone());
            } else {
                self.terminating.remove(&entry.key.name);
            }
        }
        Change {
            table,
            entry: Arc::clone(entry),
            previous: previous.cloned(),
            deleted,
            initial: false,
            metadata,
            typed,
            routing,
            ingresses,
        }
    }
}
