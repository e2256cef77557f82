//! Strings with a format: bytes, durations, days and points in time.

use base64::Engine;

use super::Shape;
use crate::value::Value;
use crate::value::time::{Timestamp, parse_duration};

/// The value of a string that a schema gives one of these formats.
pub(super) fn parse<'a>(text: &str, shape: &Shape) -> Value<'a> {
    match shape {
        Shape::Duration => match duration(text) {
            Some(nanos) => Value::Duration(nanos),
            None => Value::invalid(format!("Invalid duration {text}: unable to parse {text} as duration")),
        },
        Shape::Date => match Timestamp::parse_date(text) {
            Some(day) => Value::Timestamp(day),
            None => Value::invalid(format!("Invalid date formatted string {text}: {}", refusal(text, false))),
        },
        Shape::DateTime => match date_time(text) {
            Some(time) => Value::Timestamp(time),
            None => Value::invalid(format!("Invalid date-time formatted string {text}: {}", refusal(text, true))),
        },
        _ => bytes(text),
    }
}

fn bytes<'a>(text: &str) -> Value<'a> {
    // Line breaks are ignored, as Go's decoder does.
    let plain: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match base64::engine::general_purpose::URL_SAFE.decode(&plain) {
        Ok(bytes) => Value::Bytes(bytes.into()),
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => plain.len() / 4 * 4,
            };
            Value::invalid(format!("Invalid byte formatted string {text}: illegal base64 data at input byte {at}"))
        }
    }
}

/// A point in time with or without an offset; nothing is the epoch.
fn date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::from_seconds(0);
    }
    Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{text}Z")))
}

/// Names of units, the shortest first, and their nanoseconds. A word that begins with the last name is such a unit.
const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// A duration in Go's notation, or numbers with spelled-out units, such as `2 days`.
fn duration(text: &str) -> Option<i64> {
    parse_duration(text).or_else(|| words(text))
}

fn words(text: &str) -> Option<i64> {
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let tail = rest.get(start..)?;
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        let tail = tail.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let end = tail.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        rest = tail;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        for (names, nanos) in UNITS {
            let last = names.last().is_some_and(|last| unit.starts_with(last));
            if last || names.contains(&unit.as_str()) {
                total = Some(total.unwrap_or(0).wrapping_add(number.wrapping_mul(nanos)));
            }
        }
    }
    total
}

/// Why Go does not read a day or a point in time.
fn refusal(text: &str, time: bool) -> String {
    let layout = if time { "2006-01-02T15:04:05" } else { "2006-01-02" };
    let parts: &[&str] = if time {
        &["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"]
    } else {
        &["2006", "-", "01", "-", "02"]
    };
    let mut rest = text;
    for part in parts {
        let literal = part.len() == 1;
        let fits = match rest.get(..part.len()) {
            Some(head) if literal => head == *part,
            Some(head) => head.bytes().all(|byte| byte.is_ascii_digit()),
            None => false,
        };
        if !fits {
            return format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}");
        }
        let (head, tail) = rest.split_at(part.len());
        if let Some(name) = out_of_range(part, head) {
            return format!("parsing time {text:?}: {name} out of range");
        }
        rest = tail;
    }
    if rest.is_empty() {
        return format!("parsing time {text:?}: day out of range");
    }
    format!("parsing time {text:?}: extra text: {rest:?}")
}

fn out_of_range(part: &str, digits: &str) -> Option<&'static str> {
    let number: u32 = digits.parse().ok()?;
    match part {
        "01" if !(1..=12).contains(&number) => Some("month"),
        "02" if !(1..=31).contains(&number) => Some("day"),
        "15" if number > 23 => Some("hour"),
        "04" if number > 59 => Some("minute"),
        "05" if number > 59 => Some("second"),
        _ => None,
    }
}
