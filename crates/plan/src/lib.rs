//! What the proxy of one node must do, as data.
//!
//! In: Services, EndpointSlices, the node, the ranges of Services, options. Out: a [`Plan`]: for every Service port of
//! every family its frontends, the endpoints that may be chosen behind each, and what else happens on the way. Pure and
//! deterministic; a change is followed by planning anew the Service it belongs to and nothing else ([`Planner`]).
//!
//! [`oracle::judge`] says what must happen to a packet. It is written from the rules, not from any backend, so that
//! every backend can be held against it; `waypost trace` and `waypost explain` answer from it too.
//!
//! Where it is not as kube-proxy, it is so on purpose: a list of source ranges that names no address of a family closes
//! it; cluster IPs that no Service has are refused at once instead of left to time out; node ports are served on the
//! addresses of the Node unless more is asked for, and never on loopback by rules; endpoints that are cluster IPs are left
//! out.

mod address;
mod categories;
mod claims;
mod endpoints;
mod options;
pub mod oracle;
mod plan;
mod planner;
mod pool;
mod reasons;
mod service;
mod service_port;
mod suspects;
pub mod why;

pub use address::lenient_ranges;
pub use api::view::Protocol;
pub use claims::{Claims, Frontend, Frontends, Role};
pub use endpoints::{Endpoint, Place};
pub use options::{LocalDetector, Loopback, NodePortAddresses, Options};
pub use plan::{Health, Plan, Problem, Touched};
pub use planner::{Planner, Update};
pub use reasons::{Reason, Standing};
pub use service_port::{Backend, PortKey, ServicePort};
