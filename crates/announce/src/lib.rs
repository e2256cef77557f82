//! Announcing the addresses of load balancers, so that packets to them arrive at a machine that serves them.
//!
//! In: Services with addresses, endpoints, Nodes, pools, Leases ([`inputs`]). Out: answers on the wire of this machine. [`wanted`] says,
//! pure, which address is to be announced by whom and how; each way to announce is an announcer beside it: [`l2`] answers the
//! neighbours' question who has an address. [`who`] tells people who announces an address, or why nobody does. No address is given to an interface: packets that arrive meet the rules of the proxy.

pub mod bgp;
pub mod inputs;
pub mod l2;
pub mod lease;
pub mod leases;
pub mod metrics;
pub mod objects;
pub mod wanted;
pub mod who;
