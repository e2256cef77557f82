//! SCTP, as much as a request and a response need.
//!
//! In: raw IP packets. Out: associations that carry lines. Many kernels translate and track SCTP but have no sockets for it,
//! and the packets are what a proxy is about; so associations are implemented here, on raw sockets: real chunks with real
//! checksums, no retransmission (nothing is lost in a namespace), one stream. A kernel that supports SCTP itself would
//! respond beside us, so there its own sockets are used; [`kernel_speaks`] decides.

mod association;
mod desk;
mod packet;

use std::sync::OnceLock;

pub(super) use association::Association;
pub(super) use desk::{Desk, Ports};

/// The number of the protocol above IP.
pub(super) const NUMBER: u8 = 132;

/// Whether SCTP is loaded in this kernel. Does not try a socket: opening one would load the module.
pub(super) fn kernel_speaks() -> bool {
    static SPEAKS: OnceLock<bool> = OnceLock::new();
    *SPEAKS.get_or_init(|| {
        let known = std::fs::read_to_string("/proc/net/protocols").expect("the protocols of this kernel");
        known.lines().any(|line| line.split_whitespace().next() == Some("SCTP"))
    })
}
