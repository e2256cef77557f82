//! Layer 7 and TLS for Services of `type: LoadBalancer`, asked for by annotation: what a cloud's load balancer does in front of the
//! nodes, done on the node where the packet arrives.
//!
//! In: Services with the annotations that [`wanted`] reads, their slices, Secrets with certificates. Out: a listener for each of
//! their ports, and [`split::Split`], a source in which the proxy finds those listeners as endpoints.
//!
//! ```text
//! Services ──▶ office ──▶ site (a task for each Service): slices, Secrets ──▶ lanes (one for each port)
//!                            └──▶ split ──▶ proxy                               ▲ what a connection needs, read without locks
//! client ─▶ lbVIP:port ─▶ proxy rule ─▶ door (accepts) ─▶ worker ─▶ serve ─▶ web: requests ─▶ upstream, talk ─▶ pod
//!                                                                        └─▶ wire: bytes ────────────────────▶ pod
//! ```
//! What decides is pure and apart: [`wanted`], [`sources`], [`endpoints`], [`headers`], [`certificates`], [`talk::head`],
//! [`talk::pieces`], and the core of [`split`]. What clients send, hyper parses, and refuses what is ambiguous; HTTP/1.1 with pods
//! is spoken by [`talk`].

mod balance;
mod body;
pub mod certificates;
mod door;
pub mod endpoints;
mod guard;
pub mod headers;
mod lane;
pub mod limits;
mod metrics;
mod objects;
mod office;
mod pages;
mod patience;
mod serve;
mod site;
pub mod sources;
pub mod split;
pub mod talk;
mod tls;
mod upstream;
pub mod wanted;
mod web;
mod wire;
mod workers;

#[cfg(test)]
mod tests;

pub use limits::Limits;
pub use metrics::Figures;
pub use office::{Gateway, Notice, Settings, Tell};
