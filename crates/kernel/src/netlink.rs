//! Netlink, as far as this crate needs it: messages written ([`write`]), messages read ([`read`]), a socket ([`socket`]).

pub(crate) mod read;
pub(crate) mod socket;
pub(crate) mod write;

pub(crate) use read::{Attributes, Message, Messages};
pub(crate) use socket::Socket;
pub(crate) use write::Writer;

/// The length of a message's header.
pub(crate) const HEADER: usize = 16;

/// Kinds of messages that every protocol has.
pub(crate) const ERROR: u16 = 2;
/// The end of a dump.
pub(crate) const DONE: u16 = 3;

/// Flags of a request.
pub(crate) mod flags {
    /// This is a request.
    pub(crate) const REQUEST: u16 = 0x1;
    /// An answer is wanted even when all is well.
    pub(crate) const ACK: u16 = 0x4;
    /// What was dumped changed meanwhile.
    pub(crate) const INTERRUPTED: u16 = 0x10;
    /// Everything is wanted, not one thing.
    pub(crate) const DUMP: u16 = 0x300;
    /// Only if it is not there.
    pub(crate) const EXCLUSIVE: u16 = 0x200;
    /// Make it if it is not there.
    pub(crate) const CREATE: u16 = 0x400;
    /// Put it at the end.
    pub(crate) const APPEND: u16 = 0x800;
}

/// Rounds up to what netlink aligns to.
pub(crate) const fn align(length: usize) -> usize {
    (length + 3) & !3
}
