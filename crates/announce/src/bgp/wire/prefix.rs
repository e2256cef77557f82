//! Prefixes as BGP writes them: how many bits count, and only the octets that hold those.
//!
//! In: bytes of a list, or networks. Out: networks, with the bits that do not count as zeros; or bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Family, Rest};

/// Reads a list of prefixes of a family of ours; nothing when one of them is none, or the list breaks off.
pub(super) fn read(bytes: &[u8], family: Family) -> Option<Vec<IpNet>> {
    let mut rest = Rest(bytes);
    let mut out = Vec::new();
    while !rest.is_empty() {
        let bits = rest.byte()?;
        let octets = rest.take(usize::from(bits).div_ceil(8))?;
        let address: IpAddr = match family {
            Family::V4 => Ipv4Addr::from(padded::<4>(octets)?).into(),
            _ => Ipv6Addr::from(padded::<16>(octets)?).into(),
        };
        out.push(IpNet::new(address, bits).ok()?.trunc());
    }
    Some(out)
}

/// Octets and as many zeros as there is room for.
fn padded<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(whole)
}

/// Writes a list of prefixes.
pub(super) fn write<'a>(prefixes: impl IntoIterator<Item = &'a IpNet>, out: &mut Vec<u8>) {
    for prefix in prefixes {
        let count = usize::from(prefix.prefix_len()).div_ceil(8);
        out.push(prefix.prefix_len());
        match prefix.network() {
            IpAddr::V4(network) => out.extend(&network.octets()[..count]),
            IpAddr::V6(network) => out.extend(&network.octets()[..count]),
        }
    }
}
