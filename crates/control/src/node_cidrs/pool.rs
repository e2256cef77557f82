//! A CIDR divided into subnets of one size.
//!
//! In: the CIDR, the prefix length, and used CIDRs of any size. Out: the free subnets, lowest first. Used CIDRs are sorted once, so the cost is that of
//! sorting.

use std::iter::Peekable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::IntoIter;

use ipnet::IpNet;

/// At most 2 to this power subnets of a CIDR are used.
const MAX_BITS: u8 = 16;

/// Why CIDRs cannot be divided.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum PoolError {
    #[error("--cluster-cidr has two ranges of one family")]
    TwoOfOneFamily,
    #[error("{0} cannot be cut into pieces of size /{1}")]
    Size(IpNet, u8),
}

/// A CIDR divided into subnets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pool {
    range: IpNet,
    /// The prefix length of a subnet.
    mask: u8,
    /// The number of subnets.
    pub(super) count: u32,
}

impl Pool {
    /// Divides a CIDR by prefix lengths for IPv4 and IPv6.
    pub(super) fn new(range: IpNet, masks: (u8, u8)) -> Result<Self, PoolError> {
        let mask = if range.addr().is_ipv4() { masks.0 } else { masks.1 };
        if mask > range.max_prefix_len() || mask < range.prefix_len() {
            return Err(PoolError::Size(range, mask));
        }
        let count = 1 << (mask - range.prefix_len()).min(MAX_BITS);
        Ok(Self { range: range.trunc(), mask, count })
    }

    /// The free subnets, lowest first.
    pub(super) fn free<'a>(&'a self, taken: impl Iterator<Item = IpNet>) -> Free<'a> {
        let mut taken: Vec<(u32, u32)> = taken.filter_map(|net| self.pieces_of(net)).collect();
        taken.sort_unstable();
        Free { pool: self, taken: taken.into_iter().peekable(), next: 0 }
    }

    /// The first and last subnet that a CIDR overlaps.
    fn pieces_of(&self, net: IpNet) -> Option<(u32, u32)> {
        if net.addr().is_ipv4() != self.range.addr().is_ipv4() {
            return None;
        }
        let first = number(net.network()).max(number(self.range.network()));
        let last = number(net.broadcast()).min(number(self.range.broadcast()));
        (first <= last).then(|| (self.index(first), self.index(last)))
    }

    fn index(&self, address: u128) -> u32 {
        let offset = address - number(self.range.network());
        u32::try_from(offset.checked_shr(self.shift()).unwrap_or(0)).unwrap_or(u32::MAX)
    }

    fn piece(&self, index: u32) -> Option<IpNet> {
        let offset = u128::from(index).checked_shl(self.shift()).unwrap_or(0);
        let address = number(self.range.network()) + offset;
        let address = match self.range {
            IpNet::V4(_) => Ipv4Addr::from(u32::try_from(address).ok()?).into(),
            IpNet::V6(_) => Ipv6Addr::from(address).into(),
        };
        IpNet::new(address, self.mask).ok()
    }

    fn shift(&self) -> u32 {
        u32::from(self.range.max_prefix_len() - self.mask)
    }
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { range, mask, count } = self;
        match count {
            1 => write!(f, "{range} (1 piece of size /{mask})"),
            _ => write!(f, "{range} ({count} pieces of size /{mask})"),
        }
    }
}

/// Free subnets, lowest first.
#[derive(Debug)]
pub(super) struct Free<'a> {
    pool: &'a Pool,
    /// First and last used subnets, sorted.
    taken: Peekable<IntoIter<(u32, u32)>>,
    next: u32,
}

impl Iterator for Free<'_> {
    type Item = IpNet;

    fn next(&mut self) -> Option<IpNet> {
        while let Some((_, last)) = self.taken.next_if(|(first, _)| *first <= self.next) {
            self.next = self.next.max(last.saturating_add(1));
        }
        if self.next >= self.pool.count {
            return None;
        }
        self.next += 1;
        self.pool.piece(self.next - 1)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a range")
    }

    fn free(range: &str, mask: u8, taken: &[&str]) -> Vec<String> {
        let pool = Pool::new(net(range), (mask, mask)).expect("a pool");
        pool.free(taken.iter().map(|text| net(text))).take(3).map(|piece| piece.to_string()).collect()
    }

    #[test]
    fn the_lowest_free_subnets_come_first() {
        assert_eq!(free("10.244.0.0/16", 24, &[]), ["10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"]);
        let taken = ["10.244.1.0/24", "10.244.0.0/24", "10.244.3.128/25"];
        assert_eq!(free("10.244.0.0/16", 24, &taken), ["10.244.2.0/24", "10.244.4.0/24", "10.244.5.0/24"]);
        assert_eq!(free("fd00:10:244::/56", 64, &["fd00:10:244::/63"])[0], "fd00:10:244:2::/64");
        assert_eq!(free("fd00::/100", 108, &["fd00::/108"])[0], "fd00::10:0/108");
    }

    #[test]
    fn used_cidrs_may_be_larger_smaller_nested_or_disjoint() {
        assert_eq!(free("10.0.0.0/22", 24, &["10.0.0.0/23", "10.0.0.0/24", "10.0.0.7/32"])[0], "10.0.2.0/24");
        assert!(free("10.0.0.0/22", 24, &["10.0.0.0/8"]).is_empty());
        assert!(free("10.0.0.0/22", 24, &["0.0.0.0/0"]).is_empty());
        assert_eq!(free("10.0.0.0/22", 24, &["192.168.0.0/16", "fd00::/8", "9.0.0.0/8"])[0], "10.0.0.0/24");
    }

    #[test]
    fn subnets_are_counted_and_capped() {
        let count = |range: &str, masks| Pool::new(net(range), masks).map(|pool| pool.count);
        assert_eq!(count("fd00::/56", (24, 64)), Ok(256));
        assert_eq!(count("10.0.0.0/24", (24, 64)), Ok(1));
        assert_eq!(count("10.0.0.0/8", (28, 64)), Ok(65536));
        assert_eq!(count("::/0", (24, 128)), Ok(65536));
        let pool = Pool::new(net("10.0.0.0/8"), (28, 64)).expect("a pool");
        assert_eq!(pool.free([net("10.0.0.0/9")].into_iter()).count(), 0, "the cap is at the beginning of the range");
        assert_eq!(pool.free(std::iter::empty()).last(), Some(net("10.15.255.240/28")));
    }

    #[test]
    fn invalid_prefix_lengths_are_refused() {
        for (range, masks) in [("10.0.0.0/16", (12, 64)), ("10.0.0.0/16", (33, 64)), ("fd00::/64", (24, 56))] {
            assert!(Pool::new(net(range), masks).is_err(), "{range} {masks:?}");
        }
        assert_eq!(free("0.0.0.0/0", 0, &[]), ["0.0.0.0/0"]);
        assert_eq!(free("::/0", 0, &[]), ["::/0"]);
        assert_eq!(free("10.244.7.9/16", 24, &[])[0], "10.244.0.0/24", "host bits count for nothing");
    }
}
