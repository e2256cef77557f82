//! Cluster DNS server.
//!
//! Watches ([`informers`]) feed Services, EndpointSlices, Namespaces and Pods into [`snapshot`], which publishes records
//! prepared for the wire ([`records`]) without locks. Listeners ([`serve`]) answer queries from it ([`answer`]). Queries for
//! names outside the cluster zones go to a [`forward::Forwarder`].

pub mod answer;
pub mod config;
pub mod corefile;
pub mod explain;
pub mod forward;
pub mod informers;
pub mod metrics;
pub mod parsed_name;
pub mod records;
pub mod reload;
pub mod resolver;
pub mod serve;
mod shards;
pub mod snapshot;
pub mod wire;
pub mod zone;
