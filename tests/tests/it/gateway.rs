//! Load balancers that terminate TLS and HTTP, requested by annotation: real clients outside, real packets, real certificates.
//!
//! Clients are curl and sockets on a machine outside of the cluster, pods are servers in separate namespaces. Pods report what they
//! receive.

mod annotations;
mod certificates;
mod clients;
mod floods;
mod metrics;
pub(crate) mod pods;
mod proxy_protocol;
mod stage;
mod streams;
