//! Values as Go prints them in error messages.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use crate::field::quote;

/// A JSON number as kube-apiserver sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Num {
    /// It has neither fraction nor exponent, and fits.
    Int(i64),
    /// Any other.
    Float(f64),
}

impl Num {
    pub(super) fn of(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or_default()), Self::Int)
    }

    #[expect(clippy::cast_precision_loss, reason = "Go rounds as well")]
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Float(float) => float,
        }
    }
}

impl std::fmt::Display for Num {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(int) => write!(f, "{int}"),
            Self::Float(value) => f.write_str(&float(*value)),
        }
    }
}

/// `int64(value)` on the usual machines: out of range is the smallest integer.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(super) fn to_int(value: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) { value as i64 } else { i64::MIN }
}

/// A float as `%v` prints it: with an exponent below 1e-4 and from 1e6.
pub(super) fn float(value: f64) -> String {
    with_exponent(value, |exponent| !(-4..6).contains(&exponent), 2)
}

/// A float as JSON: with an exponent below 1e-6 and from 1e21.
fn json_float(value: f64) -> String {
    with_exponent(value, |exponent| !(-6..21).contains(&exponent), 1)
}

fn with_exponent(value: f64, scientific: impl Fn(i32) -> bool, width: usize) -> String {
    let written = format!("{value:e}");
    let Some((mantissa, exponent)) = written.split_once('e') else { return written };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || !scientific(exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    // In JSON positive exponents have two digits anyway: they start at 21.
    format!("{mantissa}e{sign}{:0width$}", exponent.abs())
}

/// A value as a field error shows it: strings quoted, other scalars bare, the rest as JSON.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => Num::of(number).to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => json(value),
    }
}

/// A value as Go's JSON encoder writes it.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => {
            let _ = write!(out, "{flag}");
        }
        Value::Number(number) => match Num::of(number) {
            Num::Int(int) => {
                let _ = write!(out, "{int}");
            }
            Num::Float(value) => out.push_str(&json_float(value)),
        },
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(name, out);
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
    }
}

/// A string in JSON; Go also escapes what HTML and JavaScript would misread.
pub(super) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (value, wanted) in [
            (1.5, "1.5"),
            (5.0, "5"),
            (1e21, "1e+21"),
            (1e6, "1e+06"),
            (999_999.0, "999999"),
            (-1_234_567.5, "-1.2345675e+06"),
            (1e-5, "1e-05"),
        ] {
            assert_eq!(float(value), wanted);
        }
        assert_eq!(json(&json!([1e-7, 1e-5, 2.0, 0.0])), "[1e-7,0.00001,2,0]");
    }

    #[test]
    fn values_are_shown_as_in_field_errors() {
        assert_eq!(shown(&json!("a\"b")), r#""a\"b""#);
        assert_eq!(shown(&json!({"b": "<&>", "a": [null, true]})), r#"{"a":[null,true],"b":"\u003c\u0026\u003e"}"#);
        assert_eq!(shown(&json!(18_446_744_073_709_551_615_u64)), "1.8446744073709552e+19");
    }

    #[test]
    fn floats_out_of_range_become_the_smallest_integer() {
        assert_eq!((to_int(1.9), to_int(-1.9), to_int(1e30)), (1, -1, i64::MIN));
    }
}
