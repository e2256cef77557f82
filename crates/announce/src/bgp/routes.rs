//! UPDATE messages for host routes.
//!
//! In: addresses to announce or withdraw, and their common attributes. Out: UPDATEs of up to the maximum length, in the
//! order of addresses; deterministic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::wire::{Attributes, Family, HEADER_LEN, MAX_LEN, Negotiated, Reach, Segment, Unreach, Update};

/// Length of the header and the two length fields.
const FRAME_LEN: usize = HEADER_LEN + 4;
/// Maximum length of MP_REACH_NLRI without its prefixes.
const MP_REACH_LEN: usize = 32;

/// Next hops: addresses of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hops {
    /// For IPv4.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6.
    pub v6: Option<Ipv6Addr>,
}

impl Hops {
    /// Next hops of a session: its local address, and an address of the node for the other family.
    #[must_use]
    pub fn new(local: IpAddr, node: &[IpAddr]) -> Self {
        let mut hops = Self::default();
        for address in [local].iter().chain(node) {
            match address.to_canonical() {
                IpAddr::V4(address) => hops.v4 = hops.v4.or(Some(address)),
                // A link-local address is no next hop for others.
                IpAddr::V6(address) if address.is_unicast_link_local() => {}
                IpAddr::V6(address) => hops.v6 = hops.v6.or(Some(address)),
            }
        }
        hops
    }

    /// The next hop of a family.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4),
            Family::V6 => self.v6.map(IpAddr::V6),
            _ => None,
        }
    }
}

/// Common attributes of the routes of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteAttributes {
    /// Negotiated parameters.
    pub negotiated: Negotiated,
    /// Our AS number.
    pub asn: u32,
    /// LOCAL_PREF; sent to iBGP peers only.
    pub local_pref: u32,
    /// Communities.
    pub communities: Vec<u32>,
    /// Next hops.
    pub hops: Hops,
}

impl RouteAttributes {
    fn attributes(&self) -> Attributes {
        let system = || vec![Segment { ordered: true, systems: vec![self.asn] }];
        Attributes {
            origin: Some(0),
            path: Some(if self.negotiated.internal { Vec::new() } else { system() }),
            local_pref: self.negotiated.internal.then_some(self.local_pref),
            communities: self.communities.clone(),
            ..Attributes::default()
        }
    }

    /// The messages that announce these addresses of one family; none when there is no next hop for them.
    #[must_use]
    pub fn announce(&self, family: Family, addresses: &[IpAddr]) -> Vec<Vec<u8>> {
        let Some(hop) = self.hops.of(family) else { return Vec::new() };
        let mut attributes = self.attributes();
        if let IpAddr::V4(hop) = hop {
            attributes.next_hop = Some(hop);
        }
        let alone = Update { attributes: attributes.clone(), ..Update::default() }.write(self.negotiated).len();
        let update = |chunk: &[IpAddr]| {
            let routes = hosts(chunk);
            match family {
                Family::V4 => Update { announced: routes, attributes: attributes.clone(), ..Update::default() },
                _ => {
                    let reach = Some(Reach { family, next_hop: hop, routes });
                    Update { attributes: Attributes { reach, ..attributes.clone() }, ..Update::default() }
                }
            }
        };
        let each = per_message(family, alone + MP_REACH_LEN);
        addresses.chunks(each).map(|chunk| update(chunk).write(self.negotiated)).collect()
    }

    /// The messages that withdraw these addresses of one family.
    #[must_use]
    pub fn withdraw(&self, family: Family, addresses: &[IpAddr]) -> Vec<Vec<u8>> {
        let update = |chunk: &[IpAddr]| match family {
            Family::V4 => Update { withdrawn: hosts(chunk), ..Update::default() },
            _ => {
                let unreach = Some(Unreach { family, routes: hosts(chunk) });
                Update { attributes: Attributes { unreach, ..Attributes::default() }, ..Update::default() }
            }
        };
        let each = per_message(family, FRAME_LEN + MP_REACH_LEN);
        addresses.chunks(each).map(|chunk| update(chunk).write(self.negotiated)).collect()
    }
}

/// Number of host prefixes that fit beside `beside` bytes.
fn per_message(family: Family, beside: usize) -> usize {
    let host = if family == Family::V4 { 1 + 4 } else { 1 + 16 };
    (MAX_LEN.saturating_sub(beside) / host).max(1)
}

/// Addresses as host prefixes.
fn hosts(addresses: &[IpAddr]) -> Vec<IpNet> {
    addresses.iter().map(|address| IpNet::from(*address)).collect()
}

#[cfg(test)]
mod tests;
