//! Tables for `kubectl get`: columns and rows of a kind, made on the server.
//!
//! In: an object and the time of the request. Out: the cells of its row, always the wide ones; the client hides what
//! has a priority. The formats of ages and shortened lists are the same for all kinds and are defined here.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::value::ValueExt as _;

/// How a kind is shown as a Table.
pub struct Table {
    /// The columns; the first is `Name`.
    pub columns: &'static [Column],
    /// The cells of one object, one for each column.
    pub row: fn(&Value, Timestamp) -> Vec<Value>,
    /// Conditions of the row (a completed Pod).
    pub conditions: fn(&Value) -> Vec<Value>,
}

/// One column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// `string` or `integer`.
    pub kind: &'static str,
    /// `name` for the first column, else empty.
    pub format: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: u8,
    /// What it means.
    pub description: &'static str,
}

impl Column {
    /// Its definition in a Table.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format, "description": self.description,
               "priority": self.priority})
    }
}

/// The column of the object's name.
pub const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    priority: 0,
    description: "The name of the object, unique within its namespace.",
};

/// The column of the object's age.
pub const AGE: Column = column("Age", "How long ago the object was created.");

/// The columns of a kind without its own: name and creation time.
pub static PLAIN: Table = Table {
    columns: &[NAME, Column { kind: "date", ..column("Created At", "When the object was created.") }],
    row: |object, _| vec![object.text("metadata.name").into(), object.text("metadata.creationTimestamp").into()],
    conditions: no_conditions,
};

/// A column of strings that is always shown.
#[must_use]
pub const fn column(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0, description }
}

/// A column of numbers that is always shown.
#[must_use]
pub const fn integer_column(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", format: "", priority: 0, description }
}

/// A column of strings that is shown with `-o wide`.
#[must_use]
pub const fn wide_column(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 1, description }
}

/// A row without conditions.
#[must_use]
pub fn no_conditions(_object: &Value) -> Vec<Value> {
    Vec::new()
}

/// The age of an object: `5d3h`, or `<unknown>` before it was created.
#[must_use]
pub fn age(object: &Value, now: Timestamp) -> String {
    since(object.at("metadata.creationTimestamp"), now)
}

/// How long ago a time was.
#[must_use]
pub fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => duration(now.as_millisecond().saturating_sub(then.as_millisecond())),
        None => "<unknown>".to_owned(),
    }
}

/// A duration with two or three significant figures. Clocks that are up to two seconds apart count as equal.
#[must_use]
pub fn duration(milliseconds: i64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * 60 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

/// How many items of a list a cell shows.
pub const SHOWN: usize = 3;

/// `a,b,c + 4 more...`: the items to show, and how many there are in all.
#[must_use]
pub fn shortened(shown: &[String], total: usize) -> String {
    let text = shown.join(",");
    if total > shown.len() && shown.len() == SHOWN { format!("{text} + {} more...", total - SHOWN) } else { text }
}

/// The text, or a filler when it is empty.
#[must_use]
pub fn or<'t>(text: &'t str, filler: &'t str) -> &'t str {
    if text.is_empty() { filler } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: i64 = 1000;
    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;

    #[test]
    fn durations_keep_two_figures() {
        for (milliseconds, text) in [
            (-2 * SECOND, "<invalid>"),
            (-SECOND, "0s"),
            (-SECOND / 2, "0s"),
            (119 * SECOND, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 5 * SECOND, "2m5s"),
            (10 * MINUTE + 5 * SECOND, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (7 * DAY + 5 * HOUR, "7d5h"),
            (8 * DAY + 5 * HOUR, "8d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (365 * 8 * DAY, "8y"),
        ] {
            assert_eq!(duration(milliseconds), text, "{milliseconds} ms");
        }
    }

    #[test]
    fn a_missing_time_is_unknown() {
        let now: Timestamp = "2024-01-01T01:00:00Z".parse().expect("a time");
        assert_eq!(since(&Value::Null, now), "<unknown>");
        assert_eq!(age(&json!({"metadata": {"creationTimestamp": "2024-01-01T00:58:59Z"}}), now), "61s");
        assert_eq!(since(&json!("2024-01-01T00:00:00.500000Z"), now), "59m");
    }

    #[test]
    fn long_lists_are_cut() {
        let three: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(shortened(&three, 3), "a,b,c");
        assert_eq!(shortened(&three, 5), "a,b,c + 2 more...");
    }
}
