//! Which addresses a node connects to for the owner of a route, and which clients count as one. Pure.
//!
//! The owner of a route chooses the URL of external authentication, but must not reach what only the node can: its own
//! ports, and the metadata service of its cloud.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Metadata services whose addresses are not link-local: Alibaba, Azure; AWS and Google over IPv6.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];
/// Ports of the node that are public: where load balancers have no addresses of their own, they listen there.
const PUBLIC: [u16; 2] = [80, 443];
/// The bits of an IPv6 address that identify a client: it can choose the others.
const CLIENT_BITS: u32 = 64;

/// Whether a server at this address may be asked; `own` are the addresses of the node.
pub(crate) fn may_connect(address: SocketAddr, own: &[IpAddr]) -> bool {
    meanings(address.ip()).into_iter().all(|ip| is_permitted(SocketAddr::new(ip, address.port()), own))
}

fn is_permitted(address: SocketAddr, own: &[IpAddr]) -> bool {
    let ip = address.ip();
    let is_special = match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0 || ip.is_multicast() || ip.is_broadcast()
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast(),
    };
    let is_own = own.iter().any(|own| own.to_canonical() == ip);
    !is_special && !METADATA.contains(&ip) && (!is_own || PUBLIC.contains(&address.port()))
}

/// Where packets for an address may arrive: at the IPv4 address that an IPv6 address stands for, by its form (mapped,
/// compatible) or by a translator on the way (64:ff9b::/96, 64:ff9b:1::/48 of RFC 8215, 2002::/16).
fn meanings(ip: IpAddr) -> Vec<IpAddr> {
    let six = match ip.to_canonical() {
        IpAddr::V6(six) => six,
        four @ IpAddr::V4(_) => return vec![four],
    };
    let bits = u128::from(six);
    let four = |bits: u128| Ipv4Addr::from(u32::try_from(bits & u128::from(u32::MAX)).unwrap_or_default());
    let is_compatible = bits >> 32 == 0 && bits > 1;
    match six.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![four(bits).into()],
        _ if is_compatible => vec![four(bits).into()],
        [0x2002, ..] => vec![six.into(), four(bits >> 80).into()],
        [0x64, 0xff9b, 1, ..] => {
            // The length of the prefix is the choice of the network (RFC 6052, 2.2); bits 64 to 71 are skipped.
            let without_skipped = (bits >> 64 << 56) | (bits & (u128::MAX >> 72));
            let by_length = [48, 56, 64].map(|length| four(without_skipped >> (120 - length - 32)));
            let all = by_length.into_iter().chain([four(bits)]);
            // An address has one meaning, the other ones often begin with 0, where nothing is.
            let some = all.filter(|four| four.octets()[0] != 0);
            some.map(IpAddr::V4).chain([six.into()]).collect()
        }
        _ => vec![six.into()],
    }
}

/// The address by which a client is counted: all addresses of an IPv6 network of 64 bits are one client.
pub(super) fn client_key(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from(u128::from(six) & (u128::MAX << (128 - CLIENT_BITS)))),
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_only_the_node_should_reach_are_refused() {
        let own = ["192.0.2.10".parse().expect("an address"), "2001:db8::10".parse().expect("an address")];
        for (address, expected) in [
            ("10.0.0.1:80", true),
            ("198.51.100.7:4180", true),
            ("[2001:db8::1]:443", true),
            ("127.0.0.1:80", false),
            ("127.9.9.9:80", false),
            ("[::1]:80", false),
            ("0.0.0.0:80", false),
            ("0.1.2.3:80", false),
            ("[::]:80", false),
            ("169.254.169.254:80", false),
            ("[fe80::1]:80", false),
            ("224.0.0.1:80", false),
            ("255.255.255.255:80", false),
            ("[ff02::1]:80", false),
            ("[::ffff:127.0.0.1]:80", false),
            ("[::ffff:169.254.169.254]:80", false),
            ("[::127.0.0.1]:80", false),
            ("[64:ff9b::169.254.169.254]:80", false),
            ("[64:ff9b::198.51.100.7]:80", true),
            // 169.254.169.254 and 198.51.100.7 behind prefixes of 48, 56, 64 and 96 bits.
            ("[64:ff9b:1:a9fe:a9:fe00::]:80", false),
            ("[64:ff9b:1:a9:fe:a9fe::]:80", false),
            ("[64:ff9b:1:0:a9:fea9:fe00:0]:80", false),
            ("[64:ff9b:1::169.254.169.254]:80", false),
            ("[64:ff9b:1:a9fe:a9:fe00:c633:6407]:80", false),
            ("[64:ff9b:1:c633:64:700::]:80", true),
            ("[64:ff9b:1::198.51.100.7]:80", true),
            ("[64:ff9b:1::192.0.2.10]:10250", false),
            ("[2002:7f00:1::1]:80", false),
            ("[2002:c000:20a::1]:10250", false),
            ("[2002:c633:6407::1]:80", true),
            ("100.100.100.200:80", false),
            ("[fd00:ec2::254]:80", false),
            ("192.0.2.10:10250", false),
            ("[::ffff:192.0.2.10]:10250", false),
            ("[2001:db8::10]:6443", false),
            ("192.0.2.10:443", true),
            ("192.0.2.11:10250", true),
        ] {
            assert_eq!(may_connect(address.parse().expect("an address"), &own), expected, "{address}");
        }
    }

    #[test]
    fn clients_of_an_ipv6_network_are_one() {
        let key = |text: &str| client_key(text.parse().expect("an address"));
        assert_eq!(key("2001:db8:0:1::1"), key("2001:db8:0:1:ffff::9"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8:0:2::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
    }
}
