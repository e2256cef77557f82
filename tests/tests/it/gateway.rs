//! Load balancers that understand TLS and HTTP, asked for by annotation: real clients outside, real packets, real certificates.
//!
//! Clients are curl and sockets on a machine outside of the cluster, pods are servers in namespaces of their own. What a pod hears is told
//! by the pod.

mod annotations;
mod certificates;
mod clients;
mod floods;
mod metrics;
mod pods;
mod proxy_protocol;
mod stage;
