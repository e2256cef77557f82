//! S51, S52: Ingresses and Gateways in the testbed: real clients outside of the cluster, real packets, real certificates.
//!
//! The server assigns the addresses, the node serves them. Pods answer with the request head that they received.

mod annotations;
mod changes;
mod rules;
mod stage;
