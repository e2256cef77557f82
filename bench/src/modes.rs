//! Comparison of the proxy modes: the cost of a connection in each of them, and the cost of a change.
//!
//! ```text
//! stand: a sink and an echo on the far machine ◀─ carry: one stream, short connections, datagrams ◀─ client pod
//!                                                 by way of nothing, of each mode, and of HAProxy
//! ```
//! What a change costs is measured as for the proxy ([`crate::proxy`]).

pub mod carry;
pub mod haproxy;
pub mod rows;
pub mod stand;
