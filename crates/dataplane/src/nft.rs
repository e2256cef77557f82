//! The nftables backend: a plan becomes a table of static chains and dynamic maps.
//!
//! ```text
//! packet ─▶ services: (address, protocol, port) ─▶ frontends ─▶ a chain per *number* of endpoints
//!                                                                └─▶ (address, protocol, port, random) ─▶ endpoints ─▶ dnat
//! ```
//! Chains are shared by all Services with the same shape, so a change of one Service is a change of a few map elements,
//! whatever the number of Services. One table per family, both written in one transaction.

mod affinity;
mod beside_ipvs;
mod delta;
mod elements;
mod fragment;
pub(crate) mod guard;
mod program;
pub(crate) mod relayed;
mod ruleset;
mod shapes;
mod style;
mod text;
mod whole;

pub(crate) use beside_ipvs::{ADDRESSES, SERVERS, address_key, server_from, server_key};
pub(crate) use delta::{Changes, kernel_family};
pub(crate) use fragment::Way;
pub(crate) use program::{FAMILIES, Program};
#[cfg(test)]
pub(crate) use shapes::Shape;
pub(crate) use style::Style;
pub(crate) use text::of_port;
pub(crate) use whole::Trust;

/// The name of our tables.
pub const TABLE: &str = "waypost";
/// The name of our tables when IPVS does the balancing.
pub const TABLE_BESIDE_IPVS: &str = "waypost-ipvs";

#[cfg(test)]
mod tests;
