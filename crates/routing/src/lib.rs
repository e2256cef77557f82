//! Layer-7 routing, pure: which listeners a cluster has, which routes are attached to them, which rule takes a request,
//! and the status that says so. The controller, the gateway and the diagnosis decide by the same functions.
//!
//! In: Gateway API objects and Ingresses, and the Services, Namespaces, Secrets and ConfigMaps that they refer to. Out:
//!
//! ```text
//! objects ──▶ cluster ──▶ states (gateway, listener, route, policy) ──▶ status            (control writes it)
//!                │                                                   └─▶ diagnosis
//!                └──▶ config: ports, listeners, rules ──▶ http_table, grpc_table, hosts   (gateway serves it)
//! ```
//! No I/O, no clock.

pub mod ingress;
pub mod model;
pub mod policy;
