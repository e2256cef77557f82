//! TLS termination and HTTP proxying for Services of `type: LoadBalancer`, configured by annotations: what a cloud load
//! balancer does in front of the nodes, done on the node that receives the packet.
//!
//! In: Services with the annotations of [`annotations`], their EndpointSlices, Secrets with certificates. Out: a
//! listener per port, and a [`plan::Redirect`] for each, by which the proxy sends load-balancer traffic to it.
//!
//! ```text
//! Services ──▶ controller ──▶ service_worker (task per Service): slices, Secrets ──▶ port_config (per port, read without locks)
//!                                └──▶ redirects ──▶ proxy
//! client ─▶ lbVIP:port ─▶ proxy rule ─▶ listener ─▶ worker ─▶ serve ─▶ http_proxy ─▶ upstream, http1 ─▶ pod
//!                                                                   └─▶ tcp_proxy ──────────────────▶ pod
//! ```
//! Pure modules: [`annotations`], [`source_ranges`], [`endpoints`], [`headers`], [`certificates`], [`http1::head`],
//! [`http1::chunked`]. hyper parses client requests and rejects malformed ones; [`http1`] is the HTTP/1.1 client towards
//! pods.

pub mod annotations;
mod balance;
mod body;
pub mod certificates;
mod controller;
pub mod endpoints;
mod error_pages;
mod forward;
pub mod headers;
pub mod http1;
mod http_proxy;
mod idle_timeout;
pub mod limits;
mod listener;
mod metrics;
mod objects;
mod port_config;
mod routes;
mod serve;
mod service_worker;
pub mod source_ranges;
mod stall;
mod tcp_proxy;
mod tls;
mod upstream;
mod workers;

#[cfg(test)]
mod tests;

pub use controller::{EventSink, Gateway, Notice, Settings, StartError};
pub use limits::Limits;
pub use metrics::GatewayMetrics;
