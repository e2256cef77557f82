//! Paths to fields below a schema: `.spec.name`, `['a-b'].c`.
//!
//! In: a path as rules and selectable fields write it, and the schema that it starts from. Out: the path as field errors
//! write it and the schema of the field.

use crate::structural::{Additional, Structural};

/// Resolves a path. Without `brackets` only members can be named.
///
/// # Errors
/// Why there is no such field.
pub fn resolve<'s>(path: &str, schema: &'s Structural, brackets: bool) -> Result<(String, &'s Structural), String> {
    let end = || "unexpected end of JSON path".to_owned();
    let mut tokens = Tokens { rest: path };
    let mut out = String::new();
    let mut schema = schema;
    while let Some(token) = tokens.next() {
        match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or_else(end)?;
                let inner = quoted.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
                let inner = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unquote(inner).map_err(|error| format!("invalid string literal: {error}"))?;
                schema = step(&mut out, schema, &name)?;
                match tokens.next().ok_or_else(end)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            "." => schema = step(&mut out, schema, tokens.next().ok_or_else(end)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok((out, schema))
}

/// Goes to a member or to the value of a key.
fn step<'s>(out: &mut String, schema: &'s Structural, name: &str) -> Result<&'s Structural, String> {
    let refused = || "does not refer to a valid field".to_owned();
    if schema.properties.is_empty() {
        let Additional::Schema(values) = &schema.additional else { return Err(refused()) };
        out.push('[');
        out.push_str(name);
        out.push(']');
        return Ok(values);
    }
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
    schema.properties.get(name).ok_or_else(refused)
}

/// The text of a literal without its escapes.
fn unquote(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => out.push('\u{7}'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\u{b}'),
            Some(c @ ('\'' | '\\')) => out.push(c),
            Some('\n') | None => out.push('\\'),
            Some(c) => return Err(format!("invalid escape char \\{c}")),
        }
    }
    Ok(out)
}

/// Dots and brackets, literals in single quotes, and the text between them.
struct Tokens<'p> {
    rest: &'p str,
}

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let first = self.rest.chars().next()?;
        let len = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut before = first;
                let end = self.rest.char_indices().skip(1).find(|(_, c)| {
                    let ends = *c == '\'' && before != '\\';
                    before = *c;
                    ends
                });
                end.map_or(self.rest.len(), |(at, _)| at + 1)
            }
            _ => self.rest.find(['.', '[', ']']).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(token)
    }
}
