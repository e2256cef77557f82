//! The grammar of our names: which place a name is, before anybody looks whether something is there.
//!
//! In: a name and the zone it is in. Out: a [`Place`], which borrows the keys for looking it up. Pure; nothing here
//! knows what exists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::Name;
use crate::zone::{Quirks, Side, Zone};

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place<'n> {
    /// The zone itself.
    Apex,
    /// `svc`, `pod`: they exist, and nothing is there.
    Tree,
    /// `dns`: it exists, because `ns.dns` does.
    Dns,
    /// `ns.dns`: this server.
    NameServer,
    /// `dns-version`.
    Version,
    /// A namespace below `svc` or `pod`.
    Namespace {
        /// Its label on the wire.
        label: &'n [u8],
        /// Whether it is below `pod`.
        pods: bool,
    },
    /// A Service, or something of it.
    Service {
        /// Its name and its namespace, on the wire.
        key: &'n [u8],
        /// What of it.
        part: Part<'n>,
    },
    /// A Pod.
    Pod {
        /// The label of its namespace on the wire.
        namespace: &'n [u8],
        /// Its address.
        address: IpAddr,
        /// How many labels stand before the address.
        before: usize,
        /// Whether the address is written as it would be.
        plain: bool,
    },
    /// The name of an address.
    Address(IpAddr),
    /// Nothing that could be.
    Nowhere,
}

/// What of a Service is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'n> {
    /// All of it.
    Whole,
    /// One endpoint, by its label.
    Endpoint(&'n [u8]),
    /// The ports of a name and a protocol; without their underscores.
    Port(&'n [u8], &'n [u8]),
}

/// Reads a name that is in a zone.
#[inline]
pub fn place<'n>(name: &'n Name, zone: &Zone, quirks: Quirks) -> Place<'n> {
    let left = name.count() - zone.labels;
    if left == 0 {
        return Place::Apex;
    }
    if zone.side != Side::Forward {
        return match (name.label(left - 1), left) {
            (b"dns", 1) => Place::Dns,
            (b"dns", 2) if name.label(0) == b"ns" => Place::NameServer,
            (b"svc" | b"pod", 1) if quirks == Quirks::CoreDns => Place::Tree,
            _ => address(name, zone.side, quirks).map_or(Place::Nowhere, Place::Address),
        };
    }
    match (name.label(left - 1), left) {
        (b"svc" | b"pod", 1) => Place::Tree,
        (tree @ (b"svc" | b"pod"), 2) => Place::Namespace { label: name.labels(0, 1), pods: tree == b"pod" },
        (b"svc", _) => service(name, left),
        (b"pod", _) => pod(name, left),
        (b"dns", 1) => Place::Dns,
        (b"dns", 2) if name.label(0) == b"ns" => Place::NameServer,
        (b"dns-version", 1) => Place::Version,
        _ => Place::Nowhere,
    }
}

#[inline]
fn service(name: &Name, left: usize) -> Place<'_> {
    let first = left - 3;
    let part = match first {
        0 => Part::Whole,
        1 => Part::Endpoint(name.label(0)),
        2 => Part::Port(bare(name.label(0)), bare(name.label(1))),
        _ => return Place::Nowhere,
    };
    Place::Service { key: name.labels(first, first + 2), part }
}

/// A label without the underscore before it.
fn bare(label: &[u8]) -> &[u8] {
    label.strip_prefix(b"_").unwrap_or(label)
}

fn pod(name: &Name, left: usize) -> Place<'_> {
    let label = name.label(left - 3);
    let Some(address) = pod_address(label) else { return Place::Nowhere };
    let plain = undashed(label) == Some(address);
    Place::Pod { namespace: name.labels(left - 2, left - 1), address, before: left - 3, plain }
}

/// The address in the label of a Pod: dots or colons became dashes.
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

/// The address that a reverse name stands for, when it is whole.
fn address(name: &Name, side: Side, quirks: Quirks) -> Option<IpAddr> {
    let left = name.count() - 2;
    if side == Side::Reverse4 {
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

/// A number as it is written: no sign, no zero before it.
fn decimal(label: &[u8]) -> Option<u8> {
    if label.len() > 1 && label[0] == b'0' || !label.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(label).ok()?.parse().ok()
}

/// The label of an endpoint that has no name of its own, written into a buffer that is long enough for all.
#[must_use]
pub fn dashed(address: IpAddr, buffer: &mut [u8; 63]) -> usize {
    use std::io::Write as _;
    let mut rest = &mut buffer[..];
    // The buffer holds the longest address; a failure would leave what fits.
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

/// The address whose label this is, if it is written as [`dashed`] writes it.
#[must_use]
pub fn undashed(label: &[u8]) -> Option<IpAddr> {
    let guess = pod_address(label).or_else(|| pod_address(label.strip_suffix(b"0")?))?;
    let mut buffer = [0; 63];
    let len = dashed(guess, &mut buffer);
    (buffer[..len] == *label).then_some(guess)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::from_text;
    use crate::zone::{Config, Zones};

    fn named<T>(text: &str, quirks: Quirks, look: impl FnOnce(Place<'_>) -> T) -> T {
        let zones = Zones::new(&Config::default()).expect("zones");
        let name = Name::parse(&from_text(text).expect("text")).expect("a name");
        look(place(&name, zones.of(&name).expect("ours"), quirks))
    }

    #[test]
    fn names_have_their_places() {
        let is = |text: &str, wanted: Place<'_>| named(text, Quirks::None, |found| assert_eq!(found, wanted, "{text}"));
        is("cluster.local", Place::Apex);
        is("SVC.cluster.local", Place::Tree);
        is("dns.cluster.local", Place::Dns);
        is("ns.dns.cluster.local", Place::NameServer);
        is("x.dns.cluster.local", Place::Nowhere);
        is("dns-version.cluster.local", Place::Version);
        is("a.dns-version.cluster.local", Place::Nowhere);
        is("ns.pod.cluster.local", Place::Namespace { label: b"\x02ns", pods: true });
        let key = &b"\x01s\x02ns"[..];
        is("S.ns.svc.cluster.local", Place::Service { key, part: Part::Whole });
        is("e.s.ns.svc.cluster.local", Place::Service { key, part: Part::Endpoint(b"e") });
        is("_http.tcp.s.ns.svc.cluster.local", Place::Service { key, part: Part::Port(b"http", b"tcp") });
        is("__http._.s.ns.svc.cluster.local", Place::Service { key, part: Part::Port(b"_http", b"") });
        is("a.b.c.s.ns.svc.cluster.local", Place::Nowhere);
        is("foo.cluster.local", Place::Nowhere);
        let pod = |text: &str, before| Place::Pod {
            namespace: b"\x02ns",
            address: text.parse().expect("an address"),
            before,
            plain: true,
        };
        is("1-2-3-4.ns.pod.cluster.local", pod("1.2.3.4", 0));
        is("x.1-2-3-4.ns.pod.cluster.local", pod("1.2.3.4", 1));
        is("fd00--1.ns.pod.cluster.local", pod("fd00::1", 0));
        let long = Place::Pod {
            namespace: b"\x02ns",
            address: "fd00::1".parse().expect("an address"),
            before: 0,
            plain: false,
        };
        is("fd00-0-0-0-0-0-0-1.ns.pod.cluster.local", long);
        is("1-2-3-999.ns.pod.cluster.local", Place::Nowhere);
        is("1-2-03-4.ns.pod.cluster.local", Place::Nowhere);
    }

    #[test]
    fn addresses_have_names() {
        let is = |text: &str, quirks, wanted: Option<&str>| {
            let wanted = wanted.map_or(Place::Nowhere, |text| Place::Address(text.parse().expect("an address")));
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
            let len = dashed(address, &mut buffer);
            assert_eq!(std::str::from_utf8(&buffer[..len]), Ok(label));
            assert_eq!(undashed(label.as_bytes()), Some(address));
        }
        for label in ["172-17-0-02", "fd00-1--", "fd00-0--1-2", "web-0", "fd00-1-0-0-0-0-0-0", "", "-", "0"] {
            assert_eq!(undashed(label.as_bytes()), None, "{label}");
        }
    }
}
