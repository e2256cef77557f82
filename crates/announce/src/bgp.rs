//! BGP-4 speaker (RFC 4271) that announces the addresses that this node serves.
//!
//! ```text
//! objects ──peers──▶ speaker ──task per peer─▶ connection ◀──bytes──▶ router
//!            └─ offer: addresses of pools ─▶ session (pure) ─▶ routes, wire
//! ```
//! In: the objects of [`super::inputs`]. Out: a host route (`/32` or `/128`) to each address for which this node is a
//! candidate, announced to each BGPPeer that selects it. Routers spread connections over the nodes that announce an address
//! (ECMP). We open connections and accept none; received routes are counted, up to a limit, and not used.

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
pub use speaker::{Dependencies, PeerEvent, run};
