//! Parser of JSONPath templates.

use serde_json::Value;

use super::{Condition, Node, Operand, Path, Slice, Step, Test};

/// The template is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSONPath {text:?} cannot be read: {why}")]
pub(in crate::verbs) struct PathError {
    text: String,
    why: PathProblem,
}

/// What is wrong in a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum PathProblem {
    #[error("a brace is not closed")]
    OpenBrace,
    #[error("a bracket is not closed")]
    OpenBracket,
    #[error("there is an {{end}} too many")]
    ExtraEnd,
    #[error("a {{range}} has no {{end}}")]
    OpenRange,
    #[error("a name is missing behind a dot")]
    NoName,
    #[error("a dot or a bracket is missing before {0:?}")]
    NoDot(String),
    #[error("{0} is no text in quotes")]
    Quotes(String),
    #[error("{0:?} is no number of an element")]
    Index(String),
    #[error("{0:?} is no slice")]
    Slice(String),
    #[error("{0:?} is no value to compare with")]
    Operand(String),
}

/// Parses a template: text, and expressions in braces. Without braces it is an expression.
pub(in crate::verbs) fn template(text: &str) -> Result<Vec<Node>, PathError> {
    let fail = |why| PathError { text: text.to_owned(), why };
    if !text.contains('{') {
        return Ok(vec![Node::Path(expression(text)?)]);
    }
    let mut open: Vec<(Option<Path>, Vec<Node>)> = vec![(None, Vec::new())];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, behind) = braced(after).ok_or_else(|| fail(PathProblem::OpenBrace))?;
        let top = open.last_mut().map(|(_, nodes)| nodes);
        let Some(top) = top else { return Err(fail(PathProblem::ExtraEnd)) };
        if !before.is_empty() {
            top.push(Node::Text(before.to_owned()));
        }
        let inside = inside.trim();
        if let Some(path) = inside.strip_prefix("range ") {
            open.push((Some(read_path(path.trim()).map_err(fail)?), Vec::new()));
        } else if inside == "end" {
            match (open.pop(), open.last_mut()) {
                (Some((Some(path), nodes)), Some((_, outer))) => outer.push(Node::Range(path, nodes)),
                _ => return Err(fail(PathProblem::ExtraEnd)),
            }
        } else if inside.starts_with(['"', '\'']) {
            top.push(Node::Text(quoted(inside).map_err(fail)?));
        } else {
            top.push(Node::Path(read_path(inside).map_err(fail)?));
        }
        rest = behind;
    }
    match &mut open[..] {
        [(None, nodes)] => {
            if !rest.is_empty() {
                nodes.push(Node::Text(rest.to_owned()));
            }
            Ok(std::mem::take(nodes))
        }
        _ => Err(fail(PathProblem::OpenRange)),
    }
}

/// Parses one expression, with or without braces and the first dot.
pub(in crate::verbs) fn expression(text: &str) -> Result<Path, PathError> {
    let fail = |why| PathError { text: text.to_owned(), why };
    let inside = text.trim();
    let inside = inside.strip_prefix('{').and_then(|inside| inside.strip_suffix('}')).unwrap_or(inside).trim();
    let dotted = if inside.starts_with(['.', '[', '$', '@']) { inside.to_owned() } else { format!(".{inside}") };
    read_path(&dotted).map_err(fail)
}

/// The text after an opening brace up to the closing one; quoted braces do not count.
fn braced(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), letter) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '}') => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// A quoted string.
fn quoted(text: &str) -> Result<String, PathProblem> {
    let bad = || PathProblem::Quotes(text.to_owned());
    let quote = text.chars().next().ok_or_else(bad)?;
    let inside = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).ok_or_else(bad)?;
    let mut out = String::new();
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next().ok_or_else(bad)? {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            other => out.push(other),
        }
    }
    Ok(out)
}

fn read_path(text: &str) -> Result<Path, PathProblem> {
    let mut steps = Vec::new();
    let mut rest = text;
    if let Some(after) = rest.strip_prefix('$') {
        steps.push(Step::Root);
        rest = after;
    } else if let Some(after) = rest.strip_prefix('@') {
        rest = after;
    }
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            steps.push(Step::Below);
            rest = after;
            if !rest.starts_with('[') {
                rest = member(rest, &mut steps)?;
            }
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = if after.is_empty() || after.starts_with('[') { after } else { member(after, &mut steps)? };
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inside, behind) = bracketed(after).ok_or(PathProblem::OpenBracket)?;
            steps.push(bracket(inside.trim())?);
            rest = behind;
        } else {
            return Err(PathProblem::NoDot(rest.to_owned()));
        }
    }
    Ok(Path(steps))
}

/// A name up to the next dot or bracket.
fn member<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, PathProblem> {
    let mut name = String::new();
    let mut escaped = false;
    let mut end = text.len();
    for (at, letter) in text.char_indices() {
        match letter {
            letter if escaped => {
                name.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => {
                end = at;
                break;
            }
            letter => name.push(letter),
        }
    }
    match name.as_str() {
        "" => return Err(PathProblem::NoName),
        "*" => steps.push(Step::Every),
        _ => steps.push(Step::Members(vec![name])),
    }
    Ok(&text[end..])
}

/// The text after an opening bracket up to the closing one.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let (mut quote, mut depth) = (None, 0);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Result<Step, PathProblem> {
    if inside == "*" {
        return Ok(Step::Every);
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return Ok(Step::Where(Box::new(read_condition(condition.trim())?)));
    }
    if inside.starts_with(['"', '\'']) {
        let names: Result<Vec<String>, _> = split_outside_quotes(inside).into_iter().map(quoted).collect();
        return Ok(Step::Members(names?));
    }
    let slices: Result<Vec<Slice>, _> = inside.split(',').map(|part| read_slice(part.trim())).collect();
    Ok(Step::Elements(slices?))
}

fn split_outside_quotes(text: &str) -> Vec<&str> {
    let (mut quote, mut start, mut out) = (None, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, ',') => {
                out.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out
}

fn read_slice(text: &str) -> Result<Slice, PathProblem> {
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| PathProblem::Index(text.to_owned()));
    let part = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
    match text.split(':').collect::<Vec<_>>()[..] {
        [one] => Ok(Slice::One(number(one)?)),
        [from, to] => Ok(Slice::Range { from: part(from)?, to: part(to)?, step: 1 }),
        [from, to, step] => Ok(Slice::Range { from: part(from)?, to: part(to)?, step: part(step)?.unwrap_or(1) }),
        _ => Err(PathProblem::Slice(text.to_owned())),
    }
}

/// Longer operators first: `<` is a prefix of `<=`.
const TESTS: [(&str, Test); 6] = [
    ("==", Test::Equal),
    ("!=", Test::Unequal),
    ("<=", Test::LessOrEqual),
    (">=", Test::MoreOrEqual),
    ("<", Test::Less),
    (">", Test::More),
];

fn read_condition(text: &str) -> Result<Condition, PathProblem> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, _) => {
                if let Some((sign, test)) = TESTS.iter().find(|(sign, _)| text[at..].starts_with(sign)) {
                    let (left, right) = (operand(&text[..at])?, operand(&text[at + sign.len()..])?);
                    return Ok(Condition { left, test: Some((*test, right)) });
                }
            }
            _ => {}
        }
    }
    Ok(Condition { left: operand(text)?, test: None })
}

fn operand(text: &str) -> Result<Operand, PathProblem> {
    let text = text.trim();
    if text.starts_with(['@', '$', '.']) {
        return read_path(text).map(Operand::Path);
    }
    if text.starts_with(['"', '\'']) {
        return quoted(text).map(|text| Operand::Literal(Value::from(text)));
    }
    serde_json::from_str(text).map(Operand::Literal).map_err(|_| PathProblem::Operand(text.to_owned()))
}
