//! Frames by which neighbours find each other: ARP for IPv4 (RFC 826, 5227), neighbour discovery for IPv6 (RFC 4861).
//!
//! In: a frame as it was on the wire. Out: what it says ([`Said`]), or nothing if it is none of these or not well formed. And the
//! other way round: the frames that an announcer sends, whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::packets::Mac;

/// The head of every frame: to, from, kind.
const ETHERNET: usize = 14;
const KIND_ARP: u16 = 0x0806;
const KIND_IPV6: u16 = 0x86dd;
/// An ARP packet for addresses of IPv4 on Ethernet.
const ARP: usize = 28;
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
/// The head of a packet of IPv6, and of a solicitation or an advertisement.
const IPV6: usize = 40;
const DISCOVERY: usize = 24;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Neighbour discovery comes from the same wire: no router has passed it on.
const FROM_HERE: u8 = 255;
/// Flags of an advertisement: it answers a question; it replaces what was known.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// The option of an advertisement with the address on the wire.
const TARGET_MAC: u8 = 2;
/// Everybody with IPv6 on the wire.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// Somebody asks who has an address; nobody's address asks when somebody wants to have it.
    Who {
        /// The address.
        address: IpAddr,
        /// Who asks.
        asker: IpAddr,
        /// From where.
        mac: Mac,
        /// To whom the question was sent.
        to: Mac,
    },
    /// Somebody says to have an address. A question by ARP also says that the asker has its own.
    Has {
        /// The address.
        address: IpAddr,
        /// Who.
        mac: Mac,
    },
}

/// Reads a frame. A question by ARP from somebody who has an address is two statements: the question is first.
#[must_use]
pub fn read(frame: &[u8]) -> [Option<Said>; 2] {
    let Some((head, body)) = frame.split_first_chunk::<ETHERNET>() else { return [None, None] };
    let (to, from) = (mac(head, 0), mac(head, 6));
    match u16::from_be_bytes([head[12], head[13]]) {
        KIND_ARP => arp(to, from, body),
        KIND_IPV6 => [discovery(to, from, body), None],
        _ => [None, None],
    }
}

fn mac(bytes: &[u8], at: usize) -> Mac {
    Mac(bytes.get(at..at + 6).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default())
}

fn arp(to: Mac, from: Mac, body: &[u8]) -> [Option<Said>; 2] {
    let Some(body) = body.first_chunk::<ARP>() else { return [None, None] };
    let sender = mac(body, 8);
    // Ethernet, IPv4, and their lengths. Who lies about where a frame is from is not listened to.
    if body[..6] != [0, 1, 8, 0, 6, 4] || sender.is_group() || sender != from {
        return [None, None];
    }
    let ip = |at: usize| Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3]);
    let (asker, address) = (ip(14), ip(24));
    let has = (!asker.is_unspecified()).then_some(Said::Has { address: asker.into(), mac: sender });
    match u16::from_be_bytes([body[6], body[7]]) {
        // Who asks for its own address tells that it has it, and does not want to know.
        ARP_REQUEST if asker == address => [None, has],
        ARP_REQUEST => [Some(Said::Who { address: address.into(), asker: asker.into(), mac: sender, to }), has],
        ARP_REPLY => [None, has],
        _ => [None, None],
    }
}

fn discovery(to: Mac, from: Mac, body: &[u8]) -> Option<Said> {
    let (head, rest) = body.split_first_chunk::<IPV6>()?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    if head[0] >> 4 != 6 || head[6] != ICMPV6 || head[7] != FROM_HERE || from.is_group() {
        return None;
    }
    let message = rest.get(..length)?;
    let source = address(head, 8)?;
    let destination = address(head, 24)?;
    if message.len() < DISCOVERY || message[1] != 0 || checksum(source, destination, message) != 0 {
        return None;
    }
    let target = address(message, 8).filter(|target| !target.is_multicast())?;
    let options = options(&message[DISCOVERY..])?;
    match message[0] {
        SOLICITATION => Some(Said::Who { address: target.into(), asker: source.into(), mac: from, to }),
        ADVERTISEMENT => {
            let told = options.into_iter().find(|(kind, _)| *kind == TARGET_MAC).map(|(_, mac)| mac);
            Some(Said::Has { address: target.into(), mac: told.unwrap_or(from) })
        }
        _ => None,
    }
}

/// Reads options that hold an address on the wire. Nothing when they are not well formed.
fn options(mut bytes: &[u8]) -> Option<Vec<(u8, Mac)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(*bytes.get(1)?) * 8;
        // An option of no length would never end.
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

/// The checksum of a message of ICMPv6; of one that has its checksum in it, 0 when that is right.
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

/// The group in which those are who may have an address.
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let high = 0xff00 | u16::from(a);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, u16::from_be_bytes([b, c]))
}

/// Asks whether anybody has an address, as somebody who has none yet.
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

/// Tells everybody that we have an address: by ARP in both forms, since some listen to one alone.
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

/// Answers who asks for an address. To an asker without an address, the answer is for all to hear.
#[must_use]
pub fn answer(own: Mac, address: IpAddr, asker: IpAddr, mac: Mac) -> Option<Vec<u8>> {
    match (address, asker) {
        (IpAddr::V4(v4), IpAddr::V4(asker)) => Some(arp_frame(mac, own, ARP_REPLY, (own, v4), (mac, asker))),
        (IpAddr::V6(v6), IpAddr::V6(asker)) if asker.is_unspecified() => {
            let to = Mac::of_group(ALL_NODES);
            Some(discovery_frame(to, own, (v6, ALL_NODES), ADVERTISEMENT, OVERRIDE, v6))
        }
        (IpAddr::V6(v6), IpAddr::V6(asker)) => {
            Some(discovery_frame(mac, own, (v6, asker), ADVERTISEMENT, SOLICITED | OVERRIDE, v6))
        }
        _ => None,
    }
}

fn arp_frame(to: Mac, from: Mac, form: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame = [&to.0[..], &from.0, &KIND_ARP.to_be_bytes(), &[0, 1, 8, 0, 6, 4], &form.to_be_bytes()].concat();
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
    let mut frame = [&to.0[..], &from.0, &KIND_IPV6.to_be_bytes()].concat();
    frame.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], ICMPV6, FROM_HERE]);
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&destination.octets());
    frame.extend_from_slice(&message);
    frame
}

#[cfg(test)]
mod tests;
