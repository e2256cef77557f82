//! Encoding of prefixes (NLRI): the length in bits, and as many octets as needed.
//!
//! In: bytes of a list, or prefixes. Out: prefixes with host bits cleared; or bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Family, Reader};

/// Parses a list of prefixes of a supported family; none if one is invalid or truncated.
pub(super) fn read(bytes: &[u8], family: Family) -> Option<Vec<IpNet>> {
    let mut rest = Reader(bytes);
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

/// Octets padded with zeros.
fn padded<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
    let mut whole = [0; N];
    whole.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(whole)
}

/// Encodes a list of prefixes.
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
