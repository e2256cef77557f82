//! The environment as text that other programs read: a shell, a JSON parser, a dotenv file.
//!
//! In: variables. Out: text that gives exactly these values back. Values are addresses and numbers when the objects were
//! validated, but nothing here relies on it: a quote, a dollar or a line break in a value stays part of the value.

use std::fmt::Write as _;

use super::Variable;

/// Lines for `eval` of a POSIX shell. A name no shell can hold (`1WEB_PORT`) is left out with a remark.
#[must_use]
pub fn to_shell(variables: &[Variable]) -> String {
    let mut out = String::new();
    for Variable { name, value, .. } in variables {
        if is_identifier(name) {
            line(&mut out, format_args!("export {name}='{}'", value.replace('\'', r"'\''")));
        } else {
            line(&mut out, format_args!("# {name:?} is no name of a shell variable"));
        }
    }
    out
}

/// One object, its keys in the order of the variables.
#[must_use]
pub fn to_json(variables: &[Variable]) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let mut out = String::from("{");
    for (index, Variable { name, value, .. }) in variables.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        write!(out, "  {}: {}", text(name), text(value)).expect("text can always be appended to");
    }
    out.push_str(if variables.is_empty() { "}\n" } else { "\n}\n" });
    out
}

/// Lines of a dotenv file. Plain values stay bare, because some readers take quotes literally; others are quoted so that
/// no reader expands or cuts them.
#[must_use]
pub fn to_dotenv(variables: &[Variable]) -> String {
    let mut out = String::new();
    for Variable { name, value, .. } in variables {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            line(&mut out, format_args!("# {name:?} is no name of a variable"));
        } else {
            line(&mut out, format_args!("{name}={}", dotenv_value(value)));
        }
    }
    out
}

fn dotenv_value(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/[],@%+=".contains(&byte);
    if !value.is_empty() && value.bytes().all(plain) {
        return value.to_owned();
    }
    if !value.contains(['\'', '\n', '\r']) {
        return format!("'{value}'");
    }
    let mut out = String::from("\"");
    for character in value.chars() {
        match character {
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            '"' | '\\' | '$' | '`' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("text can always be appended to");
}

fn is_identifier(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
