//! Decimals of any size: digits and a power of ten.

use std::cmp::Ordering;
use std::fmt;

/// Digits that a result may have.
const LONGEST: i64 = 10_000;

/// A decimal. Digits are most significant first and have no leading zeros; zero has none at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let digits = if digits.is_empty() { "0" } else { &digits };
        if self.exponent == 0 { f.write_str(digits) } else { write!(f, "{digits}e{}", self.exponent) }
    }
}

impl Decimal {
    pub(super) fn new(value: i128, exponent: i64) -> Self {
        let digits = value.unsigned_abs().to_string().bytes().map(|byte| byte - b'0').collect();
        Self { negative: value < 0, digits, exponent }.normalized()
    }

    /// A sign, digits and at most one point.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|byte| byte.wrapping_sub(b'0')).collect();
        if digits.is_empty() || digits.iter().any(|digit| *digit > 9) {
            return None;
        }
        let exponent = -i64::try_from(fraction.len()).ok()?;
        Some(Self { negative, digits, exponent }.normalized())
    }

    fn normalized(mut self) -> Self {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        if self.digits.is_empty() {
            self.negative = false;
        }
        self
    }

    pub(super) fn exponent(&self) -> i64 {
        self.exponent
    }

    pub(super) fn digits_as_float(&self) -> f64 {
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let value: f64 = if digits.is_empty() { 0.0 } else { digits.parse().unwrap_or(f64::INFINITY) };
        if self.negative { -value } else { value }
    }

    /// Times a power of ten.
    pub(super) fn shifted(self, exponent: i64) -> Self {
        Self { exponent: self.exponent.saturating_add(exponent), ..self }
    }

    pub(super) fn times(&self, factor: u64) -> Self {
        let mut out = Vec::with_capacity(self.digits.len() + 20);
        let mut carry: u128 = 0;
        for digit in self.digits.iter().rev() {
            carry += u128::from(*digit) * u128::from(factor);
            out.push(u8::try_from(carry % 10).unwrap_or(0));
            carry /= 10;
        }
        while carry > 0 {
            out.push(u8::try_from(carry % 10).unwrap_or(0));
            carry /= 10;
        }
        out.reverse();
        Self { negative: self.negative, digits: out, exponent: self.exponent }.normalized()
    }

    /// At most this amount on either side of zero.
    pub(super) fn capped(self, most: i64) -> Self {
        let cap = Self::new(i128::from(most), 0);
        if self.order_of_amounts(&cap).is_gt() { Self { negative: self.negative, ..cap } } else { self }
    }

    /// With no digits below a power of ten; what is cut off is rounded away from zero.
    pub(super) fn rounded_up(self, exponent: i64) -> Self {
        if self.exponent >= exponent || self.digits.is_empty() {
            return self;
        }
        let cut = usize::try_from(exponent - self.exponent).unwrap_or(usize::MAX);
        let kept = self.digits.len().saturating_sub(cut);
        let rest_is_zero = self.digits.iter().skip(kept).all(|digit| *digit == 0);
        let kept = Self { digits: self.digits.into_iter().take(kept).collect(), exponent, negative: self.negative };
        if rest_is_zero {
            return kept.normalized();
        }
        let one = Self { negative: kept.negative, digits: vec![1], exponent };
        kept.plus(&one, false).unwrap_or(one)
    }

    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.order_of_amounts(other),
            (true, true) => other.order_of_amounts(self),
        }
    }

    /// The order without signs: by the power of the first digit, then by the digits.
    fn order_of_amounts(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let top =
            |decimal: &Self| decimal.exponent.saturating_add(i64::try_from(decimal.digits.len()).unwrap_or(i64::MAX));
        top(self).cmp(&top(other)).then_with(|| {
            let len = self.digits.len().max(other.digits.len());
            let digit = |decimal: &Self, at: usize| decimal.digits.get(at).copied().unwrap_or(0);
            (0..len)
                .map(|at| digit(self, at).cmp(&digit(other, at)))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        })
    }

    /// The sum, or with `negative` the difference; none if it has too many digits.
    pub(super) fn plus(&self, other: &Self, negative: bool) -> Option<Self> {
        let other = Self { negative: other.negative != negative, ..other.clone() };
        if other.digits.is_empty() {
            return Some(self.clone());
        }
        if self.digits.is_empty() {
            return Some(other);
        }
        let exponent = self.exponent.min(other.exponent);
        let (left, right) = (self.aligned(exponent)?, other.aligned(exponent)?);
        let (sign, digits) = if self.negative == other.negative {
            (self.negative, add(&left, &right))
        } else if self.order_of_amounts(&other).is_ge() {
            (self.negative, subtract(&left, &right))
        } else {
            (other.negative, subtract(&right, &left))
        };
        Some(Self { negative: sign, digits, exponent }.normalized())
    }

    /// The digits with zeros behind them, so that the last one has this power; least significant first.
    fn aligned(&self, exponent: i64) -> Option<Vec<u8>> {
        let zeros = self.exponent.checked_sub(exponent).filter(|zeros| *zeros <= LONGEST)?;
        let zeros = usize::try_from(zeros).ok()?;
        Some(std::iter::repeat_n(0, zeros).chain(self.digits.iter().rev().copied()).collect())
    }
}

/// Both numbers, and the result's order reversed: least significant digit first in, most significant first out.
fn add(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(left.len().max(right.len()) + 1);
    let mut carry = 0;
    for at in 0..left.len().max(right.len()) {
        let sum = left.get(at).copied().unwrap_or(0) + right.get(at).copied().unwrap_or(0) + carry;
        out.push(sum % 10);
        carry = sum / 10;
    }
    out.push(carry);
    out.reverse();
    out
}

/// The difference of a number and one that is not larger.
fn subtract(left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(left.len());
    let mut borrow = 0;
    for (at, digit) in left.iter().enumerate() {
        let take = right.get(at).copied().unwrap_or(0) + borrow;
        borrow = u8::from(*digit < take);
        out.push(digit + 10 * borrow - take);
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_integers(left in -1_000_000_000_i64..1_000_000_000, right in -1_000_000_000_i64..1_000_000_000, shift in 0_u32..6) {
            let factor = 10_i128.pow(shift);
            let (a, b) = (Decimal::new(i128::from(left), i64::from(shift)), Decimal::new(i128::from(right), 0));
            let (x, y) = (i128::from(left) * factor, i128::from(right));
            prop_assert_eq!(a.order(&b), x.cmp(&y));
            prop_assert_eq!(a.plus(&b, false).expect("a sum").order(&Decimal::new(x + y, 0)), Ordering::Equal);
            prop_assert_eq!(a.plus(&b, true).expect("a difference").order(&Decimal::new(x - y, 0)), Ordering::Equal);
            prop_assert_eq!(b.times(1024).order(&Decimal::new(y * 1024, 0)), Ordering::Equal);
        }
    }

    #[test]
    fn rounding_goes_away_from_zero() {
        let round = |text: &str| Decimal::parse(text).expect("a decimal").rounded_up(-9);
        assert_eq!(round("0.0000000001"), Decimal::new(1, -9));
        assert_eq!(round("-0.0000000011"), Decimal::new(-2, -9));
        assert_eq!(round("1.0000000000"), Decimal::new(1_000_000_000, -9));
    }
}
