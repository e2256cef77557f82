//! Partially known bytes, for evaluating rules on a packet of which not everything is known.
//!
//! In: bytes, known or not. Out: comparisons that are true, false or unknown.

use std::cmp::Ordering;

use super::Comparison;

/// Three-valued logic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Truth {
    Yes,
    No,
    Unclear,
}

impl Truth {
    pub(super) const fn of(is_true: bool) -> Self {
        if is_true { Self::Yes } else { Self::No }
    }

    pub(super) const fn negated(self, negate: bool) -> Self {
        match (self, negate) {
            (Self::Yes, true) => Self::No,
            (Self::No, true) => Self::Yes,
            (same, _) => same,
        }
    }
}

/// A byte and the mask of its known bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Bits {
    value: u8,
    known: u8,
}

impl Bits {
    pub(super) const UNKNOWN: Self = Self { value: 0, known: 0 };

    pub(super) const fn known(value: u8) -> Self {
        Self { value, known: 0xff }
    }

    /// With only these bits known.
    pub(super) const fn partly(value: u8, known: u8) -> Self {
        Self { value: value & known, known }
    }

    pub(super) const fn masked(self, mask: u8, xor: u8) -> Self {
        // Masked bits are zero, whatever they were.
        Self { value: (self.value & mask) ^ xor, known: self.known | !mask }
    }
}

/// The value of bytes that are all known.
pub(super) fn all(bytes: &[Bits]) -> Option<Vec<u8>> {
    bytes.iter().map(|byte| (byte.known == 0xff).then_some(byte.value)).collect()
}

/// Compares bytes with a value of the same length.
pub(super) fn compare(bytes: &[Bits], comparison: Comparison, value: &[u8]) -> Truth {
    let equal = || {
        let differs = bytes.iter().zip(value).any(|(byte, other)| (byte.value ^ other) & byte.known != 0);
        match differs {
            true => Truth::No,
            false if bytes.iter().all(|byte| byte.known == 0xff) => Truth::Yes,
            false => Truth::Unclear,
        }
    };
    let ordered = |wanted: fn(Ordering) -> bool| {
        all(bytes).map_or(Truth::Unclear, |known| Truth::of(wanted(known.as_slice().cmp(value))))
    };
    match comparison {
        Comparison::Equal => equal(),
        Comparison::Unequal => equal().negated(true),
        Comparison::Less => ordered(Ordering::is_lt),
        Comparison::AtMost => ordered(Ordering::is_le),
        Comparison::More => ordered(Ordering::is_gt),
        Comparison::AtLeast => ordered(Ordering::is_ge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_differing_known_bit_decides_despite_unknown_bits() {
        let bytes = [Bits::partly(0b0100, 0b0110), Bits::UNKNOWN];
        assert_eq!(compare(&bytes, Comparison::Equal, &[0b0010, 0]), Truth::No);
        assert_eq!(compare(&bytes, Comparison::Equal, &[0b0100, 0]), Truth::Unclear);
        assert_eq!(compare(&bytes, Comparison::Unequal, &[0b0010, 0]), Truth::Yes);
        assert_eq!(compare(&bytes, Comparison::Less, &[9, 9]), Truth::Unclear);
    }

    #[test]
    fn masked_bits_are_known() {
        let byte = Bits::partly(0b0100, 0b0110).masked(0b0100, 0);
        assert_eq!(compare(&[byte], Comparison::Equal, &[0b0100]), Truth::Yes);
        assert_eq!(compare(&[Bits::UNKNOWN.masked(0, 7)], Comparison::Equal, &[7]), Truth::Yes);
    }
}
