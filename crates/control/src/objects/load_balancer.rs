//! The state of load balancers: Services that request one, and the claims on addresses.

pub(crate) mod annotations;
pub(crate) mod claim;
mod request;

pub use claim::{Claim, Owner};
pub use request::Request;

pub(crate) use claim::TABLE as CLAIMS;

/// The finalizer that keeps a Service until its load balancer is cleaned up.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The condition that shows whether a Service has its addresses, or why not.
pub const CONDITION: &str = "LoadBalancerReady";
