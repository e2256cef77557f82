//! Who may use a load balancer, by `loadBalancerSourceRanges`; the listener can also be reached past the proxy's rules. Pure.
//!
//! In: ranges as people write them. Out: yes or no for an address, by the same rule as the proxy's: a list that names none of a family
//! closes it, everything of a family opens it, and so does everything of the other one when this one is not named.

use std::net::IpAddr;

use api::ip::parse_lenient;
use ipnet::IpNet;

/// Who is let in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources {
    /// Everybody, when there is no list.
    lists: Option<[Family; 2]>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Family {
    is_open: bool,
    ranges: Vec<IpNet>,
}

impl Sources {
    /// Reads the ranges of a Service. What is no range lets in nobody.
    #[must_use]
    pub fn of(texts: &[Box<str>]) -> Self {
        if texts.iter().all(|text| text.trim().is_empty()) {
            return Self::default();
        }
        let all: Vec<IpNet> = texts.iter().filter_map(|text| range(text)).collect();
        let family = |is_v4: bool| {
            let ranges: Vec<IpNet> = all.iter().copied().filter(|range| range.addr().is_ipv4() == is_v4).collect();
            let deciding = if ranges.is_empty() { &all } else { &ranges };
            Family { is_open: deciding.iter().any(|range| range.prefix_len() == 0), ranges }
        };
        Self { lists: Some([family(true), family(false)]) }
    }

    /// Whether this client is let in.
    #[must_use]
    pub fn admit(&self, client: IpAddr) -> bool {
        let Some([v4, v6]) = &self.lists else { return true };
        let family = if client.is_ipv4() { v4 } else { v6 };
        family.is_open || family.ranges.iter().any(|range| range.contains(&client))
    }
}

/// A range, with spaces around it, needless zeros or bits beyond its prefix if need be.
fn range(text: &str) -> Option<IpNet> {
    let (written, bits) = text.trim().split_once('/')?;
    let address = parse_lenient(written)?;
    let bits: u8 = Some(bits).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    // An IPv4 address in the clothes of IPv6 has been undressed; so must be its prefix.
    let bits = if address.is_ipv4() && written.contains(':') { bits.checked_sub(96)? } else { bits };
    IpNet::new(address, bits).ok().map(|range| range.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_lets_in_whom_it_names_in_each_family() {
        let admits = |ranges: &[&str], client: &str| {
            let ranges: Vec<Box<str>> = ranges.iter().map(|range| (*range).into()).collect();
            Sources::of(&ranges).admit(client.parse().expect("an address"))
        };
        for (ranges, client, wanted) in [
            (&[][..], "192.0.2.1", true),
            (&["", " "], "192.0.2.1", true),
            (&["192.0.2.0/24"], "192.0.2.1", true),
            (&["192.0.2.0/24"], "192.0.3.1", false),
            (&["192.0.2.0/24"], "2001:db8::1", false),
            (&["192.0.2.0/24", "::/0"], "2001:db8::1", true),
            (&["192.0.2.0/24", "::/0"], "10.0.0.1", false),
            (&["0.0.0.0/0"], "2001:db8::1", true),
            (&["0.0.0.0/0", "2001:db8:1::/48"], "2001:db8::1", false),
            (&[" 192.0.2.9/24 "], "192.0.2.1", true),
            (&["::ffff:192.0.2.0/120"], "192.0.2.1", true),
            (&["nonsense"], "192.0.2.1", false),
        ] {
            assert_eq!(admits(ranges, client), wanted, "{ranges:?} {client}");
        }
    }
}
