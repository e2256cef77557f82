//! Address ranges as users write them: those of proxies, and `loadBalancerSourceRanges`, which are checked here because the listener is reachable without passing the proxy's rules. Pure.
//!
//! In: CIDRs as written. Out: whether an address is allowed, with the semantics of the proxy: a list without ranges of
//! a family denies the family, except that a /0 of the other family allows it.

use std::net::IpAddr;

use api::ip::parse_lenient;
use ipnet::IpNet;

/// Allowed source addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceRanges {
    /// `None` allows all.
    lists: Option<[Family; 2]>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Family {
    is_open: bool,
    ranges: Vec<IpNet>,
}

impl SourceRanges {
    /// Parses the ranges of a Service. Invalid ranges allow nothing.
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

    /// Whether a client is allowed.
    #[must_use]
    pub fn allows(&self, client: IpAddr) -> bool {
        let Some([v4, v6]) = &self.lists else { return true };
        let family = if client.is_ipv4() { v4 } else { v6 };
        family.is_open || family.ranges.iter().any(|range| range.contains(&client))
    }
}

/// Parses ranges with commas between them; returns those that are valid, and the others.
#[must_use]
pub fn ranges(text: &str) -> (Vec<IpNet>, Vec<&str>) {
    let (mut valid, mut invalid) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match range(part) {
            Some(range) => valid.push(range),
            None => invalid.push(part),
        }
    }
    (valid, invalid)
}

/// Parses a range leniently: surrounding spaces, leading zeros, host bits.
fn range(text: &str) -> Option<IpNet> {
    let (written, bits) = text.trim().split_once('/')?;
    let address = parse_lenient(written)?;
    let bits: u8 = Some(bits).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    // The prefix length of an IPv4-mapped range counts 96 more bits.
    let bits = if address.is_ipv4() && written.contains(':') { bits.checked_sub(96)? } else { bits };
    IpNet::new(address, bits).ok().map(|range| range.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_valid_and_invalid_ranges() {
        let (valid, invalid) = ranges(" 192.0.2.9/24,,2001:db8::/32 , 192.0.2.1,x/8, ::ffff:10.0.0.0/104");
        assert_eq!(
            valid.iter().map(IpNet::to_string).collect::<Vec<_>>(),
            ["192.0.2.0/24", "2001:db8::/32", "10.0.0.0/8"]
        );
        assert_eq!(invalid, ["192.0.2.1", "x/8"]);
    }

    #[test]
    fn source_ranges_are_evaluated_per_family() {
        let admits = |ranges: &[&str], client: &str| {
            let ranges: Vec<Box<str>> = ranges.iter().map(|range| (*range).into()).collect();
            SourceRanges::of(&ranges).allows(client.parse().expect("an address"))
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
