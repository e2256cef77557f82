//! The text of a path becomes steps.

use serde_json::Value;

use super::{Filter, Node, Slice};

/// What is still to be read.
struct Parser<'t> {
    rest: &'t str,
}

/// How deep expressions may nest in unions and filters.
const MAX_DEPTH: usize = 16;

/// Parses a template: texts, and expressions in braces.
pub(super) fn template(text: &str) -> Result<Vec<Vec<Node>>, String> {
    nested_template(text, 0)
}

fn nested_template(text: &str, depth: usize) -> Result<Vec<Vec<Node>>, String> {
    if depth > MAX_DEPTH {
        return Err("nested too deep".to_owned());
    }
    let mut parts = Vec::new();
    let mut parser = Parser { rest: text };
    while !parser.rest.is_empty() {
        let (before, _) = parser.rest.split_at(parser.rest.find('{').unwrap_or(parser.rest.len()));
        parser.rest = &parser.rest[before.len()..];
        if !before.is_empty() {
            parts.push(vec![Node::Text(before.to_owned())]);
        }
        if let Some(rest) = parser.rest.strip_prefix('{') {
            parser.rest = rest;
            parts.push(parser.expression(depth)?);
        }
    }
    Ok(parts)
}

/// Parses an expression without its braces.
fn inner(text: &str, depth: usize) -> Result<Vec<Node>, String> {
    let parts = nested_template(&format!("{{{text}}}"), depth + 1)?;
    parts.into_iter().next().ok_or_else(|| "unclosed action".to_owned())
}

impl<'t> Parser<'t> {
    /// An expression up to its closing brace.
    fn expression(&mut self, depth: usize) -> Result<Vec<Node>, String> {
        let mut nodes: Vec<Node> = Vec::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                return Ok(nodes);
            }
            if let Some(rest) = self.rest.strip_prefix("[?(") {
                self.rest = rest;
                nodes.push(self.filter(depth)?);
                continue;
            }
            if let Some(rest) = self.rest.strip_prefix("..") {
                if nodes.last() == Some(&Node::Recursive) {
                    return Err("invalid multiple recursive descent".to_owned());
                }
                self.rest = rest;
                nodes.push(Node::Recursive);
                if self.rest.starts_with(is_word) {
                    nodes.push(self.field());
                }
                continue;
            }
            let Some(next) = self.rest.chars().next().filter(|c| !matches!(c, '\r' | '\n')) else {
                return Err("unclosed action".to_owned());
            };
            match next {
                ' ' | '@' | '$' => self.rest = &self.rest[1..],
                '[' => self.array(&mut nodes, depth)?,
                '"' | '\'' => nodes.push(self.quoted(next)?),
                '.' => {
                    self.rest = &self.rest[1..];
                    nodes.push(self.field());
                }
                '+' | '-' => nodes.push(self.number()?),
                c if c.is_ascii_digit() => nodes.push(self.number()?),
                c if is_word(c) => nodes.push(self.identifier()),
                c => return Err(format!("unrecognized character in action: U+{:04X} '{c}'", c as u32)),
            }
        }
    }

    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn identifier(&mut self) -> Node {
        let length = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        match self.take(length) {
            "true" => Node::Literal(true.into()),
            "false" => Node::Literal(false.into()),
            _ => Node::Identifier,
        }
    }

    fn number(&mut self) -> Result<Node, String> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest[sign..].find(|c: char| c != '.' && !c.is_ascii_digit());
        let text = self.take(digits.map_or(self.rest.len(), |length| sign + length));
        let number = text.strip_prefix('+').unwrap_or(text);
        if let Ok(number) = number.parse::<i64>() {
            return Ok(Node::Literal(number.into()));
        }
        match number.parse::<f64>() {
            Ok(number) => Ok(Node::Literal(Value::from(number))),
            Err(_) => Err(format!("cannot parse number {text}")),
        }
    }

    /// A name up to the next unescaped terminator.
    fn field(&mut self) -> Node {
        let mut escaped = false;
        let end = self.rest.find(|c| {
            let is_end = !escaped && is_terminator(c);
            escaped = !escaped && c == '\\';
            is_end
        });
        match self.take(end.unwrap_or(self.rest.len())) {
            "*" => Node::Wildcard,
            name => Node::Field(name.replace('\\', "")),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Node, String> {
        let end = self.rest.char_indices().skip(1).find(|(at, c)| *c == quote && !self.rest[..*at].ends_with('\\'));
        let Some((end, _)) = end else { return Err("unterminated quoted string".to_owned()) };
        let text = self.take(end + 1);
        let text = &text[1..end];
        let mut out = String::with_capacity(text.len());
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            match (c, if c == '\\' { characters.next() } else { None }) {
                ('\\', Some('n')) => out.push('\n'),
                ('\\', Some('t')) => out.push('\t'),
                ('\\', Some('r')) => out.push('\r'),
                ('\\', Some(c)) if matches!(c, '\\' | '"' | '\'') => out.push(c),
                ('\\', _) => return Err(format!("unquote string {quote}{text}{quote} error invalid syntax")),
                (c, _) => out.push(c),
            }
        }
        Ok(Node::Text(out))
    }

    /// `[…]`: an index, a slice, a quoted key, or several of them.
    fn array(&mut self, nodes: &mut Vec<Node>, depth: usize) -> Result<(), String> {
        let end = self.rest.find([']', '\n']).filter(|at| self.rest[*at..].starts_with(']'));
        let Some(end) = end else { return Err("unterminated array".to_owned()) };
        let text = self.take(end + 1);
        let text = &text[1..end];
        if text.contains(',') {
            let paths: Result<Vec<_>, _> =
                text.split(',').map(|part| inner(&format!("[{}]", part.trim_matches(' ')), depth)).collect();
            nodes.push(Node::Union(paths?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).filter(|key| !key.contains('\''));
        if let Some(key) = key {
            nodes.extend(inner(&format!(".{key}"), depth)?);
            return Ok(());
        }
        nodes.push(Node::Slice(slice(if text == "*" { ":" } else { text })?));
        Ok(())
    }

    /// `[?(left operator right)]`, whose start was read.
    fn filter(&mut self, depth: usize) -> Result<Node, String> {
        let mut quote = None;
        let mut closed = false;
        let mut end = None;
        let mut before = ' ';
        for (at, c) in self.rest.char_indices() {
            match (c, quote) {
                ('\n', _) => break,
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open && before != '\\' => closed = true,
                (')', _) if quote.is_some() == closed => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            before = c;
        }
        let Some(end) = end else { return Err("unterminated filter".to_owned()) };
        let text = self.take(end + 1);
        let text = &text[..end];
        let Some(rest) = self.rest.strip_prefix(']') else { return Err("unclosed array expect ]".to_owned()) };
        self.rest = rest;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let start = text.find(is_operator).filter(|at| *at > 0);
        let stop = start.and_then(|start| text[start..].find(|c| !is_operator(c)).map(|length| start + length));
        Ok(Node::Filter(match (start, stop) {
            (Some(start), Some(stop)) => Filter {
                left: inner(&text[..start], depth)?,
                right: inner(&text[stop..], depth)?,
                operator: text[start..stop].to_owned(),
            },
            _ => Filter { left: inner(text, depth)?, right: Vec::new(), operator: "exists".to_owned() },
        }))
    }
}

/// `start:end:step`, each of which may be missing.
fn slice(text: &str) -> Result<Slice, String> {
    let bad = || format!("invalid array index {text}");
    let number = |part: &str| -> Result<Option<i64>, String> {
        let digits = part.strip_prefix('-').unwrap_or(part);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        if part.is_empty() {
            return Ok(None);
        }
        part.parse().map(Some).map_err(|_| format!("array index {part} is not a number"))
    };
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 {
        return Err(bad());
    }
    let start = number(parts[0])?;
    let (end, is_index) = match parts.get(1) {
        Some(end) => (number(end)?, false),
        None => (Some(start.unwrap_or(0) + 1), true),
    };
    let step = parts.get(2).map_or(Ok(None), |step| number(step))?;
    Ok(Slice { start, end, is_index, step })
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
