//! Durations as Go writes them (`1h30m0s`).
//!
//! In: text with units, or nanoseconds from protobuf. Out: nanoseconds, and the one spelling that is stored.

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration into nanoseconds.
///
/// # Errors
/// Go's error message.
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let (digits, tail) = rest.split_at(number);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (name, after) = tail.split_at(unit);
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, scale)) = UNITS.iter().find(|(known, _)| *known == name) else {
            return Err(format!("time: unknown unit {name:?} in duration {text:?}"));
        };
        total += nanos(whole, fraction, *scale).ok_or_else(invalid)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn nanos(whole: &str, fraction: &str, scale: u64) -> Option<i128> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen places are finer than a nanosecond of an hour; the rest cannot change the result.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let part: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let divisor = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some(i128::from(whole) * i128::from(scale) + i128::from(part) * i128::from(scale) / divisor)
}

/// The canonical spelling.
#[must_use]
pub fn print(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let abs = nanos.unsigned_abs();
    let (unit, name) = match abs {
        0 => return "0s".to_owned(),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => {
            let (seconds, rest) = (abs / 1_000_000_000, abs % 1_000_000_000);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let tail = format!("{}s", decimal(seconds % 60, rest, 9));
            return match (hours, minutes) {
                (0, 0) => format!("{sign}{tail}"),
                (0, _) => format!("{sign}{minutes}m{tail}"),
                _ => format!("{sign}{hours}h{minutes}m{tail}"),
            };
        }
    };
    let places = if unit == 1 { 0 } else { unit.to_string().len() - 1 };
    format!("{sign}{}{name}", decimal(abs / unit, abs % unit, places))
}

fn decimal(whole: u64, rest: u64, places: usize) -> String {
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:0places$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spelled_as_go_does() {
        for (given, canonical) in [
            ("0", "0s"),
            ("90s", "1m30s"),
            ("1.5h", "1h30m0s"),
            ("1h0.5s", "1h0m0.5s"),
            ("1500us", "1.5ms"),
            ("-3m", "-3m0s"),
            ("12ns", "12ns"),
        ] {
            assert_eq!(parse(given).map(print).as_deref(), Ok(canonical));
        }
    }

    #[test]
    fn what_is_no_duration_is_told() {
        assert_eq!(parse(""), Err("time: invalid duration \"\"".into()));
        assert_eq!(parse("5"), Err("time: missing unit in duration \"5\"".into()));
        assert_eq!(parse("5x"), Err("time: unknown unit \"x\" in duration \"5x\"".into()));
        assert!(parse("99999999999999999999h").is_err());
        assert!(parse(".s").is_err());
    }
}
