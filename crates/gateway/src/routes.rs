//! Gateways of the Gateway API, Services at layer 7, and Ingresses: their state on this node, and ports that are served by its tables.
//!
//! ```text
//! feed ──▶ controller ──▶ routing::cluster ──▶ programmed (ports, redirects) ◀── direct (which the kernel serves)
//!             │                            └──▶ tables (per listener, swapped on change)
//!             ├──▶ mesh (Services at layer 7) ──▶ ports, redirects of cluster IPs, tables (per namespace of clients)
//!             ├──▶ ingresses (routing::ingress) ──▶ programmed, one table per class
//!             ├──▶ trust (Secrets, ConfigMaps → TLS)   └──▶ rule ──▶ pools (upstreams, shared)
//! connection ─▶ http ─▶ forward ─▶ pod          connection, udp ─▶ pod
//! ```
//! Nothing is served before all lists are complete. Changes are applied in batches: what is in the queue is applied
//! together, and costs what it changes.

mod choice;
mod client_hello;
mod compile;
mod connection;
mod controller;
mod direct;
mod feed;
mod http;
mod in_memory;
mod ingresses;
mod mesh;
mod mirror;
mod pools;
mod programmed;
mod request_values;
mod rule;
mod secrets;
mod session;
mod tables;
mod trust;
mod udp;

#[cfg(test)]
mod tests;

pub(crate) use client_hello::ClientHello;
pub(crate) use connection::serve;
pub(crate) use controller::run;
pub(crate) use http::answer;
pub use in_memory::InMemoryGateway;
pub(crate) use pools::BY_NUMBER;
pub(crate) use tables::{RoutedListener, RoutedPort};
