//! Conntrack over netlink.
//!
//! One family is requested at a time, filtered to UDP where the kernel supports it; the rest is filtered here. Entries
//! change while they are listed, which makes a list old, not wrong. A dump that the kernel marks as interrupted is
//! repeated.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::netlink;

use super::{Conntrack, ConntrackError, Counted, Direction, Flow, UDP};
use crate::netlink::{Attributes, Message, Socket, Writer};
use crate::{Family, address_bytes, address_from};

/// Netfilter subsystem number.
const SUBSYSTEM: u16 = 1;
/// Header of netfilter messages.
const HEADER: usize = 4;
const GET: u16 = 1;
const DELETE: u16 = 2;

/// Attributes of a connection.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const STATE: u16 = 4;
const COUNTED_ORIGINAL: u16 = 9;
const COUNTED_REPLY: u16 = 10;
const ZONE: u16 = 18;
const FILTER: u16 = 25;

/// Status bit: DNAT.
const DESTINATION_TRANSLATED: u32 = 1 << 5;

/// Counter attribute: bytes.
const BYTES: u16 = 2;
/// State attributes of TCP and SCTP, and the state in both.
const OF_TCP: u16 = 1;
const OF_SCTP: u16 = 3;
const IS: u16 = 1;
/// TCP states TIME_WAIT and CLOSE.
const TCP_ENDED: [u8; 2] = [7, 8];
/// SCTP state CLOSED.
const SCTP_ENDED: u8 = 1;

/// Attributes of a direction.
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// Source and destination of IPv4, then of IPv6.
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
/// Protocol number, source port, destination port.
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// Filter attributes: fields of the original and reply direction.
const FILTER_ORIGINAL: u16 = 1;
const FILTER_REPLY: u16 = 2;
const FILTER_PROTOCOL: u32 = 1 << 3;

/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Conntrack of the current network namespace.
pub struct Linux {
    socket: Socket,
}

impl Linux {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the socket is refused.
    pub fn open() -> Result<Self, ConntrackError> {
        let socket = Socket::open(Some(netlink::NETFILTER), 0, RECEIVE_BUFFER);
        let socket = socket.map_err(|errno| ConntrackError { errno, doing: "opening a socket" })?;
        Ok(Self { socket })
    }

    fn list(&mut self, family: Family, protocol: u8, filter: bool) -> Result<Vec<Flow>, Errno> {
        let mut flows = Vec::new();
        let body = |w: &mut Writer| {
            w.raw(&[family.number(), 0, 0, 0]);
            if filter {
                w.nest(ORIGINAL, |w| w.nest(PROTOCOL, |w| w.bytes(NUMBER, &[protocol])));
                w.nest(FILTER, |w| {
                    w.bytes(FILTER_ORIGINAL, &FILTER_PROTOCOL.to_ne_bytes());
                    w.bytes(FILTER_REPLY, &0u32.to_ne_bytes());
                });
            }
        };
        self.socket
            .dump(&mut flows, SUBSYSTEM << 8 | GET, body, Vec::clear, |flows, message| flows.extend(flow(message)))?;
        flows.retain(|flow| flow.family == family && flow.protocol == protocol);
        Ok(flows)
    }

    /// Entries of a family and protocol.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn flows(&mut self, family: Family, protocol: u8) -> Result<Vec<Flow>, ConntrackError> {
        let listed = match self.list(family, protocol, true) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => self.list(family, protocol, false),
            listed => listed,
        };
        listed.map_err(|errno| ConntrackError { errno, doing: "listing connections" })
    }
}

impl Conntrack for Linux {
    fn udp_flows(&mut self, family: Family) -> Result<Vec<Flow>, ConntrackError> {
        self.flows(family, UDP)
    }

    fn translated_flows(&mut self, family: Family) -> Result<Vec<Counted>, ConntrackError> {
        let mut flows = Vec::new();
        let body = |w: &mut Writer| w.raw(&[family.number(), 0, 0, 0]);
        // There may be a million others: filter while reading.
        let led =
            |found: &Counted| found.flow.family == family && found.flow.reply.source != found.flow.original.destination;
        let take = |flows: &mut Vec<Counted>, message: &Message<'_>| flows.extend(counted(message).filter(led));
        let listed = self.socket.dump(&mut flows, SUBSYSTEM << 8 | GET, body, Vec::clear, take);
        listed.map_err(|errno| ConntrackError { errno, doing: "listing connections" })?;
        Ok(flows)
    }

    fn delete(&mut self, flows: &[Flow]) -> Result<usize, ConntrackError> {
        let mut deleted = 0;
        for flow in flows {
            let body = |w: &mut Writer| {
                w.raw(&[flow.family.number(), 0, 0, 0]);
                w.nest(ORIGINAL, |w| direction(w, flow.protocol, &flow.original));
                if flow.zone != 0 {
                    w.bytes(ZONE, &flow.zone.to_be_bytes());
                }
            };
            match self.socket.request(SUBSYSTEM << 8 | DELETE, 0, body, |_| ()) {
                Ok(()) => deleted += 1,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(ConntrackError { errno, doing: "deleting a connection" }),
            }
        }
        Ok(deleted)
    }
}

/// Writes a direction.
fn direction(w: &mut Writer, protocol: u8, direction: &Direction) {
    let ends = [direction.source, direction.destination];
    w.nest(ADDRESSES, |w| {
        for (index, end) in ends.iter().enumerate() {
            let attribute = if end.is_ipv4() { V4[index] } else { V6[index] };
            w.bytes(attribute, &address_bytes(end.ip()));
        }
    });
    w.nest(PROTOCOL, |w| {
        w.bytes(NUMBER, &[protocol]);
        w.bytes(SOURCE_PORT, &direction.source.port().to_be_bytes());
        w.bytes(DESTINATION_PORT, &direction.destination.port().to_be_bytes());
    });
}

/// Parses an entry.
fn flow(message: &Message<'_>) -> Option<Flow> {
    let family = Family::from_number(*message.body.first()?)?;
    let attributes = message.attributes(HEADER);
    let (protocol, original) = read_direction(&attributes.nest(ORIGINAL)?)?;
    let (_, reply) = read_direction(&attributes.nest(REPLY)?)?;
    let (zone, status) = (attributes.be16(ZONE).unwrap_or_default(), attributes.be32(STATUS).unwrap_or_default());
    Some(Flow { family, protocol, zone, original, reply, translated: status & DESTINATION_TRANSLATED != 0 })
}

/// Parses an entry with its counters.
fn counted(message: &Message<'_>) -> Option<Counted> {
    let flow = flow(message)?;
    let attributes = message.attributes(HEADER);
    let bytes = |way| attributes.nest(way).and_then(|counted| counted.be64(BYTES));
    let bytes = match (bytes(COUNTED_ORIGINAL), bytes(COUNTED_REPLY)) {
        (None, None) => None,
        (there, back) => Some(there.unwrap_or_default().saturating_add(back.unwrap_or_default())),
    };
    let state = |of| attributes.nest(STATE)?.nest(of)?.find(IS)?.first().copied();
    let ended = state(OF_TCP).is_some_and(|is| TCP_ENDED.contains(&is)) || state(OF_SCTP) == Some(SCTP_ENDED);
    Some(Counted { flow, bytes, ended })
}

fn read_direction(attributes: &Attributes<'_>) -> Option<(u8, Direction)> {
    let (addresses, protocol) = (attributes.nest(ADDRESSES)?, attributes.nest(PROTOCOL)?);
    let end = |index: usize, port| {
        let bytes = addresses.find(V4[index]).or_else(|| addresses.find(V6[index]))?;
        let address: IpAddr = address_from(bytes)?;
        Some(SocketAddr::new(address, protocol.be16(port)?))
    };
    let direction = Direction { source: end(0, SOURCE_PORT)?, destination: end(1, DESTINATION_PORT)? };
    Some((*protocol.find(NUMBER)?.first()?, direction))
}

/// Parses bytes as any conntrack message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in crate::netlink::Messages::new(bytes) {
        counted(&message);
    }
}
