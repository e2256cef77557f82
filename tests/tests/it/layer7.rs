//! S51, S52, S54: Ingresses, Gateways and routes of Services in the testbed: real clients, real packets, real certificates.
//!
//! The server assigns the addresses, the node serves them. Pods answer with the request head that they received.

mod access_log;
mod acme;
mod annotations;
mod authentication;
mod changes;
mod http3;
mod mesh;
mod policies;
mod proxy_protocol;
mod rules;
mod stage;
