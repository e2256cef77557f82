//! Renders a plan as nftables tables with static chains and dynamic maps.
//!
//! ```text
//! packet ─▶ services: (address, protocol, port) ─▶ frontends ─▶ a chain per *number* of endpoints
//!                                                                └─▶ (address, protocol, port, random) ─▶ endpoints ─▶ dnat
//! ```
//! Services of the same shape share chains, so a change of one Service is a change of a few map elements, whatever the
//! number of Services. There is one table per family; both are written in one transaction.

mod affinity;
mod delta;
mod elements;
mod fragment;
mod ipvs;
mod layer7;
mod private;
mod program;
pub(crate) mod redirect;
mod ruleset;
mod shapes;
mod table;
mod table_kind;
pub(crate) mod tamper;
mod text;

pub(crate) use delta::{Changes, kernel_family};
pub(crate) use fragment::Routing;
pub(crate) use ipvs::{ADDRESSES, SERVERS, address_key, server_from, server_key};
pub use layer7::redirected_cluster_ips;
pub(crate) use program::{FAMILIES, Program};
#[cfg(test)]
pub(crate) use shapes::Shape;
pub(crate) use table::Trust;
pub(crate) use table_kind::TableKind;
pub(crate) use text::of_port;

/// Table name.
pub const TABLE: &str = "waypost";
/// Table name in the IPVS mode.
pub const TABLE_BESIDE_IPVS: &str = "waypost-ipvs";

#[cfg(test)]
mod tests;
