//! A number, or a percentage of a number that is known later: `maxSurge: 1`, `maxSurge: 25%`.
//!
//! In: an `IntOrString` of an object. Out: what is wrong with it, and what it comes to of a whole.

use serde_json::Value;

use crate::field::{Errors, Path};

const BAD_PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
     '93%', regex used for validation is '[0-9]+%')";

/// A number of things, or a part of them all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Portion {
    /// A number.
    Count(i64),
    /// A percentage.
    Percent(i64),
}

/// Which way a part of a thing counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// As none.
    Down,
    /// As one.
    Up,
}

impl Portion {
    /// Reads an `IntOrString`; none when a string is no percentage.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self::Count(number.as_i64().unwrap_or_default())),
            Value::String(text) => {
                let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
                Some(Self::Percent(digits.parse().ok()?))
            }
            _ => None,
        }
    }

    /// What it comes to of a whole.
    #[must_use]
    pub fn of(self, whole: i64, rounding: Rounding) -> i64 {
        match (self, rounding) {
            (Self::Count(count), _) => count,
            (Self::Percent(percent), Rounding::Down) => whole.saturating_mul(percent).div_euclid(100),
            (Self::Percent(percent), Rounding::Up) => whole.saturating_mul(percent).saturating_add(99).div_euclid(100),
        }
    }

    /// The number that is written.
    #[must_use]
    pub const fn written(self) -> i64 {
        match self {
            Self::Count(number) | Self::Percent(number) => number,
        }
    }
}

/// Checks that a value is a number from nothing up, or a percentage.
pub(crate) fn validate(path: &Path<'_>, value: &Value, errors: &mut Errors) {
    match Portion::read(value) {
        None if value.is_string() => errors.invalid(path, value, BAD_PERCENT),
        Some(Portion::Count(count)) if count < 0 => {
            errors.invalid(path, count, "must be greater than or equal to 0");
        }
        _ => {}
    }
}

/// Checks that a percentage is no more than all.
pub(crate) fn validate_part(path: &Path<'_>, value: &Value, errors: &mut Errors) {
    if matches!(Portion::read(value), Some(Portion::Percent(101..))) {
        errors.invalid(path, value, "must not be greater than 100%");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_rounded_as_asked() {
        let of = |value: Value, whole, rounding| Portion::read(&value).map(|portion| portion.of(whole, rounding));
        assert_eq!(of(json!(3), 10, Rounding::Up), Some(3));
        assert_eq!(of(json!("25%"), 10, Rounding::Up), Some(3));
        assert_eq!(of(json!("25%"), 10, Rounding::Down), Some(2));
        assert_eq!(of(json!("25%"), 1, Rounding::Up), Some(1));
        assert_eq!(of(json!("0%"), 10, Rounding::Up), Some(0));
        assert_eq!(of(json!("100%"), 7, Rounding::Down), Some(7));
        for bad in [json!("25"), json!("%"), json!("x%"), json!("-1%"), json!(null)] {
            assert_eq!(Portion::read(&bad), None, "{bad}");
        }
    }
}
