//! Numbers: exact conversions, and how Go writes doubles.

/// The integer that a double is, if it is one.
pub(crate) fn exact_int(value: f64) -> Option<i64> {
    to_int(value).filter(|int| from_int(*int) == value)
}

/// The unsigned integer that a double is, if it is one.
pub(crate) fn exact_uint(value: f64) -> Option<u64> {
    to_uint(value).filter(|uint| from_uint(*uint) == value)
}

/// A double without its fraction, if it is in the range of integers.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(crate) fn to_int(value: f64) -> Option<i64> {
    (value > from_int(i64::MIN) && value < from_int(i64::MAX)).then_some(value as i64)
}

/// A double without its fraction, if it is in the range of unsigned integers.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
pub(crate) fn to_uint(value: f64) -> Option<u64> {
    (value >= 0.0 && value < from_uint(u64::MAX)).then_some(value as u64)
}

/// The double nearest to an integer.
#[expect(clippy::cast_precision_loss, reason = "rounding is what the language wants")]
pub(crate) fn from_int(value: i64) -> f64 {
    value as f64
}

/// The double nearest to an unsigned integer.
#[expect(clippy::cast_precision_loss, reason = "rounding is what the language wants")]
pub(crate) fn from_uint(value: u64) -> f64 {
    value as f64
}

/// The number of elements as an integer.
pub(crate) fn size(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// The shortest digits that stand for a double, with an exponent where Go's `%g` has one.
#[must_use]
pub fn shortest(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_with_the_fewest_digits() {
        let cases = [
            (1_234_567.0, "1.234567e+06"),
            (123_456.0, "123456"),
            (0.000_01, "1e-05"),
            (0.000_1, "0.0001"),
            (1e100, "1e+100"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, wanted) in cases {
            assert_eq!(shortest(value), wanted);
        }
    }

    #[test]
    fn doubles_are_integers_only_if_nothing_is_lost() {
        assert_eq!(exact_int(3.0), Some(3));
        assert_eq!(exact_int(3.5), None);
        assert_eq!(exact_int(1e300), None);
        assert_eq!(exact_uint(-1.0), None);
        assert_eq!(to_int(f64::NAN), None);
        assert_eq!(to_uint(18_446_744_073_709_551_616.0), None);
    }
}
