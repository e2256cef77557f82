//! Announcing addresses by BGP-4 (RFC 4271): a speaker that tells routers which addresses this node serves.
//!
//! ```text
//! objects ──peers──▶ speaker ──a task each──▶ connection ◀──bytes──▶ router
//!            └─ offer: addresses of pools ─▶ session (pure) ─▶ routes, wire
//! ```
//! In: the objects of [`super::inputs`]. Out: a route to each address, `/32` or `/128`, at each router that a BGPPeer names, as long as this
//! node is a candidate for it. The router spreads connections over the nodes that announce the same address. We open connections and
//! listen for none; what routers announce to us is counted, up to a limit, and not used.

mod connection;
pub mod metrics;
mod password;
pub mod peers;
pub mod reasons;
pub mod routes;
pub mod session;
pub mod speaker;
pub mod wire;

pub use metrics::Metrics;
pub use speaker::{News, Tools, run};
