//! Resource quantities (`500m`, `1Gi`) in the one spelling the server stores.
//!
//! In: the client's string. Out: the canonical string, or Go's error message. Decimal amounts are kept as digits and an
//! exponent, so no size is too big and nothing is rounded except below a nano, which rounds up: a non-zero request stays
//! non-zero. [`Amount`] is the type for arithmetic.

mod amount;

pub use amount::Amount;

/// The text does not look like a quantity.
const FORMAT: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// The text has an unknown suffix.
const SUFFIX: &str = "unable to parse quantity's suffix";
/// The number is not one.
const NUMERIC: &str = "unable to parse numeric part of quantity";

const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: &[(&str, i64)] =
    &[("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// The finest exponent that is kept.
const NANO: i64 = -9;
/// Digits beyond which kube-apiserver leaves its fast path; only there is a spelling taken over as it is.
const FAST_DIGITS: usize = 18;

/// How many billionths make one.
const NANOS: u128 = 1_000_000_000;

/// How an amount is spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// `12e6`.
    Exponent,
    /// `12M`.
    Decimal,
    /// `12Mi`.
    Binary,
}

/// A number taken apart.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    format: Format,
    /// The power of ten of the suffix.
    exponent: i64,
    /// The power of two of the suffix.
    shift: u32,
}

/// The canonical spelling of a quantity.
///
/// # Errors
/// Go's error message.
pub fn canonical(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Err(FORMAT);
    }
    let parts = split(text)?;
    if parts.is_spelled_well() {
        return Ok(text.to_owned());
    }
    Ok(match parts.format {
        Format::Binary => print(parts.negative, parts.binary_nanos(), Format::Binary),
        _ => parts.print_decimal(),
    })
}

/// A quantity in thousandths, rounded up; none when it is no quantity, nothing when it is below nothing. What is too large
/// to be counted counts as the largest number of 63 bits.
#[must_use]
pub fn thousandths(text: &str) -> Option<u64> {
    Amount::parse(text).ok().map(|amount| amount.thousandths().max(0).unsigned_abs())
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let digits_end = |from: usize| text[from..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |at| from + at);
    let start = usize::from(text.starts_with(['+', '-']));
    let whole_end = digits_end(start);
    let (fraction, tail) = match text[whole_end..].strip_prefix('.') {
        Some(_) => {
            let end = digits_end(whole_end + 1);
            (&text[whole_end + 1..end], &text[end..])
        }
        None => ("", &text[whole_end..]),
    };
    let whole = &text[start..whole_end];
    let letters = tail.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(tail.len());
    let sign = usize::from(tail[letters..].starts_with(['+', '-']));
    if tail[letters + sign..].contains(|c: char| !c.is_ascii_digit()) {
        return Err(FORMAT);
    }
    let (format, exponent, shift) = suffix(tail)?;
    if whole.is_empty() && fraction.is_empty() {
        return Err(NUMERIC);
    }
    let whole = whole.trim_start_matches('0');
    Ok(Parts { negative: text.starts_with('-'), whole, fraction, format, exponent, shift })
}

/// What a suffix means: how the amount is spelled, the power of ten, and the power of two.
fn suffix(text: &str) -> Result<(Format, i64, u32), &'static str> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == text) {
        return Ok((Format::Decimal, *exponent, 0));
    }
    if let Some((_, shift)) = BINARY.iter().find(|(name, _)| *name == text) {
        return Ok((Format::Binary, 0, *shift));
    }
    let exponent = text.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok()).ok_or(SUFFIX)?;
    Ok((Format::Exponent, i64::from(exponent), 0))
}

impl Parts<'_> {
    /// Whether Kubernetes keeps the spelling instead of printing the amount anew. It checks the digits only, so `1.500`
    /// and `+5` stay as they are.
    fn is_spelled_well(&self) -> bool {
        let whole_digits = self.whole.len().max(1);
        match self.format {
            Format::Binary => {
                let room = 14_i64 - whole_digits as i64 - i64::from(self.shift) * 3 / 10;
                let odd = self.whole.parse::<u64>().is_ok_and(|value| value & 7 != 0);
                self.fraction.is_empty() && room >= 0 && odd
            }
            _ => {
                let exponent = self.exponent - self.fraction.len() as i64;
                let last = self.fraction.len().min(3);
                let zeros = if self.fraction.len() >= 3 {
                    self.fraction.ends_with("000")
                } else {
                    self.fraction[self.fraction.len() - last..].bytes().all(|byte| byte == b'0')
                        && self.whole.ends_with(&"000"[last..])
                };
                whole_digits + self.fraction.len() <= FAST_DIGITS
                    && exponent >= NANO
                    && exponent % 3 == 0
                    && !zeros
                    && !self.whole.is_empty()
            }
        }
    }

    /// The amount as digits without trailing zeros, times a power of ten.
    fn amount(&self) -> (String, i64) {
        let mut digits = format!("{}{}", self.whole, self.fraction);
        let mut exponent = self.exponent - self.fraction.len() as i64;
        if exponent < NANO {
            let cut = usize::try_from(NANO - exponent).unwrap_or(usize::MAX).min(digits.len());
            let dropped = digits.split_off(digits.len() - cut);
            exponent = NANO;
            if dropped.bytes().any(|byte| byte != b'0') {
                digits = add_one(&digits);
            }
        }
        let trimmed = digits.trim_end_matches('0').len();
        exponent += (digits.len() - trimmed) as i64;
        digits.truncate(trimmed);
        (digits.trim_start_matches('0').to_owned(), exponent)
    }

    fn print_decimal(&self) -> String {
        let (digits, exponent) = self.amount();
        print_digits(self.negative, digits, exponent, self.format)
    }

    /// A binary amount in billionths, rounded up; capped at the largest int64 of whole ones.
    fn binary_nanos(&self) -> u128 {
        let limit = u128::from(i64::MAX.unsigned_abs());
        // Twenty digits of a whole number are past the cap already; so many of a fraction are finer than a nano.
        let whole: u128 = if self.whole.len() > 20 { limit } else { self.whole.parse().unwrap_or(0) };
        let fraction = self.fraction.get(..self.fraction.len().min(18)).unwrap_or("");
        let (mut divisor, mut part) = (1_u128, 0_u128);
        for byte in fraction.bytes() {
            divisor *= 10;
            part = part * 10 + u128::from(byte - b'0');
        }
        let scaled = part << self.shift;
        let value = (whole << self.shift) + scaled / divisor;
        if value >= limit {
            return limit * NANOS;
        }
        value * NANOS + (scaled % divisor * NANOS).div_ceil(divisor)
    }
}

/// Billionths in their canonical spelling. Binary suffixes are for whole numbers of at least 1024.
fn print(negative: bool, nanos: u128, format: Format) -> String {
    if format != Format::Binary {
        return print_digits(negative, nanos.to_string(), NANO, format);
    }
    let whole = nanos / NANOS;
    if !nanos.is_multiple_of(NANOS) || whole < 1024 {
        return print_digits(negative, nanos.to_string(), NANO, Format::Decimal);
    }
    let (mut value, mut step) = (whole, 0);
    while value.is_multiple_of(1024) && step < BINARY.len() {
        value /= 1024;
        step += 1;
    }
    let suffix = step.checked_sub(1).and_then(|index| BINARY.get(index)).map_or("", |(name, _)| name);
    format!("{}{value}{suffix}", sign(negative))
}

/// Digits times a power of ten, with the nearest suffix below.
fn print_digits(negative: bool, mut digits: String, mut exponent: i64, format: Format) -> String {
    let trimmed = digits.trim_end_matches('0').len();
    if trimmed == 0 {
        return "0".to_owned();
    }
    exponent += (digits.len() - trimmed) as i64;
    digits.truncate(trimmed);
    let shift = exponent.rem_euclid(3);
    digits.extend(std::iter::repeat_n('0', usize::try_from(shift).unwrap_or(0)));
    let exponent = exponent - shift;
    let suffix = match format {
        Format::Exponent if exponent == 0 => String::new(),
        Format::Exponent => format!("e{exponent}"),
        // Beyond exa kube-apiserver has no suffix and prints none.
        _ => DECIMAL.iter().find(|(_, known)| *known == exponent).map_or("", |(name, _)| name).to_owned(),
    };
    format!("{}{digits}{suffix}", sign(negative))
}

const fn sign(negative: bool) -> &'static str {
    if negative { "-" } else { "" }
}

fn add_one(digits: &str) -> String {
    let kept = digits.trim_end_matches('9');
    let zeros = "0".repeat(digits.len() - kept.len());
    match kept.chars().last() {
        Some(last) => {
            let next = char::from(last as u8 + 1);
            format!("{}{next}{zeros}", &kept[..kept.len() - 1])
        }
        None => format!("1{zeros}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_have_one_spelling() {
        for (given, expected) in [
            ("0", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1024Ki", "1Mi"),
            ("1025Ki", "1025Ki"),
            ("8Ki", "8Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1000", "1k"),
            ("100000k", "100M"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("12e4", "120e3"),
            ("1.500", "1.500"),
            ("+5", "+5"),
            ("-2000m", "-2"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("0Ki", "0"),
            ("16Ei", "9223372036854775807"),
            (" 100m ", "100m"),
            ("1.G", "1.G"),
            (".5", "500m"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("1Ei", "1Ei"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_told() {
        assert_eq!(canonical(""), Err(FORMAT));
        assert_eq!(canonical("abc"), Err(FORMAT));
        assert_eq!(canonical("1Kb"), Err(FORMAT));
        assert_eq!(canonical("1Mm"), Err(SUFFIX));
        assert_eq!(canonical("1e99999999999"), Err(SUFFIX));
        assert_eq!(canonical("."), Err(NUMERIC));
    }

    proptest! {
        #[test]
        fn a_canonical_spelling_stays(text in "[+-]?[0-9]{0,25}(\\.[0-9]{0,25})?([numkMGTPE]|[KMGTPE]i|e-?[0-9]{1,3})?") {
            if let Ok(first) = canonical(&text) {
                // Past exa kube-apiserver loses the suffix; everything else is stable.
                prop_assert_eq!(canonical(&first).map(|_| ()), Ok(()));
                if !first.ends_with('0') {
                    prop_assert_eq!(canonical(&first), Ok(first.clone()));
                }
            }
        }

        #[test]
        fn nothing_panics(text in "\\PC*") {
            let _ = canonical(&text);
        }
    }

    #[test]
    fn amounts_are_counted_in_thousandths() {
        for (text, value) in [
            ("1", 1000),
            ("1.5", 1500),
            ("250m", 250),
            ("1u", 1),
            ("1Ki", 1_024_000),
            ("64Mi", 64 * 1024 * 1024 * 1000),
            ("2e3", 2_000_000),
            ("0", 0),
            ("-1", 0),
            ("9E", i64::MAX.unsigned_abs()),
            ("9E9", 9_000_000_000_000),
        ] {
            assert_eq!(thousandths(text), Some(value), "{text}");
        }
        assert_eq!((thousandths("much"), thousandths("")), (None, None));
    }
}
