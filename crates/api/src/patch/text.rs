//! Values as Go prints them: part of the error messages of strategic merge patches.
//!
//! JSON decoded into Go's untyped values prints as `map[a:1 b:[x y]]`, keys sorted; integers stay integers.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// `%v`.
pub(super) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, false);
    out
}

/// `%s`, which marks whatever is not a string.
pub(super) fn marked(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, true);
    out
}

/// The name of the Go type of an untyped value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn write_value(out: &mut String, value: &Value, marked: bool) {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_list(out, items, marked),
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, member)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_value(out, member, marked);
            }
            out.push(']');
        }
        Value::Null if marked => out.push_str("%!s(<nil>)"),
        Value::Null => out.push_str("<nil>"),
        scalar if marked => {
            let _ = write!(out, "%!s({}={})", type_name(scalar), scalar_text(scalar));
        }
        scalar => out.push_str(&scalar_text(scalar)),
    }
}

fn write_list(out: &mut String, items: &[Value], marked: bool) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        write_value(out, item, marked);
    }
    out.push(']');
}

/// `[a b]` of the items of a list.
pub(super) fn list(items: &[Value]) -> String {
    let mut out = String::new();
    write_list(&mut out, items, false);
    out
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::Number(number) => number_text(number),
        other => other.to_string(),
    }
}

/// The shortest digits; an exponent below 1e-4 and from 1e21 on.
fn number_text(number: &Number) -> String {
    if number.is_i64() {
        return number.to_string();
    }
    let value = number.as_f64().unwrap_or_default();
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let power: i32 = exponent.parse().unwrap_or_default();
    if value == 0.0 || (-4..21).contains(&power) {
        return format!("{value}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_go_prints_them() {
        let value = json!({"b": [1, "x", null, true], "a": {"f": 1.5, "g": 1e21, "h": 1e-7, "i": 1e3}});
        assert_eq!(plain(&value), "map[a:map[f:1.5 g:1e+21 h:1e-07 i:1000] b:[1 x <nil> true]]");
        assert_eq!(marked(&json!(7)), "%!s(int64=7)");
        assert_eq!(marked(&json!(["a", null, false])), "[a %!s(<nil>) %!s(bool=false)]");
        assert_eq!(list(&[json!({"port": 80})]), "[map[port:80]]");
        assert_eq!(plain(&json!(18_446_744_073_709_551_615_u64)), "18446744073709552000");
    }
}
