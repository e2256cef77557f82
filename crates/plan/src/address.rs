//! Validation of addresses, and lenient parsing of ranges.

use std::net::IpAddr;

use api::ip::parse_lenient;
use ipnet::IpNet;

/// Why an address cannot be a frontend. Rules for it would divert the machine's own traffic.
pub(crate) fn frontend_error(ip: IpAddr) -> Option<&'static str> {
    match ip {
        _ if ip.is_unspecified() => Some("is the unspecified address"),
        _ if ip.is_loopback() => Some("is a loopback address"),
        _ if ip.is_multicast() => Some("is a multicast address"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("is the broadcast address"),
        _ => None,
    }
}

/// Why an address cannot be a cluster IP. Rootless Services use IPv4 loopback: IPv6 has only one such address.
pub(crate) fn cluster_ip_error(ip: IpAddr, rootless: bool) -> Option<&'static str> {
    frontend_error(ip).filter(|_| !(rootless && ip.is_ipv4() && ip.is_loopback()))
}

/// Why an address cannot be an endpoint.
pub(crate) fn endpoint_error(ip: IpAddr, rootless: bool) -> Option<&'static str> {
    if rootless && ip.is_loopback() {
        return None;
    }
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    frontend_error(ip).or_else(|| link_local.then_some("is a link-local address"))
}

/// Parses a range leniently, as addresses: surrounding spaces, leading zeros and host bits are accepted.
pub(crate) fn lenient_range(text: &str) -> Option<IpNet> {
    let (address, bits) = text.trim().split_once('/')?;
    let (written, address) = (address, parse_lenient(address)?);
    let bits: u8 = Some(bits).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    // An IPv4-mapped address was converted; convert its prefix length too.
    let bits = if address.is_ipv4() && written.contains(':') { bits.checked_sub(96)? } else { bits };
    IpNet::new(address, bits).ok().map(|range| range.trunc())
}

/// Parses ranges as [`Planner`](crate::Planner) does for objects; invalid ones are skipped.
pub fn lenient_ranges(texts: &[Box<str>]) -> impl Iterator<Item = IpNet> {
    texts.iter().filter_map(|text| lenient_range(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_leniently_as_addresses() {
        for (text, want) in [
            (" 10.0.0.0/8\t", Some("10.0.0.0/8")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("010.0.0.0/08", Some("10.0.0.0/8")),
            ("FD00:0::1/64", Some("fd00::/64")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            ("::ffff:10.0.0.0/64", None),
            ("::/0", Some("::/0")),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("10.0.0.0", None),
            ("", None),
        ] {
            assert_eq!(lenient_range(text).map(|range| range.to_string()).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn rootless_services_use_loopback_addresses() {
        let fit = |text: &str| {
            text.parse().map(|ip| [cluster_ip_error(ip, true), endpoint_error(ip, true)].map(|why| why.is_none()))
        };
        assert_eq!(fit("127.96.0.1"), Ok([true, true]));
        assert_eq!(fit("::1"), Ok([false, true]));
        assert_eq!(fit("10.96.0.1"), Ok([true, true]));
        assert_eq!(fit("224.0.0.1"), Ok([false, false]));
    }

    #[test]
    fn special_addresses_are_invalid_endpoints() {
        let unfit =
            |text: &str| text.parse().map(|ip| (frontend_error(ip).is_some(), endpoint_error(ip, false).is_some()));
        for text in ["0.0.0.0", "::", "127.8.8.8", "::1", "224.0.0.1", "239.1.1.1", "ff02::1", "255.255.255.255"] {
            assert_eq!(unfit(text), Ok((true, true)), "{text}");
        }
        for text in ["169.254.1.1", "fe80::1", "febf::1"] {
            assert_eq!(unfit(text), Ok((false, true)), "{text}");
        }
        for text in ["10.0.0.1", "192.0.2.255", "fd00::1", "2001:db8::1", "fec0::1"] {
            assert_eq!(unfit(text), Ok((false, false)), "{text}");
        }
    }
}
