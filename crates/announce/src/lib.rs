//! Announces load-balancer addresses, so that packets to them arrive at a node that serves them.
//!
//! In: Services with addresses, EndpointSlices, Nodes, IPPools, BGPPeers, Leases ([`inputs`]). Out: ARP and NDP replies
//! ([`l2`]) and BGP routes ([`bgp`]). [`wanted`] decides, pure, which address is announced by which nodes and how.
//! [`status`] explains which node announces an address, or why none does. No address is assigned to an interface: the rules
//! of the proxy handle the packets.

pub mod bgp;
pub mod inputs;
pub mod l2;
pub mod lease;
pub mod leases;
pub mod metrics;
pub mod objects;
pub mod status;
pub mod wanted;
