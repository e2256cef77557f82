//! Netlink: writing messages ([`write`]), parsing messages ([`read`]), and a socket ([`socket`]).

pub(crate) mod read;
pub(crate) mod socket;
pub(crate) mod write;

pub(crate) use read::{Attributes, Message, Messages};
pub(crate) use socket::Socket;
pub(crate) use write::Writer;

/// Length of a message header.
pub(crate) const HEADER: usize = 16;

/// Message types common to all protocols.
pub(crate) const ERROR: u16 = 2;
/// The end of a dump.
pub(crate) const DONE: u16 = 3;

/// Flags of a request.
pub(crate) mod flags {
    /// This is a request.
    pub(crate) const REQUEST: u16 = 0x1;
    /// Acknowledge even on success.
    pub(crate) const ACK: u16 = 0x4;
    /// The dump was interrupted by changes.
    pub(crate) const INTERRUPTED: u16 = 0x10;
    /// Dump all objects.
    pub(crate) const DUMP: u16 = 0x300;
    /// Fail if it exists.
    pub(crate) const EXCLUSIVE: u16 = 0x200;
    /// Create it if missing.
    pub(crate) const CREATE: u16 = 0x400;
    /// Append.
    pub(crate) const APPEND: u16 = 0x800;
}

/// Rounds up to the netlink alignment.
pub(crate) const fn align(length: usize) -> usize {
    (length + 3) & !3
}
