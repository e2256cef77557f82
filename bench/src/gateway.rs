//! Gateways of the Gateway API: `waypost up` with a Gateway, beside nginx, HAProxy and Envoy in front of the same pod; and what many routes
//! cost.
//!
//! ```text
//! traffic: load ─▶ contender (peers: configurations) ─▶ pod (h1_pod of `lb`, grpc_pod) ─▶ figures
//! routes, attached, listener_sets: objects ─▶ up (API) ─▶ probe (answers), watch (statuses) ─▶ figures ─▶ rows
//! ```

pub mod attached;
pub mod contender;
pub mod frames;
pub mod grpc_pod;
pub mod h2_client;
pub mod listener_sets;
pub mod load;
pub mod objects;
pub mod peers;
pub mod probe;
pub mod routes;
pub mod rows;
pub mod traffic;
pub mod up;
pub mod watch;
