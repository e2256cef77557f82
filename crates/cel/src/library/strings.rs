//! The strings extension: `split`, `replace`, `substring` and the like. Positions are counted in code points.

use super::{format_string, int, list, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, global, member};
use crate::types::Type;
use crate::value::{Value, number};

pub(super) fn add(all: &mut Functions) {
    use Type::{Int, String};
    let strings = || Type::list(String);
    all.add("charAt", [member("string_char_at_int", &[String, Int], String, char_at)]);
    all.add(
        "indexOf",
        [
            member("string_index_of_string", &[String, String], Int, index_of),
            member("string_index_of_string_int", &[String, String, Int], Int, index_of).stopping_early(),
        ],
    );
    all.add(
        "lastIndexOf",
        [
            member("string_last_index_of_string", &[String, String], Int, last_index_of),
            member("string_last_index_of_string_int", &[String, String, Int], Int, last_index_of).stopping_early(),
        ],
    );
    all.add(
        "lowerAscii",
        [member("string_lower_ascii", &[String], String, |_, a| same_size(a, str::to_ascii_lowercase))],
    );
    all.add(
        "replace",
        [
            member("string_replace_string_string", &[String, String, String], String, replace).stopping_early(),
            member("string_replace_string_string_int", &[String, String, String, Int], String, replace)
                .stopping_early(),
        ],
    );
    all.add(
        "split",
        [
            member("string_split_string", &[String, String], strings(), split),
            member("string_split_string_int", &[String, String, Int], strings(), split).stopping_early(),
        ],
    );
    all.add(
        "substring",
        [
            member("string_substring_int", &[String, Int], String, substring),
            member("string_substring_int_int", &[String, Int, Int], String, substring).stopping_early(),
        ],
    );
    all.add(
        "trim",
        [member("string_trim", &[String], String, |_, args| same_size(args, |text| text.trim().to_owned()))],
    );
    all.add(
        "upperAscii",
        [member("string_upper_ascii", &[String], String, |_, a| same_size(a, str::to_ascii_uppercase))],
    );
    all.add("format", [member("string_format", &[String, Type::list(Type::Dyn)], String, format).stopping_early()]);
    all.add("strings.quote", [global("strings_quote", &[String], String, quote)]);
    all.add(
        "join",
        [
            member("list_join", &[strings()], String, join),
            member("list_join_string", &[strings(), String], String, join),
        ],
    );
}

fn same_size<'a>(args: &[Value<'a>], change: fn(&str) -> String) -> Result<Value<'a>, Stop> {
    Ok(Value::string(change(text(args, 0)?)))
}

/// The code points of a string, paid for.
fn chars(budget: &mut Budget, text: &str) -> Result<Vec<char>, Stop> {
    budget.make_bytes(text.len())?;
    Ok(text.chars().collect())
}

fn out_of_range(index: i64) -> Stop {
    format!("index out of range: {index}").into()
}

fn char_at<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, index) = (text(args, 0)?, int(args, 1)?);
    budget.bytes(whole.len())?;
    let position = usize::try_from(index).map_err(|_| out_of_range(index))?;
    match whole.chars().nth(position) {
        Some(c) => Ok(Value::string(c.to_string())),
        None if position == whole.chars().count() => Ok(Value::string("")),
        None => Err(out_of_range(index)),
    }
}

fn index_of<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, part) = (chars(budget, text(args, 0)?)?, chars(budget, text(args, 1)?)?);
    let offset = if args.len() > 2 { int(args, 2)? } else { 0 };
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if part.is_empty() {
        return Ok(Value::Int(offset.min(number::size(whole.len()))));
    }
    budget.work(whole.len().saturating_mul(part.len()) / 8)?;
    let found = whole.windows(part.len()).skip(start).position(|window| window == part);
    Ok(Value::Int(found.map_or(-1, |found| number::size(found + start))))
}

fn last_index_of<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, part) = (chars(budget, text(args, 0)?)?, chars(budget, text(args, 1)?)?);
    let len = number::size(whole.len());
    let offset = match args.len() {
        0..=2 if part.is_empty() => return Ok(Value::Int(len)),
        0..=2 if text(args, 0)?.len() < text(args, 1)?.len() => return Ok(Value::Int(-1)),
        0..=2 => len - 1,
        _ => int(args, 2)?,
    };
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if part.is_empty() {
        return Ok(Value::Int(offset.min(len)));
    }
    if start >= whole.len() {
        return Ok(Value::Int(-1));
    }
    budget.work(whole.len().saturating_mul(part.len()) / 8)?;
    let found = whole.windows(part.len()).take(start + 1).rposition(|window| window == part);
    Ok(Value::Int(found.map_or(-1, number::size)))
}

fn replace<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, old, new) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let limit = if args.len() > 3 { int(args, 3)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    budget.bytes(whole.len())?;
    let count = whole.matches(old).take(limit).count();
    budget.make_bytes(whole.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(Value::string(whole.replacen(old, new, limit)))
}

fn split<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, separator) = (text(args, 0)?, text(args, 1)?);
    let limit = if args.len() > 2 { int(args, 2)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    budget.bytes(whole.len())?;
    let parts: Vec<&str> = match (limit, separator) {
        (0, _) => Vec::new(),
        (_, "") => split_chars(whole, limit),
        _ => whole.splitn(limit, separator).collect(),
    };
    budget.make(parts.len())?;
    budget.make_bytes(whole.len())?;
    Ok(Value::strings(parts.into_iter().map(str::to_owned)))
}

/// Each code point, the last part with all that are left.
fn split_chars(whole: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = whole;
    while let Some(c) = rest.chars().next() {
        let end = if parts.len() + 1 == limit { rest.len() } else { c.len_utf8() };
        let (part, tail) = rest.split_at(end);
        parts.push(part);
        rest = tail;
    }
    parts
}

fn substring<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let (whole, start) = (text(args, 0)?, int(args, 1)?);
    budget.bytes(whole.len())?;
    let len = number::size(whole.chars().count());
    let end = if args.len() > 2 { int(args, 2)? } else { len };
    if args.len() > 2 && start > end {
        return Err(format!("invalid substring range. start: {start}, end: {end}").into());
    }
    for index in [start, end] {
        if !(0..=len).contains(&index) {
            return Err(out_of_range(index));
        }
    }
    let (skip, take) = (usize::try_from(start).unwrap_or(0), usize::try_from(end - start).unwrap_or(0));
    Ok(Value::string(whole.chars().skip(skip).take(take).collect::<String>()))
}

fn format<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    format_string::format(budget, text(args, 0)?, list(args, 1)?).map(Value::string)
}

fn quote<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let plain = text(args, 0)?;
    budget.make_bytes(plain.len())?;
    let mut out = String::with_capacity(plain.len() + 2);
    out.push('"');
    for c in plain.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(Value::string(out))
}

fn join<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let parts = list(args, 0)?;
    let separator = if args.len() > 1 { text(args, 1)? } else { "" };
    let mut out = String::new();
    for (nth, part) in parts.iter().enumerate() {
        if nth > 0 {
            out.push_str(separator);
        }
        let Value::String(part) = &part else { return Err(format!("join: invalid input: {part}").into()) };
        budget.make_bytes(part.as_str().len().saturating_add(separator.len()))?;
        out.push_str(part.as_str());
    }
    Ok(Value::string(out))
}
