//! TLS termination and HTTP proxying on the node that receives the packet: for Services of `type: LoadBalancer`,
//! configured by annotations, and for Gateways of the Gateway API with their routes. Both share one data path.
//!
//! In: Services with the annotations of [`annotations`], Gateways and routes, EndpointSlices, Secrets with certificates.
//! Out: a listener per port, and a [`plan::Redirect`] for each, by which the proxy sends load-balancer traffic to it.
//!
//! ```text
//! Services ──▶ controller ──▶ service_worker (task per Service): slices, Secrets ──▶ port_config (per port, read without locks)
//!                                └──▶ redirects ──▶ proxy
//! Gateways, routes ──▶ routes (one cluster of routing per node) ──▶ tables of rules (swapped on change), redirects
//! client ─▶ lbVIP:port ─▶ proxy rule ─▶ listener ─▶ worker ─▶ serve ─▶ http_proxy ─▶ forward ─▶ upstream, http1 ─▶ pod
//!                                                                   └─▶ tcp_proxy ──────────────────▶ pod
//! client ─▶ lbVIP:port (UDP) ─▶ proxy rule ─▶ http3 (QUIC) ─▶ http_proxy
//!                                        (each request, each connection of bytes) ─▶ access_log ─▶ file
//! answers to ACME challenges ──▶ challenges ─▶ answered before any rule, only at the Gateway that they are for
//! ```
//! Pure modules: [`annotations`], [`source_ranges`], [`proxy_protocol`], [`endpoints`], [`headers`], [`certificates`], [`http1::head`],
//! [`http1::chunked`], `health`, `maglev`. hyper parses client requests and rejects malformed ones; [`http1`] is the HTTP/1.1 client towards
//! pods.

mod access_log;
pub mod annotations;
mod balance;
mod body;
mod cause;
pub mod certificates;
mod challenges;
mod client_body;
mod clients;
mod clock;
mod controller;
mod ejection;
mod endpoint;
pub mod endpoints;
mod error_pages;
mod forward;
pub mod headers;
mod health;
pub mod http1;
mod http3;
mod http_proxy;
mod idle_timeout;
pub mod limits;
mod listener;
mod maglev;
mod metrics;
mod objects;
mod policy;
mod port_config;
pub mod proxy_protocol;
mod routes;
mod serve;
mod service_worker;
mod session_token;
pub mod source_ranges;
mod stall;
mod tcp_proxy;
mod tls;
mod upstream;
mod workers;

#[cfg(test)]
mod tests;

pub use access_log::{AccessLog, AccessLogFormat, AccessLogOptions};
pub use controller::{EventSink, Gateway, Notice, OwnAddresses, Settings, StartError};
pub use limits::Limits;
pub use metrics::GatewayMetrics;
pub use routes::InMemoryGateway;
