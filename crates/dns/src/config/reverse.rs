//! Reverse names (`7.0.96.10.in-addr.arpa`) and reverse zones.
//!
//! In: addresses and ranges. Out: names, and addresses of names. Zone boundaries are octets (IPv4) or nibbles (IPv6); a
//! range that ends elsewhere becomes several zones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Name;

/// Reverse name of an address.
#[must_use]
pub fn reverse_name(address: IpAddr) -> Name {
    reverse_zone(address, if address.is_ipv4() { 4 } else { 32 })
}

/// Address of a complete reverse name in lower-cased wire form.
#[must_use]
pub fn address_of(lower: &[u8]) -> Option<IpAddr> {
    if let Some(labels) = lower.strip_suffix(b"\x07in-addr\x04arpa\0") {
        let octets: Vec<u8> = split(labels)?.into_iter().map(octet).collect::<Option<_>>()?;
        let [d, c, b, a] = octets[..] else { return None };
        return Some(Ipv4Addr::new(a, b, c, d).into());
    }
    let labels = split(lower.strip_suffix(b"\x03ip6\x04arpa\0")?)?;
    if labels.len() != 32 {
        return None;
    }
    let bits = labels.iter().rev().try_fold(0_u128, |bits, label| {
        let [digit] = label else { return None };
        Some(bits << 4 | u128::from(char::from(*digit).to_digit(16)?))
    })?;
    Some(Ipv6Addr::from_bits(bits).into())
}

fn octet(label: &[u8]) -> Option<u8> {
    let canonical = label == b"0" || !label.starts_with(b"0");
    let digits = label.iter().all(u8::is_ascii_digit) && canonical;
    std::str::from_utf8(label).ok().filter(|_| digits)?.parse().ok()
}

fn split(mut labels: &[u8]) -> Option<Vec<&[u8]>> {
    let mut out = Vec::new();
    while let Some((length, rest)) = labels.split_first() {
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        out.push(label);
        labels = rest;
    }
    Some(out)
}

/// Reverse zones that cover a range.
#[must_use]
pub fn reverse_zones(range: IpNet) -> Vec<Name> {
    let step = if range.addr().is_ipv4() { 8 } else { 4 };
    let bits = range.prefix_len().div_ceil(step) * step;
    let count = bits / step;
    let parts = range.trunc().subnets(bits).expect("a longer prefix of the same family");
    parts.map(|part| reverse_zone(part.addr(), usize::from(count))).collect()
}

/// Reverse zone of the first `count` octets or nibbles of an address.
fn reverse_zone(address: IpAddr, count: usize) -> Name {
    let (parts, family): (Vec<String>, _) = match address {
        IpAddr::V4(v4) => (v4.octets().iter().map(u8::to_string).collect(), "in-addr.arpa"),
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
            (nibbles.map(|nibble| format!("{nibble:x}")).collect(), "ip6.arpa")
        }
    };
    let labels = parts[..count].iter().rev().map(String::as_str).chain([family]);
    Name::parse(&labels.collect::<Vec<_>>().join(".")).expect("numbers are labels")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverse_names_round_trip() {
        for text in ["10.96.0.7", "0.0.0.0", "255.1.20.3", "fd00:10:96::a", "::"] {
            let address: IpAddr = text.parse().expect(text);
            assert_eq!(address_of(reverse_name(address).as_wire()), Some(address));
        }
        assert_eq!(reverse_name("10.96.0.7".parse().expect("one")).to_string(), "7.0.96.10.in-addr.arpa.");
        for text in
            ["0.96.10.in-addr.arpa", "in-addr.arpa", "01.0.0.1.in-addr.arpa", "256.0.0.1.in-addr.arpa", "1.ip6.arpa"]
        {
            assert_eq!(address_of(Name::parse(text).expect(text).as_wire()), None, "{text}");
        }
    }

    #[test]
    fn ranges_become_zones() {
        for (range, want) in [
            ("10.96.0.0/16", vec!["96.10.in-addr.arpa."]),
            (
                "172.17.0.0/22",
                vec![
                    "0.17.172.in-addr.arpa.",
                    "1.17.172.in-addr.arpa.",
                    "2.17.172.in-addr.arpa.",
                    "3.17.172.in-addr.arpa.",
                ],
            ),
            ("10.1.2.3/32", vec!["3.2.1.10.in-addr.arpa."]),
            ("0.0.0.0/0", vec!["in-addr.arpa."]),
            ("fd00::/7", vec!["c.f.ip6.arpa.", "d.f.ip6.arpa."]),
        ] {
            let zones = reverse_zones(range.parse().expect(range));
            assert_eq!(zones.iter().map(Name::to_string).collect::<Vec<_>>(), want, "{range}");
        }
        let zones = reverse_zones("fd00:10:96::/112".parse().expect("a range"));
        assert_eq!((zones.len(), zones[0].labels()), (1, 30));
    }
}
