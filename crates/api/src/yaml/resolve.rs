//! What a plain word means in YAML 1.1, as go-yaml reads it.

use serde_json::{Number, Value};

/// The meaning of a plain scalar.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    /// A number; an integral one is an integer however it was written.
    Number(Number),
    /// Infinity or not a number, which JSON cannot say.
    NotFinite,
    /// A date; it stays a string, but needs quotes to be one.
    Timestamp,
    Text,
}

/// Finds the meaning of a plain scalar.
pub(super) fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Plain::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Plain::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Plain::NotFinite,
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => float(text).unwrap_or(Plain::Text),
        b'+' | b'-' | b'0'..=b'9' => {
            if is_timestamp(text) {
                return Plain::Timestamp;
            }
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| float(&plain)).unwrap_or(Plain::Text)
        }
        _ => Plain::Text,
    }
}

/// The JSON of a number; integral floats become integers, as Go prints them.
fn number(value: f64) -> Option<Plain> {
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    if !value.is_finite() {
        return None;
    }
    if value.fract() == 0.0 && value.abs() <= LIMIT {
        return Some(Plain::Number((value as i64).into()));
    }
    Number::from_f64(value).map(Plain::Number)
}

/// Hexadecimal, octal (`0o17` and `017`), binary and decimal.
fn integer(text: &str) -> Option<Plain> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let value = if negative { -value } else { value };
    i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from)).ok().map(Plain::Number)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn float(text: &str) -> Option<Plain> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let good = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    if good { number(text.parse().ok()?) } else { None }
}

/// `2006-1-2`, with or without a time of day.
fn is_timestamp(text: &str) -> bool {
    let scan = || {
        let (year, rest) = text.split_at_checked(4)?;
        if !year.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (month, rest) = small(rest.strip_prefix('-')?, 12)?;
        let (day, rest) = small(rest.strip_prefix('-')?, 31)?;
        if month == 0 || day == 0 {
            return None;
        }
        if rest.is_empty() {
            return Some(());
        }
        let zoned = rest.starts_with(['T', 't']);
        let (_, rest) = small(rest.strip_prefix(['T', 't', ' '])?, 23)?;
        let (_, rest) = small(rest.strip_prefix(':')?, 59)?;
        let (_, rest) = small(rest.strip_prefix(':')?, 59)?;
        let rest = match rest.strip_prefix('.') {
            Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => rest,
        };
        if !zoned {
            return rest.is_empty().then_some(());
        }
        if rest == "Z" {
            return Some(());
        }
        let (_, rest) = small(rest.strip_prefix(['+', '-'])?, 24)?;
        let (_, rest) = small(rest.strip_prefix(':')?, 59)?;
        rest.is_empty().then_some(())
    };
    scan().is_some()
}

/// One or two digits up to a limit, and what follows.
fn small(text: &str, limit: u8) -> Option<(u8, &str)> {
    let count = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let value = text[..count].parse().ok().filter(|value| *value <= limit)?;
    Some((value, &text[count..]))
}

/// A number in base 60, which other readers of YAML 1.1 would see (`12:30`).
pub(super) fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !first.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return false;
    }
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return false;
    }
    while let Some(part) = parts.next() {
        let (digits, tail) = match part.split_once('.') {
            Some((digits, tail)) if parts.peek().is_none() => (digits, tail),
            Some(_) => return false,
            None => (part, ""),
        };
        let sexagesimal = match digits.as_bytes() {
            [low] => low.is_ascii_digit(),
            [high, low] => (b'0'..=b'5').contains(high) && low.is_ascii_digit(),
            _ => false,
        };
        if !sexagesimal || !tail.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
            return false;
        }
    }
    true
}

impl Plain {
    /// The value of a plain scalar; none when JSON has no such number.
    pub(super) fn into_value(self, text: &str) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => flag.into(),
            Self::Number(number) => Value::Number(number),
            Self::NotFinite => return None,
            Self::Timestamp | Self::Text => text.into(),
        })
    }
}
