//! Controllers: they reconcile stored objects with their desired state.
//!
//! A [`Controller`] is two pure functions: which of its keys a change affects, and what to write for one key. They read the cluster from a [`Cache`] of
//! reduced objects with indexes. The [`runner`] fills the cache from the store, queues keys, runs the controllers of the [table](CONTROLLERS) and
//! commits their writes with optimistic concurrency. [`bootstrap`] creates the objects that every cluster has. Modules have no import cycles; a
//! repository test checks this.

pub mod acme;
pub mod admit;
pub mod allocation;
pub mod announcers;
pub mod balancer_certificates;
pub mod bootstrap;
pub mod bootstrap_tokens;
pub mod cache;
pub mod certificate_orders;
pub mod certificates;
pub mod cluster_roles;
pub mod conditions;
pub mod controller;
pub mod custom_resources;
pub mod disruption;
pub mod endpoints;
pub mod endpointslice;
pub mod garbage;
pub mod gateway_api;
pub mod gateways;
pub mod ingresses;
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
pub mod signers;
pub mod workloads;

mod commit;
mod election;
mod event;
mod feed;
mod frontend;
mod metrics;
#[cfg(test)]
mod property;
mod queue;
mod selection;
mod settings;
#[cfg(test)]
mod testing;
mod write;

pub use cache::Cache;
pub use controller::{AffectedKeys, Controller, Outcome, View};
pub use election::Election;
pub use event::Reference;
pub use metrics::Metrics;
pub use settings::{
    CertificateChecks, CheckCertificates, ClassCreation, LoadBalancing, PortsInUse, ServerNames, Settings,
};
pub use write::Write;

/// All controllers. A new one is one file and one line here.
pub static CONTROLLERS: &[Controller] = &[
    allocation::SERVICE_CIDRS,
    allocation::REPAIR,
    endpointslice::CONTROLLER,
    endpoints::CONTROLLER,
    mirroring::CONTROLLER,
    garbage::CONTROLLER,
    namespaces::CONTROLLER,
    custom_resources::CONTROLLER,
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
    workloads::daemon::CONTROLLER,
    workloads::deployment::CONTROLLER,
    workloads::job::CONTROLLER,
    workloads::job::ORPHANS,
    workloads::job::TTL,
    workloads::replicas::CONTROLLER,
    workloads::replicas::REPLICATION,
    workloads::stateful::CONTROLLER,
    scheduler::CONTROLLER,
    pod_gc::CONTROLLER,
    disruption::CONTROLLER,
    disruption::STALE_TARGETS,
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
    gateways::class::CONTROLLER,
    gateways::gateway::CONTROLLER,
    gateways::listener_set::CONTROLLER,
    gateways::route::CONTROLLER,
    gateways::policy::CONTROLLER,
    gateways::traffic_policy::CONTROLLER,
    ingresses::class::CONTROLLER,
    ingresses::ingress::CONTROLLER,
    acme::CONTROLLER,
];
