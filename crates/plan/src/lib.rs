//! Computes what the proxy of one node must do, as data.
//!
//! In: Services, EndpointSlices, the Node, ServiceCIDRs, redirects, options. Out: a [`Plan`]: for every Service port and family
//! its frontends, the endpoints of each, and how traffic is treated. Pure and deterministic; a change replans only the
//! Services it affects ([`Planner`]).
//!
//! [`oracle::judge`] returns what must happen to a packet. It is derived from the specification, not from a backend, so that
//! every backend can be tested against it; `waypost trace` and `waypost explain` use it too.
//!
//! Intended differences to kube-proxy: `loadBalancerSourceRanges` without an address of a family close that family;
//! unused cluster IPs are rejected instead of timing out; node ports are served on the addresses of the Node unless
//! configured otherwise, and never on loopback by rules; endpoints that are cluster IPs are ignored.

mod address;
pub mod balancing;
mod claims;
mod cluster_ip_endpoints;
mod endpoints;
mod leader;
mod options;
pub mod oracle;
mod plan;
mod planner;
mod pool;
mod reasons;
mod redirect;
mod selection;
mod service;
mod service_port;
pub mod why;

pub use address::lenient_ranges;
pub use api::view::Protocol;
pub use balancing::{Balancing, DataPlane, Policy, Scope};
pub use claims::{Claims, Frontend, Frontends, Role};
pub use endpoints::{Endpoint, Location};
pub use options::{LocalDetector, Loopback, NodePortAddresses, NodePortAddressesError, Options};
pub use plan::{Health, Plan, Problem, Touched};
pub use planner::{Planner, Update};
pub use reasons::{EndpointStatus, Reason};
pub use redirect::{Redirect, RedirectedFrontends, ServicePortName};
pub use selection::{HintScope, NodeLocation};
pub use service_port::{Backend, PortKey, ServicePort};
