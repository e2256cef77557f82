//! Frames of ARP (RFC 826, 5227) and of IPv6 neighbour discovery (RFC 4861).
//!
//! In: a received Ethernet frame. Out: its [`Message`]s; none for other or malformed frames. And the frames that an
//! announcer sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::packets::Mac;

/// Ethernet header: destination, source, EtherType.
const ETHERNET_LEN: usize = 14;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// An ARP packet for IPv4 over Ethernet.
const ARP_LEN: usize = 28;
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
/// IPv6 header; neighbour solicitation or advertisement without options.
const IPV6_LEN: usize = 40;
const NDP_LEN: usize = 24;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Hop limit of neighbour discovery: proves that no router forwarded it.
const HOP_LIMIT: u8 = 255;
/// Flags of an advertisement.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Option `target link-layer address`.
const TARGET_MAC: u8 = 2;
/// All-nodes multicast address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A message of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Address resolution request; a probe for duplicates if the sender is the unspecified address.
    Request {
        /// The requested address.
        address: IpAddr,
        /// Address of the sender.
        sender: IpAddr,
        /// Its link-layer address.
        mac: Mac,
        /// Destination of the frame.
        to: Mac,
    },
    /// A machine has an address. An ARP request also announces the sender.
    Announcement {
        /// The address.
        address: IpAddr,
        /// Its link-layer address.
        mac: Mac,
    },
}

/// Parses a frame. An ARP request is a request and an announcement, in this order.
#[must_use]
pub fn read(frame: &[u8]) -> [Option<Message>; 2] {
    let Some((head, body)) = frame.split_first_chunk::<ETHERNET_LEN>() else { return [None, None] };
    let (to, from) = (mac(head, 0), mac(head, 6));
    match u16::from_be_bytes([head[12], head[13]]) {
        ETHERTYPE_ARP => arp(to, from, body),
        ETHERTYPE_IPV6 => [discovery(to, from, body), None],
        _ => [None, None],
    }
}

fn mac(bytes: &[u8], at: usize) -> Mac {
    Mac(bytes.get(at..at + 6).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default())
}

fn arp(to: Mac, from: Mac, body: &[u8]) -> [Option<Message>; 2] {
    let Some(body) = body.first_chunk::<ARP_LEN>() else { return [None, None] };
    let sender_mac = mac(body, 8);
    // Ethernet, IPv4, and their lengths. The sender must equal the source of the frame.
    if body[..6] != [0, 1, 8, 0, 6, 4] || sender_mac.is_group() || sender_mac != from {
        return [None, None];
    }
    let ip = |at: usize| Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3]);
    let (sender, address) = (ip(14), ip(24));
    let has = (!sender.is_unspecified()).then_some(Message::Announcement { address: sender.into(), mac: sender_mac });
    match u16::from_be_bytes([body[6], body[7]]) {
        // Gratuitous ARP: an announcement in the form of a request.
        ARP_REQUEST if sender == address => [None, has],
        ARP_REQUEST => {
            [Some(Message::Request { address: address.into(), sender: sender.into(), mac: sender_mac, to }), has]
        }
        ARP_REPLY => [None, has],
        _ => [None, None],
    }
}

fn discovery(to: Mac, from: Mac, body: &[u8]) -> Option<Message> {
    let (head, rest) = body.split_first_chunk::<IPV6_LEN>()?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    if head[0] >> 4 != 6 || head[6] != ICMPV6 || head[7] != HOP_LIMIT || from.is_group() {
        return None;
    }
    let message = rest.get(..length)?;
    let source = address(head, 8)?;
    let destination = address(head, 24)?;
    if message.len() < NDP_LEN || message[1] != 0 || checksum(source, destination, message) != 0 {
        return None;
    }
    let target = address(message, 8).filter(|target| !target.is_multicast())?;
    let options = options(&message[NDP_LEN..])?;
    match message[0] {
        SOLICITATION => Some(Message::Request { address: target.into(), sender: source.into(), mac: from, to }),
        ADVERTISEMENT => {
            let target_mac = options.into_iter().find(|(kind, _)| *kind == TARGET_MAC).map(|(_, mac)| mac);
            Some(Message::Announcement { address: target.into(), mac: target_mac.unwrap_or(from) })
        }
        _ => None,
    }
}

/// Parses link-layer address options; none if malformed.
fn options(mut bytes: &[u8]) -> Option<Vec<(u8, Mac)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(*bytes.get(1)?) * 8;
        // Length 0 is invalid, and would loop.
        let option = bytes.get(..length).filter(|option| !option.is_empty())?;
        if length == 8 && matches!(option[0], 1 | TARGET_MAC) {
            found.push((option[0], mac(option, 2)));
        }
        bytes = &bytes[length..];
    }
    Some(found)
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?.into())
}

/// ICMPv6 checksum; 0 for a message with a valid checksum.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let length = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    let pseudo = [&source.octets()[..], &destination.octets(), &length, &[0, 0, 0, ICMPV6]].concat();
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum()
    };
    let mut sum = words(&pseudo) + words(message);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Solicited-node multicast address.
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let high = 0xff00 | u16::from(a);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, u16::from_be_bytes([b, c]))
}

/// A probe for duplicates: a request from the unspecified address.
#[must_use]
pub fn probe(own: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => arp_frame(Mac::BROADCAST, own, ARP_REQUEST, (own, Ipv4Addr::UNSPECIFIED), (Mac([0; 6]), v4)),
        IpAddr::V6(v6) => {
            let to = solicited_node(v6);
            discovery_frame(Mac::of_group(to), own, (Ipv6Addr::UNSPECIFIED, to), SOLICITATION, 0, v6)
        }
    }
}

/// Gratuitous announcement; by ARP as request and as reply, since some systems accept only one of them.
#[must_use]
pub fn announce(own: Mac, address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(v4) => [ARP_REQUEST, ARP_REPLY]
            .map(|form| arp_frame(Mac::BROADCAST, own, form, (own, v4), (Mac::BROADCAST, v4)))
            .to_vec(),
        IpAddr::V6(v6) => {
            let to = Mac::of_group(ALL_NODES);
            vec![discovery_frame(to, own, (v6, ALL_NODES), ADVERTISEMENT, OVERRIDE, v6)]
        }
    }
}

/// Reply to a request. A sender without an address gets a multicast reply.
#[must_use]
pub fn reply(own: Mac, address: IpAddr, sender: IpAddr, mac: Mac) -> Option<Vec<u8>> {
    match (address, sender) {
        (IpAddr::V4(v4), IpAddr::V4(sender)) => Some(arp_frame(mac, own, ARP_REPLY, (own, v4), (mac, sender))),
        (IpAddr::V6(v6), IpAddr::V6(sender)) if sender.is_unspecified() => {
            let to = Mac::of_group(ALL_NODES);
            Some(discovery_frame(to, own, (v6, ALL_NODES), ADVERTISEMENT, OVERRIDE, v6))
        }
        (IpAddr::V6(v6), IpAddr::V6(sender)) => {
            Some(discovery_frame(mac, own, (v6, sender), ADVERTISEMENT, SOLICITED | OVERRIDE, v6))
        }
        _ => None,
    }
}

fn arp_frame(to: Mac, from: Mac, form: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame =
        [&to.0[..], &from.0, &ETHERTYPE_ARP.to_be_bytes(), &[0, 1, 8, 0, 6, 4], &form.to_be_bytes()].concat();
    for (mac, ip) in [sender, target] {
        frame.extend_from_slice(&mac.0);
        frame.extend_from_slice(&ip.octets());
    }
    frame
}

fn discovery_frame(
    to: Mac,
    from: Mac,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target.octets()].concat();
    if kind == ADVERTISEMENT {
        message.extend_from_slice(&[TARGET_MAC, 1]);
        message.extend_from_slice(&from.0);
    }
    let sum = checksum(source, destination, &message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let length = u16::try_from(message.len()).unwrap_or(0).to_be_bytes();
    let mut frame = [&to.0[..], &from.0, &ETHERTYPE_IPV6.to_be_bytes()].concat();
    frame.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], ICMPV6, HOP_LIMIT]);
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&destination.octets());
    frame.extend_from_slice(&message);
    frame
}

#[cfg(test)]
mod tests;
