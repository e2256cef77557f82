//! An amount of a resource, to be added, subtracted and compared.
//!
//! In: the text of a quantity. Out: exact fixed-point arithmetic with nine decimal places, printed in canonical form.
//! An amount that was parsed and not changed keeps its spelling. Arithmetic saturates at 127 bits of billionths, about
//! 1.7e29.

use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use super::{FORMAT, Format, NANOS, print, split};

const SIGNED_NANOS: i128 = NANOS.cast_signed();

/// An amount. Comparison is by value, whatever the spelling: `1Gi` equals `1024Mi`.
#[derive(Clone, Debug)]
pub struct Amount {
    nanos: i128,
    format: Format,
    /// The text it was parsed from, if that is canonical and no arithmetic was done since.
    text: Option<Box<str>>,
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, format: Format::Decimal, text: None };

    /// A whole number.
    #[must_use]
    pub fn whole(number: i64) -> Self {
        Self { nanos: i128::from(number) * SIGNED_NANOS, ..Self::ZERO }
    }

    /// Reads a quantity.
    ///
    /// # Errors
    /// Go's error message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err(FORMAT);
        }
        let parts = split(text)?;
        let magnitude = if parts.format == Format::Binary {
            parts.binary_nanos()
        } else {
            let (digits, exponent) = parts.amount();
            decimal_nanos(&digits, exponent)
        };
        let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
        // A binary amount below one is printed with decimal suffixes, also in later sums.
        let small = (1..SIGNED_NANOS).contains(&magnitude);
        Ok(Self {
            nanos: if parts.negative { -magnitude } else { magnitude },
            format: if parts.format == Format::Binary && small { Format::Decimal } else { parts.format },
            text: parts.is_spelled_well().then(|| text.into()),
        })
    }

    /// The quantity in a JSON value; zero when the value is no quantity.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Ok(Self::ZERO),
        }
        .unwrap_or(Self::ZERO)
    }

    /// Adds another amount. The sum has the format of the first summand that is not zero.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, other.nanos);
    }

    /// Subtracts another amount.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, other.nanos.saturating_neg());
    }

    fn combine(&mut self, other: &Self, nanos: i128) {
        if self.nanos == 0 {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_add(nanos);
        self.text = None;
    }

    /// Whether it is zero.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below zero.
    #[must_use]
    pub const fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// The value as an integer, rounded away from zero, saturating.
    #[must_use]
    pub fn value(&self) -> i64 {
        clamp(round(self.nanos, SIGNED_NANOS))
    }

    /// The value in thousandths, rounded away from zero, saturating.
    #[must_use]
    pub fn thousandths(&self) -> i64 {
        clamp(self.exact_thousandths())
    }

    /// Whether it is an integer after rounding to thousandths, as kube-apiserver checks it.
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.exact_thousandths() % 1000 == 0
    }

    fn exact_thousandths(&self) -> i128 {
        round(self.nanos, SIGNED_NANOS / 1000)
    }

    /// The amount rounded away from zero to an integer.
    #[must_use]
    pub fn rounded(self) -> Self {
        let nanos = round(self.nanos, SIGNED_NANOS).saturating_mul(SIGNED_NANOS);
        if nanos == self.nanos { self } else { Self { nanos, text: None, ..self } }
    }
}

/// Digits times a power of ten, in billionths, saturating.
fn decimal_nanos(digits: &str, exponent: i64) -> u128 {
    if digits.is_empty() {
        return 0;
    }
    let power = u32::try_from(exponent - super::NANO).ok().and_then(|power| 10_u128.checked_pow(power));
    digits.parse::<u128>().ok().zip(power).and_then(|(digits, power)| digits.checked_mul(power)).unwrap_or(u128::MAX)
}

fn round(number: i128, divisor: i128) -> i128 {
    number / divisor + (number % divisor).signum()
}

fn clamp(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

impl Display for Amount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&print(self.nanos < 0, self.nanos.unsigned_abs(), self.format)),
        }
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn sum(a: &str, b: &str) -> String {
        let mut sum = amount(a);
        sum.add(&amount(b));
        sum.to_string()
    }

    #[test]
    fn sums_have_the_format_of_the_first_summand() {
        for (a, b, expected) in [
            ("0", "512Mi", "512Mi"),
            ("512Mi", "512Mi", "1Gi"),
            ("600m", "400m", "1"),
            ("1Gi", "1", "1073741825"),
            ("1", "1Gi", "1073741825"),
            ("1Ki", "500m", "1024500m"),
            ("1k", "24", "1024"),
            ("1e3", "1", "1001"),
            ("1e3", "1k", "2e3"),
            ("1.500", "0", "1500m"),
            ("0.0001Ki", "1Ki", "1024102400u"),
            ("-1", "1", "0"),
            ("100m", "1n", "100000001n"),
            ("9223372036854775807", "1", "9223372036854775808"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn differences() {
        for (a, b, expected) in [("1Gi", "512Mi", "512Mi"), ("1", "1500m", "-500m"), ("0", "1Ki", "-1Ki")] {
            let mut difference = amount(a);
            difference.subtract(&amount(b));
            assert_eq!(difference.to_string(), expected, "{a} - {b}");
        }
    }

    #[test]
    fn amounts_compare_by_value() {
        assert_eq!(amount("1Gi"), amount("1024Mi"));
        assert!(amount("1G") < amount("1Gi") && amount("-1") < Amount::ZERO);
        assert!(amount("1e30") >= amount("1e29"), "arithmetic saturates");
    }

    #[test]
    fn numbers_are_rounded_away_from_zero() {
        let numbers = |text: &str| (amount(text).value(), amount(text).thousandths());
        assert_eq!(numbers("1.0001"), (2, 1001));
        assert_eq!(numbers("-1.0001"), (-2, -1001));
        assert_eq!(numbers("1e30"), (i64::MAX, i64::MAX));
        assert_eq!(amount("1.5Ki").rounded().to_string(), "1536");
        assert_eq!(amount("0.1Ki").rounded().to_string(), "103");
        assert!(amount("10P").is_integer() && amount("0.9999").is_integer() && !amount("1u").is_integer());
    }

    #[test]
    fn what_is_no_quantity_is_zero() {
        assert!(Amount::of(&Value::Null).is_zero() && Amount::of(&"x".into()).is_zero());
        assert_eq!(Amount::of(&2.into()), Amount::whole(2));
    }

    proptest! {
        // Eleven digits: amounts from about 1.7e29 on are saturated.
        #[test]
        fn an_amount_is_printed_as_the_canonical_text(
            text in "[+-]?[0-9]{0,11}(\\.[0-9]{0,12})?([numkMGTPE]|[KMGTPE]i|e-?[0-9])?",
        ) {
            prop_assert_eq!(
                Amount::parse(&text).map(|amount| amount.to_string()),
                super::super::canonical(&text)
            );
        }

        #[test]
        fn subtraction_reverts_addition(a in any::<i64>(), b in "[0-9]{1,9}(\\.[0-9]{1,9})?(m|Mi|e3)?") {
            let (before, other) = (Amount::whole(a), amount(&b));
            let mut after = before.clone();
            after.add(&other);
            prop_assert!(other.is_zero() || after > before);
            after.subtract(&other);
            prop_assert_eq!(after, before);
        }

        #[test]
        fn nothing_panics(text in "\\PC*") {
            if let Ok(amount) = Amount::parse(&text) {
                let _ = (amount.to_string(), amount.value(), amount.rounded());
            }
        }
    }
}
