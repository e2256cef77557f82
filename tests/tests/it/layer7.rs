//! S51, S52: Ingresses and Gateways in the testbed: real clients outside of the cluster, real packets, real certificates.
//!
//! The server assigns the addresses, the node serves them. Pods answer with the request head that they received.

mod access_log;
mod acme;
mod annotations;
mod authentication;
mod changes;
mod http3;
mod policies;
mod proxy_protocol;
mod rules;
mod stage;
