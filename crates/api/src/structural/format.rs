//! `format`: which formats of strings are known, and which strings have them.
//!
//! The checks accept exactly what Kubernetes accepts, including its oddities; unknown formats restrict nothing.

mod email;
mod number;

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use regex::bytes::Regex;
use serde_json::Value;

use crate::value::ValueExt as _;

/// A check of a format.
type Check = fn(&str) -> bool;

/// Formats of strings by name without dashes, sorted.
const FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", |text| text.len() == 24 && is_hex(text)),
    ("byte", is_base64),
    ("cidr", is_cidr),
    ("creditcard", number::is_credit_card),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", email::is_email),
    (
        "hexcolor",
        |text| matches!(text.strip_prefix('#').unwrap_or(text), hex if matches!(hex.len(), 3 | 6) && is_hex(hex)),
    ),
    ("hostname", is_hostname),
    ("ipv4", |text| text.contains('.') && crate::ip::parse_lenient(text).is_some()),
    ("ipv6", |text| text.contains(':') && text.parse::<IpAddr>().is_ok()),
    ("isbn", |text| number::is_isbn10(text) || number::is_isbn13(text)),
    ("isbn10", number::is_isbn10),
    ("isbn13", number::is_isbn13),
    ("k8slongname", |text| text.len() <= 253 && text.split('.').all(is_short_name)),
    ("k8sshortname", |text| text.len() <= 63 && is_short_name(text)),
    ("mac", is_mac),
    ("password", |_| true),
    ("rgbcolor", is_rgb_color),
    ("ssn", number::is_social_security),
    ("uri", |text| cel::check_request_uri(text).is_ok()),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some('3'))),
    ("uuid4", |text| is_uuid(text, Some('4'))),
    ("uuid5", |text| is_uuid(text, Some('5'))),
];

/// The format of a schema, or nothing if values of its type cannot have it.
pub(crate) fn supported(schema: &Value) -> &str {
    let format = schema.text("format");
    let ty = if schema.flag("x-kubernetes-int-or-string") { "" } else { schema.text("type") };
    let known = match ty {
        "" | "string" => find(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if known { format } else { "" }
}

/// Whether a string has a format; any string has an unknown one.
pub(super) fn has(format: &str, text: &str) -> bool {
    find(format).is_none_or(|check| check(text))
}

fn find(format: &str) -> Option<Check> {
    if format.is_empty() {
        return None;
    }
    let same = |known: &str| known.bytes().eq(format.bytes().filter(|byte| *byte != b'-'));
    FORMATS.iter().find(|(known, _)| same(known)).map(|(_, check)| *check)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Padded base64 of at least one byte.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// An address, a slash and a length that fits; leading zeros are accepted.
fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = if address.contains(':') { 128 } else { 32 };
    let length: Option<u32> = (!length.is_empty() && is_digits(length)).then(|| length.parse().ok()).flatten();
    crate::ip::parse_lenient(address).is_some() && length.is_some_and(|length| length <= most)
}

/// `2006-01-02`.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = |(at, byte): (usize, &u8)| if matches!(at, 4 | 7) { *byte == b'-' } else { byte.is_ascii_digit() };
    if bytes.len() != 10 || !bytes.iter().enumerate().all(shape) {
        return false;
    }
    let part = |range: std::ops::Range<usize>| text.get(range).and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let (year, month, day) = (part(0..4), part(5..7), part(8..10));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// A date, `T`, and a time with an offset. kube-apiserver looks only at the first two parts of a text with more.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    matches!((parts.next(), parts.next()), (Some(date), Some(time)) if is_date(date) && is_time(time))
}

/// A time of day in lower case: the fraction may follow any character.
static TIME: LazyLock<Option<Arc<Regex>>> = LazyLock::new(|| {
    let two = "[0-9]{2}";
    cel::compile_regex(&format!("^{two}:{two}:{two}(?:.[0-9]+)?(?:z|[+-]{two}:{two})$")).ok()
});

fn is_time(text: &str) -> bool {
    let within = |from: usize, most: &str| text.get(from..from + 2).is_some_and(|part| part <= most);
    TIME.as_ref().is_some_and(|regex| regex.is_match(text.as_bytes()))
        && within(0, "23")
        && within(3, "59")
        && within(6, "59")
}

/// A duration in Go's notation, or numbers with spelled-out units (`2 days`).
fn is_duration(text: &str) -> bool {
    crate::duration::parse(text).is_ok() || is_wordy_duration(text)
}

/// Whether at least one number is followed by a unit. A number that is too large for an integer spoils the text.
fn is_wordy_duration(text: &str) -> bool {
    const EXACT: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const STEMS: &[&str] = &["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == 'µ';
    let mut rest = text;
    let mut found = false;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let tail = rest.get(start..).unwrap_or_default();
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (digits, after) = tail.split_at(end);
        let after = after.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let end = after.find(|c| !is_letter(c)).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        if !unit.is_empty() {
            if digits.parse::<i64>().is_err() {
                return false;
            }
            let unit = unit.to_ascii_lowercase();
            found |= EXACT.contains(&unit.as_str()) || STEMS.iter().any(|stem| unit.starts_with(stem));
        }
        rest = next;
    }
    found
}

/// Letters and symbols of all scripts, and digits.
static SYMBOLS: LazyLock<Option<Arc<Regex>>> = LazyLock::new(|| cel::compile_regex(r"^[a-zA-Z0-9\p{S}\p{L}]*$").ok());
/// Letters of all scripts.
static LETTERS: LazyLock<Option<Arc<Regex>>> = LazyLock::new(|| cel::compile_regex(r"^\p{L}*$").ok());

/// One label, or labels and a top-level domain of letters.
fn is_hostname(text: &str) -> bool {
    let symbols = |text: &str| SYMBOLS.as_ref().is_some_and(|regex| regex.is_match(text.as_bytes()));
    let letters = |text: &str| LETTERS.as_ref().is_some_and(|regex| regex.is_match(text.as_bytes()));
    if text.len() > 255 || text.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return false;
    }
    match text.rsplit_once('.') {
        None => {
            // A dash may only be the second character.
            let first = text.chars().next().map_or(0, char::len_utf8);
            let (first, rest) = text.split_at(first);
            first != "-" && symbols(first) && symbols(rest.strip_prefix('-').unwrap_or(rest))
        }
        Some((labels, top)) => {
            let label =
                |label: &str| !label.starts_with('-') && !label.ends_with('-') && symbols(&label.replace('-', ""));
            top.chars().count() >= 2 && letters(top) && labels.split('.').all(label)
        }
    }
}

fn is_short_name(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// 6, 8 or 20 bytes in hexadecimal: single ones between colons or dashes, or pairs of them between dots.
fn is_mac(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (separator, group) = match (bytes.get(2), bytes.get(4)) {
        (Some(separator @ (b':' | b'-')), _) => (*separator, 2),
        (_, Some(b'.')) => (b'.', 4),
        _ => return false,
    };
    let groups: Vec<&[u8]> = bytes.split(|byte| *byte == separator).collect();
    matches!(groups.len() * group / 2, 6 | 8 | 20)
        && groups.iter().all(|part| part.len() == group && part.iter().all(u8::is_ascii_hexdigit))
}

/// `rgb(255, 0, 10)`.
fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(|part| part.trim_matches(['\t', '\n', '\u{c}', '\r', ' '])).collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| (*part == "0" || !part.starts_with('0')) && is_digits(part) && part.parse::<u8>().is_ok())
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12, with or without each dash.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (index, size) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, tail)) = rest.split_at_checked(size) else { return false };
        let fits = match (index, version) {
            (2, Some(version)) => group.starts_with(version),
            (3, Some('4' | '5')) => group.starts_with(['8', '9', 'a', 'b', 'A', 'B']),
            _ => true,
        };
        if !fits || !is_hex(group) {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_sorted() {
        assert!(FORMATS.is_sorted_by_key(|(name, _)| *name));
    }

    #[test]
    fn unknown_formats_accept_everything() {
        assert!(has("nonsense", "x") && has("", "x") && has("password", "x"));
    }

    #[test]
    fn strings_have_their_formats() {
        let good = [
            ("bsonobjectid", "507f1f77bcf86cd799439011"),
            ("byte", "aGVsbG8="),
            ("cidr", "192.0.2.0/24"),
            ("cidr", "2001:db8::/032"),
            ("creditcard", "4220-8554-2622-2389"),
            ("date", "2024-02-29"),
            ("date-time", "2024-01-02T03:04:05Z"),
            ("date-time", "2024-01-02t03:04:05.123+02:00"),
            ("datetime", "2024-01-02T03:04:05,5-02:00"),
            ("duration", "1h30m"),
            ("duration", "2 days"),
            ("duration", "-1.5s"),
            ("email", "a@example.com"),
            ("hexcolor", "#fFf"),
            ("hostname", "a.example.com"),
            ("hostname", "ünï"),
            ("ipv4", "192.000.2.1"),
            ("ipv4", "::ffff:192.0.2.1"),
            ("ipv6", "2001:db8::1"),
            ("isbn", "978-4-87311-368-5"),
            ("isbn10", "3 401 01319 X"),
            ("k8s-long-name", "a.b-c.d"),
            ("k8s-short-name", "abc"),
            ("mac", "01:23:45:67:89:ab"),
            ("mac", "0123.4567.89ab"),
            ("rgbcolor", "rgb(0, 31,255 )"),
            ("ssn", "123-45 6789"),
            ("uri", "http://foo.bar/#com"),
            ("uuid", "0123456789abcdef0123456789ABCDEF"),
            ("uuid4", "01234567-89ab-4def-8123-456789abcdef"),
        ];
        for (format, text) in good {
            assert!(has(format, text), "{format} {text}");
        }
    }

    #[test]
    fn other_strings_have_not() {
        let bad = [
            ("bsonobjectid", "507f1f77bcf86cd79943901"),
            ("byte", ""),
            ("byte", "%%"),
            ("byte", "a==="),
            ("cidr", "192.0.2.0/99"),
            ("cidr", "192.0.2.0"),
            ("creditcard", "4220855426213389"),
            ("date", "02.01.2024"),
            ("date", "2023-02-29"),
            ("date-time", "yesterday"),
            ("date-time", "2024-01-02T24:04:05Z"),
            ("date-time", "2024-01-02T03:04:05"),
            ("duration", "soon"),
            ("email", "a"),
            ("hexcolor", "#ff"),
            ("hostname", "a_b"),
            ("hostname", ""),
            ("ipv4", "2001:db8::1"),
            ("ipv6", "192.0.2.1"),
            ("isbn10", "3423214121"),
            ("k8s-long-name", "a..b"),
            ("k8s-short-name", "A"),
            ("mac", "01:23:45:67:89"),
            ("rgbcolor", "rgb(01,31,255)"),
            ("ssn", "123456789"),
            ("uri", "foobar.com"),
            ("uuid4", "01234567-89ab-3def-8123-456789abcdef"),
        ];
        for (format, text) in bad {
            assert!(!has(format, text), "{format} {text}");
        }
    }
}
