//! Routes to single addresses, as messages.
//!
//! In: addresses that come, addresses that go, and what holds for all of them. Out: UPDATEs, each as long as a message may be, in the
//! order of addresses: equal input, equal bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::wire::{Attributes, Family, HEAD, LONGEST, Reach, Segment, Terms, Unreach, Update};

/// What a message holds beside attributes and networks: the head, and two lengths.
const FRAME: usize = HEAD + 4;
/// At most so much are the head, the family and the next hop of an attribute that carries networks.
const CARRIER: usize = 32;

/// Where packets go: addresses of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hops {
    /// For IPv4.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6.
    pub v6: Option<Ipv6Addr>,
}

impl Hops {
    /// Those of a session: the address that it is spoken from, and for the other family an address of the node.
    #[must_use]
    pub fn new(local: IpAddr, node: &[IpAddr]) -> Self {
        let mut hops = Self::default();
        for address in [local].iter().chain(node) {
            match address.to_canonical() {
                IpAddr::V4(address) => hops.v4 = hops.v4.or(Some(address)),
                // One that means something on one wire alone is no next hop for others.
                IpAddr::V6(address) if address.is_unicast_link_local() => {}
                IpAddr::V6(address) => hops.v6 = hops.v6.or(Some(address)),
            }
        }
        hops
    }

    /// That of a family.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4),
            Family::V6 => self.v6.map(IpAddr::V6),
            _ => None,
        }
    }
}

/// What holds for all routes of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manner {
    /// What was agreed on.
    pub terms: Terms,
    /// Our autonomous system.
    pub asn: u32,
    /// How much they are preferred; said inside of an autonomous system alone.
    pub local_pref: u32,
    /// Communities.
    pub communities: Vec<u32>,
    /// Where packets go.
    pub hops: Hops,
}

impl Manner {
    fn attributes(&self) -> Attributes {
        let system = || vec![Segment { ordered: true, systems: vec![self.asn] }];
        Attributes {
            origin: Some(0),
            path: Some(if self.terms.internal { Vec::new() } else { system() }),
            local_pref: self.terms.internal.then_some(self.local_pref),
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
        let alone = Update { attributes: attributes.clone(), ..Update::default() }.write(self.terms).len();
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
        let each = per_message(family, alone + CARRIER);
        addresses.chunks(each).map(|chunk| update(chunk).write(self.terms)).collect()
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
        let each = per_message(family, FRAME + CARRIER);
        addresses.chunks(each).map(|chunk| update(chunk).write(self.terms)).collect()
    }
}

/// How many hosts of a family fit beside so many bytes.
fn per_message(family: Family, beside: usize) -> usize {
    let host = if family == Family::V4 { 1 + 4 } else { 1 + 16 };
    (LONGEST.saturating_sub(beside) / host).max(1)
}

/// Addresses as networks of one host.
fn hosts(addresses: &[IpAddr]) -> Vec<IpNet> {
    addresses.iter().map(|address| IpNet::from(*address)).collect()
}

#[cfg(test)]
mod tests;
