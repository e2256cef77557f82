//! A packet, and what became of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::nft::{Hook, Name};

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it is sent.
    pub destination: IpAddr,
    /// The protocol above IP: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// The port it is sent to.
    pub port: u16,
    /// The interface it came in by; nothing if this machine made it.
    pub interface: Option<String>,
    /// Its mark.
    pub mark: u32,
    /// Whether it is the first of its connection.
    pub first: bool,
}

impl Packet {
    /// The first packet of a connection, without a mark.
    #[must_use]
    pub fn first(source: IpAddr, destination: IpAddr, protocol: u8, port: u16, interface: Option<&str>) -> Self {
        let interface = interface.map(str::to_owned);
        Self { source, destination, protocol, port, interface, mark: 0, first: true }
    }
}

/// How the way of a packet ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It arrived where it was going in the end.
    Accepted,
    /// It was dropped.
    Dropped,
    /// It was dropped, and its sender was told.
    Rejected,
}

/// What became of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fate {
    /// How its way ended.
    pub end: End,
    /// Where it ended, if it did not arrive.
    pub hook: Option<Hook>,
    /// Where it was sent instead.
    pub translated: Option<(IpAddr, u16)>,
    /// Whether it left with an address of this machine as its source.
    pub masqueraded: bool,
    /// The mark that it has in the end.
    pub mark: u32,
    /// Sets that it was put into.
    pub remembered: BTreeSet<Name>,
}
