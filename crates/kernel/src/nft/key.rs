//! Keys and data of sets, in the byte layout of the kernel.
//!
//! A key of one part is that part. In a concatenation each part is padded to four bytes. Addresses and ports are in
//! network order; random numbers are in host order, as the kernel generates them.

use std::net::IpAddr;
use std::ops::Range;

use crate::Family;

/// Type of a key part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Type {
    /// An address of the table's family.
    Address,
    /// IP protocol.
    Protocol,
    /// A port.
    Port,
    /// A number below some bound: random, counted or hashed.
    Random,
}

impl Type {
    /// How many bytes it has.
    #[must_use]
    pub fn len(self, family: Family) -> usize {
        match self {
            Self::Address => family.address_len(),
            Self::Protocol => 1,
            Self::Port => 2,
            Self::Random => 4,
        }
    }
}

/// Length in bytes of a key or data of these types.
pub(crate) fn packed_len(types: &[Type], family: Family) -> usize {
    match types {
        [one] => one.len(family),
        several => several.iter().map(|one| one.len(family).next_multiple_of(4)).sum(),
    }
}

/// A part of a key or of data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// An address.
    Address(IpAddr),
    /// A protocol: 6 is TCP, 17 UDP, 132 SCTP.
    Protocol(u8),
    /// A port.
    Port(u16),
    /// A random number.
    Random(u32),
}

impl Part {
    /// Appends its bytes.
    fn append(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(address)) => bytes.extend_from_slice(&address.octets()),
            Self::Address(IpAddr::V6(address)) => bytes.extend_from_slice(&address.octets()),
            Self::Protocol(protocol) => bytes.push(protocol),
            Self::Port(port) => bytes.extend_from_slice(&port.to_be_bytes()),
            Self::Random(number) => bytes.extend_from_slice(&number.to_ne_bytes()),
        }
    }
}

/// The bytes of a key or of data.
pub(crate) fn pack(parts: &[Part]) -> Box<[u8]> {
    // The length of a concatenation is known, which avoids a copy at the end.
    let length = |part: &Part| if matches!(part, Part::Address(IpAddr::V6(_))) { 16 } else { 4 };
    let mut bytes = Vec::with_capacity(parts.iter().map(length).sum());
    for part in parts {
        part.append(&mut bytes);
        if parts.len() > 1 {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
    }
    bytes.into()
}

/// A key of a set: a value, or a range in each part.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The value, or the start of the range.
    pub start: Box<[u8]>,
    /// Inclusive end of the range.
    pub end: Option<Box<[u8]>>,
}

impl Key {
    /// A single value.
    #[must_use]
    pub fn new(parts: &[Part]) -> Self {
        Self { start: pack(parts), end: None }
    }

    /// A range: each part between its inclusive ends. Only for interval sets.
    #[must_use]
    pub fn range(from: &[Part], to: &[Part]) -> Self {
        Self::between(pack(from), pack(to))
    }

    /// A range from bytes. A range of one value is that value.
    pub(crate) fn between(start: Box<[u8]>, end: Box<[u8]>) -> Self {
        let end = (start != end).then_some(end);
        Self { start, end }
    }

    /// Inclusive end; for a value the value itself.
    #[must_use]
    pub fn last(&self) -> &[u8] {
        self.end.as_ref().unwrap_or(&self.start)
    }

    /// Whether two keys overlap: each part of one overlaps the same part of the other.
    pub(crate) fn meets(&self, other: &Self, types: &[Type], family: Family) -> bool {
        parts_all(types, family, |part| {
            let ends = [&*self.start, self.last(), &*other.start, other.last()].map(|bytes| bytes.get(part.clone()));
            let [Some(start), Some(last), Some(others_start), Some(others_last)] = ends else { return false };
            start <= others_last && others_start <= last
        })
    }

    /// Whether it contains this value.
    pub(crate) fn contains(&self, value: &[u8], types: &[Type], family: Family) -> bool {
        parts_all(types, family, |part| {
            let [start, value, last] = [&*self.start, value, self.last()].map(|bytes| bytes.get(part.clone()));
            start <= value && value <= last && value.is_some()
        })
    }
}

/// Whether a predicate holds for the byte range of every part.
fn parts_all(types: &[Type], family: Family, is_true: impl Fn(Range<usize>) -> bool) -> bool {
    let mut at = 0;
    types.iter().all(|one| {
        let part = at..at + one.len(family);
        at = part.end.next_multiple_of(4);
        is_true(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Part {
        Part::Address(text.parse().expect("an address"))
    }

    #[test]
    fn parts_are_padded_only_in_concatenations() {
        assert_eq!(&*Key::new(&[Part::Port(80)]).start, [0, 80]);
        let key = Key::new(&[address("10.0.0.1"), Part::Protocol(6), Part::Port(80), Part::Random(2)]);
        let index = 2u32.to_ne_bytes();
        assert_eq!(key.start[..12], [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(key.start[12..], index);
        let types = [Type::Address, Type::Protocol, Type::Port, Type::Random];
        assert_eq!(key.start.len(), packed_len(&types, Family::Ip));
        assert_eq!(packed_len(&types, Family::Ip6), 28);
    }

    #[test]
    fn a_range_of_one_value_is_the_value() {
        assert_eq!(Key::range(&[address("10.0.0.1")], &[address("10.0.0.1")]), Key::new(&[address("10.0.0.1")]));
    }

    #[test]
    fn ranges_overlap_when_all_their_parts_do() {
        let types = [Type::Port, Type::Address];
        let range = |port, from, to| Key::range(&[Part::Port(port), address(from)], &[Part::Port(port), address(to)]);
        let one = range(80, "10.0.0.0", "10.0.0.255");
        assert!(one.meets(&range(80, "10.0.0.255", "10.0.1.0"), &types, Family::Ip));
        assert!(!one.meets(&range(80, "10.0.1.0", "10.0.1.0"), &types, Family::Ip));
        assert!(!one.meets(&range(81, "10.0.0.0", "10.0.0.255"), &types, Family::Ip));
        assert!(one.contains(&range(80, "10.0.0.9", "10.0.0.9").start, &types, Family::Ip));
        assert!(!one.contains(&range(81, "10.0.0.9", "10.0.0.9").start, &types, Family::Ip));
    }
}
