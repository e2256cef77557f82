//! Grammar of names in the cluster zones.
//!
//! In: a name and its zone. Out: a [`ParsedName`] that borrows the lookup keys. Pure; does not check what exists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::Name;
use crate::zone::{Quirks, Zone, ZoneKind};

/// Kind of name within a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParsedName<'n> {
    /// Zone apex.
    Apex,
    /// `svc` or `pod`: empty non-terminals.
    SvcOrPod,
    /// `dns`: empty non-terminal above `ns.dns`.
    Dns,
    /// `ns.dns`: this server.
    NameServer,
    /// `dns-version`.
    Version,
    /// Namespace below `svc` or `pod`.
    Namespace {
        /// Label in wire form.
        label: &'n [u8],
        /// Whether it is below `pod`.
        pods: bool,
    },
    /// Service, one of its endpoints or one of its ports.
    Service {
        /// Labels of Service and namespace in wire form.
        key: &'n [u8],
        /// What of the Service.
        part: Part<'n>,
    },
    /// Pod.
    Pod {
        /// Label of the namespace in wire form.
        namespace: &'n [u8],
        /// Address in the name.
        address: IpAddr,
        /// Number of labels before the address.
        before: usize,
        /// Whether the address is in canonical form.
        plain: bool,
    },
    /// Reverse name of an address.
    Address(IpAddr),
    /// No valid name of the zone.
    Invalid,
}

/// Part of a Service that a name refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'n> {
    /// The Service itself.
    Whole,
    /// Endpoint, by its label.
    Endpoint(&'n [u8]),
    /// Port by name and protocol, without underscores.
    Port(&'n [u8], &'n [u8]),
}

/// Parses a name that is in `zone`.
#[inline]
pub fn parse_name<'n>(name: &'n Name, zone: &Zone, quirks: Quirks) -> ParsedName<'n> {
    let left = name.count() - zone.labels;
    if left == 0 {
        return ParsedName::Apex;
    }
    if zone.kind != ZoneKind::Forward {
        return match (name.label(left - 1), left) {
            (b"dns", 1) => ParsedName::Dns,
            (b"dns", 2) if name.label(0) == b"ns" => ParsedName::NameServer,
            (b"svc" | b"pod", 1) if quirks == Quirks::CoreDns => ParsedName::SvcOrPod,
            _ => address(name, zone.kind, quirks).map_or(ParsedName::Invalid, ParsedName::Address),
        };
    }
    match (name.label(left - 1), left) {
        (b"svc" | b"pod", 1) => ParsedName::SvcOrPod,
        (tree @ (b"svc" | b"pod"), 2) => ParsedName::Namespace { label: name.labels(0, 1), pods: tree == b"pod" },
        (b"svc", _) => service(name, left),
        (b"pod", _) => pod(name, left),
        (b"dns", 1) => ParsedName::Dns,
        (b"dns", 2) if name.label(0) == b"ns" => ParsedName::NameServer,
        (b"dns-version", 1) => ParsedName::Version,
        _ => ParsedName::Invalid,
    }
}

#[inline]
fn service(name: &Name, left: usize) -> ParsedName<'_> {
    let first = left - 3;
    let part = match first {
        0 => Part::Whole,
        1 => Part::Endpoint(name.label(0)),
        2 => Part::Port(bare(name.label(0)), bare(name.label(1))),
        _ => return ParsedName::Invalid,
    };
    ParsedName::Service { key: name.labels(first, first + 2), part }
}

/// Label without its leading underscore.
fn bare(label: &[u8]) -> &[u8] {
    label.strip_prefix(b"_").unwrap_or(label)
}

fn pod(name: &Name, left: usize) -> ParsedName<'_> {
    let label = name.label(left - 3);
    let Some(address) = pod_address(label) else { return ParsedName::Invalid };
    let plain = label_to_address(label) == Some(address);
    ParsedName::Pod { namespace: name.labels(left - 2, left - 1), address, before: left - 3, plain }
}

/// Address in the label of a Pod, in which dots or colons are dashes.
fn pod_address(label: &[u8]) -> Option<IpAddr> {
    let dashes = label.iter().filter(|byte| **byte == b'-').count();
    let is_v4 = dashes == 3 && !label.windows(2).any(|pair| pair == b"--");
    let mut text = [0; 63];
    for (to, from) in text.iter_mut().zip(label) {
        *to = match from {
            b'-' if is_v4 => b'.',
            b'-' => b':',
            b'.' | b':' | b'%' => return None,
            other => *other,
        };
    }
    let address: IpAddr = std::str::from_utf8(&text[..label.len()]).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

/// Address of a complete reverse name.
fn address(name: &Name, kind: ZoneKind, quirks: Quirks) -> Option<IpAddr> {
    let left = name.count() - 2;
    if kind == ZoneKind::Reverse4 {
        let mut octets = [0; 4];
        for (number, octet) in octets.iter_mut().enumerate().filter(|_| left == 4) {
            *octet = decimal(name.label(3 - number))?;
        }
        return (left == 4).then(|| Ipv4Addr::from(octets).into());
    }
    let first = match quirks {
        Quirks::None if left == 32 => 0,
        Quirks::CoreDns if (32..36).contains(&left) => left - 32,
        _ => return None,
    };
    let mut bits: u128 = 0;
    for number in (first..first + 32).rev() {
        let [digit] = name.label(number) else { return None };
        bits = bits << 4 | u128::from(char::from(*digit).to_digit(16)?);
    }
    Some(Ipv6Addr::from_bits(bits).into())
}

/// Decimal octet without sign or leading zero.
fn decimal(label: &[u8]) -> Option<u8> {
    if label.len() > 1 && label[0] == b'0' || !label.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(label).ok()?.parse().ok()
}

/// Writes the label of an endpoint without a hostname: its address with dashes. Returns the length.
#[must_use]
pub fn address_to_label(address: IpAddr, buffer: &mut [u8; 63]) -> usize {
    use std::io::Write as _;
    let mut rest = &mut buffer[..];
    // The longest address fits into the buffer.
    let _ = match address {
        IpAddr::V4(v4) => write!(rest, "{v4}"),
        IpAddr::V6(v6) => write!(rest, "{v6}"),
    };
    let mut len = 63 - rest.len();
    for byte in &mut buffer[..len] {
        if matches!(byte, b'.' | b':') {
            *byte = b'-';
        }
    }
    if address.is_ipv6() && buffer[len - 1] == b'-' {
        buffer[len] = b'0';
        len += 1;
    }
    len
}

/// Inverse of [`address_to_label`]; `None` unless the label is in canonical form.
#[must_use]
pub fn label_to_address(label: &[u8]) -> Option<IpAddr> {
    let guess = pod_address(label).or_else(|| pod_address(label.strip_suffix(b"0")?))?;
    let mut buffer = [0; 63];
    let len = address_to_label(guess, &mut buffer);
    (buffer[..len] == *label).then_some(guess)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::from_text;
    use crate::zone::{Config, Zones};

    fn named<T>(text: &str, quirks: Quirks, look: impl FnOnce(ParsedName<'_>) -> T) -> T {
        let zones = Zones::new(&Config::default()).expect("zones");
        let name = Name::parse(&from_text(text).expect("text")).expect("a name");
        look(parse_name(&name, zones.of(&name).expect("ours"), quirks))
    }

    #[test]
    fn names_are_parsed() {
        let is =
            |text: &str, wanted: ParsedName<'_>| named(text, Quirks::None, |found| assert_eq!(found, wanted, "{text}"));
        is("cluster.local", ParsedName::Apex);
        is("SVC.cluster.local", ParsedName::SvcOrPod);
        is("dns.cluster.local", ParsedName::Dns);
        is("ns.dns.cluster.local", ParsedName::NameServer);
        is("x.dns.cluster.local", ParsedName::Invalid);
        is("dns-version.cluster.local", ParsedName::Version);
        is("a.dns-version.cluster.local", ParsedName::Invalid);
        is("ns.pod.cluster.local", ParsedName::Namespace { label: b"\x02ns", pods: true });
        let key = &b"\x01s\x02ns"[..];
        is("S.ns.svc.cluster.local", ParsedName::Service { key, part: Part::Whole });
        is("e.s.ns.svc.cluster.local", ParsedName::Service { key, part: Part::Endpoint(b"e") });
        is("_http.tcp.s.ns.svc.cluster.local", ParsedName::Service { key, part: Part::Port(b"http", b"tcp") });
        is("__http._.s.ns.svc.cluster.local", ParsedName::Service { key, part: Part::Port(b"_http", b"") });
        is("a.b.c.s.ns.svc.cluster.local", ParsedName::Invalid);
        is("foo.cluster.local", ParsedName::Invalid);
        let pod = |text: &str, before| ParsedName::Pod {
            namespace: b"\x02ns",
            address: text.parse().expect("an address"),
            before,
            plain: true,
        };
        is("1-2-3-4.ns.pod.cluster.local", pod("1.2.3.4", 0));
        is("x.1-2-3-4.ns.pod.cluster.local", pod("1.2.3.4", 1));
        is("fd00--1.ns.pod.cluster.local", pod("fd00::1", 0));
        let long = ParsedName::Pod {
            namespace: b"\x02ns",
            address: "fd00::1".parse().expect("an address"),
            before: 0,
            plain: false,
        };
        is("fd00-0-0-0-0-0-0-1.ns.pod.cluster.local", long);
        is("1-2-3-999.ns.pod.cluster.local", ParsedName::Invalid);
        is("1-2-03-4.ns.pod.cluster.local", ParsedName::Invalid);
    }

    #[test]
    fn reverse_names_are_parsed() {
        let is = |text: &str, quirks, wanted: Option<&str>| {
            let wanted =
                wanted.map_or(ParsedName::Invalid, |text| ParsedName::Address(text.parse().expect("an address")));
            named(text, quirks, |found| assert_eq!(found, wanted, "{text}"));
        };
        is("100.0.96.10.in-addr.arpa", Quirks::None, Some("10.96.0.100"));
        is("0.96.10.in-addr.arpa", Quirks::None, None);
        is("1.100.0.96.10.in-addr.arpa", Quirks::None, None);
        is("010.0.96.10.in-addr.arpa", Quirks::None, None);
        is("256.0.96.10.in-addr.arpa", Quirks::None, None);
        is("+1.0.96.10.in-addr.arpa", Quirks::None, None);
        let six = "3.0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.D.f.ip6.arpa";
        is(six, Quirks::None, Some("fd00:10:96::103"));
        is(&format!("a.b.c.{six}"), Quirks::None, None);
        is(&format!("a.b.c.{six}"), Quirks::CoreDns, Some("fd00:10:96::103"));
        is(&six.replacen("3.", "g.", 1), Quirks::None, None);
    }

    #[test]
    fn endpoints_are_named_after_their_address() {
        for (text, label) in
            [("172.17.0.2", "172-17-0-2"), ("fd00:1::", "fd00-1--0"), ("fd00::1:2", "fd00--1-2"), ("::", "--0")]
        {
            let address: IpAddr = text.parse().expect("an address");
            let mut buffer = [0; 63];
            let len = address_to_label(address, &mut buffer);
            assert_eq!(std::str::from_utf8(&buffer[..len]), Ok(label));
            assert_eq!(label_to_address(label.as_bytes()), Some(address));
        }
        for label in ["172-17-0-02", "fd00-1--", "fd00-0--1-2", "web-0", "fd00-1-0-0-0-0-0-0", "", "-", "0"] {
            assert_eq!(label_to_address(label.as_bytes()), None, "{label}");
        }
    }
}
