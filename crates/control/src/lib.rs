//! Controllers: they look at what is stored and write what should be.
//!
//! A [`Controller`] is two pure functions: which of its keys a change concerns, and what should be written for one key. They
//! see the cluster as a [`World`] of small objects and the ways between them. The [`runner`] feeds the world from the store,
//! queues keys, runs the controllers of the [table](CONTROLLERS) and commits what they ask for under the condition that
//! nothing they looked at has changed. [`bootstrap`] makes the objects without which a cluster is not one.

pub mod admit;
pub mod allocation;
pub mod announcers;
pub mod balancer_certificates;
pub mod bootstrap;
pub mod bootstrap_tokens;
pub mod certificates;
pub mod cluster_roles;
pub mod conditions;
pub mod controller;
pub mod endpoints;
pub mod endpointslice;
pub mod garbage;
pub mod load_balancer;
pub mod mirroring;
pub mod namespaces;
pub mod node_cidrs;
pub mod node_health;
pub mod node_taints;
pub mod objects;
pub mod pod_gc;
pub mod policy_status;
pub mod resource_quotas;
pub mod runner;
pub mod scheduler;
pub mod service_accounts;
pub mod workloads;
pub mod world;

mod election;
mod feed;
mod metrics;
#[cfg(test)]
mod property;
mod queue;
mod report;
mod selection;
mod settings;
#[cfg(test)]
mod testing;
mod write;

pub use controller::{Controller, Verdict, View, Wakes};
pub use election::Election;
pub use metrics::Metrics;
pub use report::Reference;
pub use settings::{Balancing, Settings, Taken};
pub use world::World;
pub use write::Write;

/// Every controller there is. A new one is one file and one line here.
pub static CONTROLLERS: &[Controller] = &[
    allocation::SERVICE_CIDRS,
    allocation::REPAIR,
    endpointslice::CONTROLLER,
    endpoints::CONTROLLER,
    mirroring::CONTROLLER,
    garbage::CONTROLLER,
    namespaces::CONTROLLER,
    service_accounts::ACCOUNTS,
    service_accounts::ROOT_CAS,
    service_accounts::TOKENS,
    cluster_roles::CONTROLLER,
    resource_quotas::CONTROLLER,
    policy_status::CONTROLLER,
    node_cidrs::CONTROLLER,
    node_health::CONTROLLER,
    node_taints::TAINTS,
    node_taints::EVICTION,
    workloads::deployment::CONTROLLER,
    workloads::replicas::CONTROLLER,
    workloads::replicas::REPLICATION,
    workloads::stateful::CONTROLLER,
    scheduler::CONTROLLER,
    pod_gc::CONTROLLER,
    certificates::APPROVER,
    certificates::ISSUER,
    certificates::CLEANER,
    bootstrap_tokens::CLEANER,
    bootstrap_tokens::SIGNER,
    conditions::CONTROLLER,
    load_balancer::CONTROLLER,
    load_balancer::COMMAND_LINE,
    announcers::CONTROLLER,
    balancer_certificates::CONTROLLER,
];
