//! The nftables backend: a plan becomes a table of static chains and dynamic maps.
//!
//! ```text
//! packet ─▶ services: (address, protocol, port) ─▶ frontends ─▶ a chain per *number* of endpoints
//!                                                                └─▶ (address, protocol, port, random) ─▶ endpoints ─▶ dnat
//! ```
//! Chains are shared by all Services with the same shape, so a change of one Service is a change of a few map elements,
//! whatever the number of Services. One table per family, both written in one transaction.

mod affinity;
mod delta;
mod elements;
mod fragment;
mod program;
mod ruleset;
mod shapes;
mod whole;

pub(crate) use delta::{Changes, kernel_family};
pub(crate) use program::{FAMILIES, Program};
pub(crate) use whole::Trust;

/// The name of our tables.
pub const TABLE: &str = "waypost";

#[cfg(test)]
mod tests;
