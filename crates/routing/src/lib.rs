//! Layer-7 routing, pure: which listeners a cluster has, which routes are attached to them, which rule takes a request,
//! and the status that says so. The controller, the gateway and the diagnosis decide by the same functions.
//!
//! In: Gateway API objects and Ingresses, and the Services, Namespaces, Secrets and ConfigMaps that they refer to. Out:
//!
//! ```text
//! objects ──▶ cluster ──▶ states (gateway, listener, route, policy) ──▶ status            (control writes it)
//!                │                                                   └─▶ diagnosis
//!                └──▶ configs: ports, places, rules ────▶ http_table, grpc_table, hosts   (gateway serves it)
//! ```
//! No I/O, no clock.

mod attach;
pub mod classes;
pub mod cluster;
pub mod conditions;
pub mod durations;
pub mod filters;
mod gateways;
pub mod grpc_table;
pub mod hosts;
pub mod http_table;
pub mod ingress;
mod listeners;
pub mod mesh;
pub mod model;
mod persistent;
mod policies;
pub mod policy;
mod references;
mod request_path;
mod rules;
pub mod status;
pub mod table;
mod traffic;
pub mod weights;
