//! A value becomes YAML text.
//!
//! Keys are sorted, lists stand at the indent of their key, text of several lines is a block, and a string that would
//! read as something else is quoted. Long lines are not folded: every reader takes them as they are.

use std::fmt::Write as _;

use serde_json::Value;

use super::resolve::{Plain, is_base60, resolve};

/// Prints a value as a YAML document.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        scalar => {
            inline(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Prints what fills lines of its own; the first line is indented already.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                text(key, None, out);
                out.push(':');
                member(value, indent, out);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push_str("- ");
                if is_block(item) {
                    block(item, indent + 2, out);
                } else {
                    inline(item, indent, out);
                    out.push('\n');
                }
            }
        }
        _ => {}
    }
}

/// Prints the value of a key, from the colon on.
fn member(value: &Value, indent: usize, out: &mut String) {
    if !is_block(value) {
        out.push(' ');
        inline(value, indent, out);
        out.push('\n');
        return;
    }
    // Lists are not indented below their key.
    let indent = if value.is_array() { indent } else { indent + 2 };
    out.push('\n');
    pad(indent, out);
    block(value, indent, out);
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Prints what stands on the line of its key; a block of text hangs below.
fn inline(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(string) => text(string, Some(indent + 2), out),
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
    }
}

/// What may be done with a string.
struct Traits {
    plain: bool,
    single: bool,
    literal: bool,
}

/// Prints a string; `block` is where the lines of a literal begin, keys have none.
fn text(string: &str, block: Option<usize>, out: &mut String) {
    let traits = analyse(string);
    let several = string.contains('\n');
    if let (true, true, Some(indent)) = (several, traits.literal, block) {
        return literal(string, indent, out);
    }
    // `<<` would read as a merge of maps.
    let reads_as_text = resolve(string) == Plain::Text && !is_base60(string) && string != "<<";
    if several || !reads_as_text {
        double(string, out);
    } else if traits.plain {
        out.push_str(string);
    } else if traits.single {
        out.push('\'');
        out.push_str(&string.replace('\'', "''"));
        out.push('\'');
    } else {
        double(string, out);
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn analyse(string: &str) -> Traits {
    let mut indicator = string.starts_with("---") || string.starts_with("...");
    let (mut special, mut breaks, mut space_break, mut break_space) = (false, false, false, false);
    let mut before: Option<char> = None;
    let mut rest = string.chars().peekable();
    while let Some(c) = rest.next() {
        let blank_follows = rest.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
        indicator |= match (before, c) {
            (None, '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => {
                true
            }
            (None, '?' | '-') | (_, ':') => blank_follows,
            (Some(before), '#') => before == ' ' || before == '\t' || is_break(before),
            _ => false,
        };
        special |= !is_printable(c);
        breaks |= is_break(c);
        space_break |= is_break(c) && before == Some(' ');
        break_space |= c == ' ' && before.is_some_and(is_break);
        before = Some(c);
    }
    let edge = |c: char| c == ' ' || is_break(c);
    let edges = string.starts_with(edge) || string.ends_with(edge);
    Traits {
        plain: !(indicator || special || breaks || edges),
        single: !(special || space_break || break_space),
        literal: !(special || space_break || string.ends_with(' ')),
    }
}

fn literal(string: &str, indent: usize, out: &mut String) {
    out.push('|');
    if string.starts_with([' ', '\n']) {
        out.push('2');
    }
    let body = string.trim_end_matches('\n');
    match string.len() - body.len() {
        0 => out.push('-'),
        1 if !body.is_empty() => {}
        _ => out.push('+'),
    }
    let lines = string.strip_suffix('\n').unwrap_or(string);
    for line in lines.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
}

fn double(string: &str, out: &mut String) {
    out.push('"');
    for c in string.chars() {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c if is_printable(c) => {
                out.push(c);
                continue;
            }
            c => {
                let code = u32::from(c);
                // Writing into a string cannot fail.
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(out, "\\u{code:04X}"),
                    _ => write!(out, "\\U{code:08X}"),
                };
                continue;
            }
        };
        out.push('\\');
        out.push(short);
    }
    out.push('"');
}
