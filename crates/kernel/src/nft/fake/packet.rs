//! A packet and its fate.

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
    /// IP protocol: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// Destination port.
    pub port: u16,
    /// Incoming interface; none if this machine sent it.
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

/// Final verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Delivered.
    Accepted,
    /// It was dropped.
    Dropped,
    /// Dropped with an error to the sender.
    Rejected,
}

/// Fate of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fate {
    /// Final verdict.
    pub end: End,
    /// Hook of the verdict, if it was not delivered.
    pub hook: Option<Hook>,
    /// DNAT destination.
    pub translated: Option<(IpAddr, u16)>,
    /// Whether it was masqueraded.
    pub masqueraded: bool,
    /// Final mark.
    pub mark: u32,
    /// Dynamic sets that it was added to.
    pub remembered: BTreeSet<Name>,
}
