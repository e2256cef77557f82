//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.
//!
//! The text is cut into tokens and read by descent, one requirement after the other. `in` and `notin` are operators
//! where one may stand and names elsewhere.

use crate::facts::Facts;
use crate::field::{Errors, Path, quote};
use crate::names;

/// One requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Requirement {
    key: Box<str>,
    test: Test,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    Exists,
    Absent,
    /// One of these values, sorted.
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
    Above(i64),
    Below(i64),
}

impl Requirement {
    /// A requirement as objects spell it; none when the operator is unknown or its values do not fit it.
    pub(super) fn new(key: &str, operator: &str, mut values: Vec<Box<str>>) -> Option<Self> {
        values.sort_unstable();
        let test = match (operator, values.as_slice()) {
            ("In", [_, ..]) => Test::In(values),
            ("NotIn", [_, ..]) => Test::NotIn(values),
            ("Exists", []) => Test::Exists,
            ("DoesNotExist", []) => Test::Absent,
            ("Gt", [limit]) => Test::Above(limit.parse().ok()?),
            ("Lt", [limit]) => Test::Below(limit.parse().ok()?),
            _ => return None,
        };
        Some(Self { key: key.into(), test })
    }

    pub(super) fn matches(&self, facts: &Facts) -> bool {
        let have = facts.label(&self.key);
        let among = |values: &[Box<str>], have: &str| values.iter().any(|value| **value == *have);
        match &self.test {
            Test::Exists => have.is_some(),
            Test::Absent => have.is_none(),
            Test::In(values) => have.is_some_and(|have| among(values, have)),
            Test::NotIn(values) => have.is_none_or(|have| !among(values, have)),
            Test::Above(limit) => have.and_then(|have| have.parse::<i64>().ok()).is_some_and(|have| have > *limit),
            Test::Below(limit) => have.and_then(|have| have.parse::<i64>().ok()).is_some_and(|have| have < *limit),
        }
    }
}

/// Reads the text.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: tokens(text), position: 0 }.selector()
}

// === tokens ===

/// A word, an operator, a bracket, a comma; the end is the empty text.
type Token<'t> = &'t str;

const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

fn tokens(text: &str) -> Vec<Token<'_>> {
    // A zero byte ends the text.
    let mut rest = text.split('\0').next().unwrap_or_default();
    let mut out = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if rest.starts_with(SPECIAL) {
            1
        } else {
            rest.find(|c| SPECIAL.contains(&c) || matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        out.push(token);
        if token.is_empty() {
            return out;
        }
        rest = after;
    }
}

fn is_word(token: Token<'_>) -> bool {
    !token.is_empty() && !token.starts_with(SPECIAL)
}

// === grammar ===

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    position: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.position).copied().unwrap_or_default()
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut out = Vec::new();
        loop {
            let token = self.peek();
            if token.is_empty() {
                return Ok(out);
            }
            if token != "!" && !is_word(token) {
                return Err(format!("found '{token}', expected: !, identifier, or 'end of string'"));
            }
            out.push(self.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?);
            match self.next() {
                "" => return Ok(out),
                "," => {
                    let after = self.peek();
                    if after != "!" && !is_word(after) {
                        return Err(format!("found '{after}', expected: identifier after ','"));
                    }
                }
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut key = self.next();
        let negated = key == "!";
        if negated {
            key = self.next();
        }
        if !is_word(key) {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let wrong = names::qualified_name(key);
        if !wrong.is_empty() {
            // kube-apiserver has no path here, and prints that.
            return Err(format!("<nil>: Invalid value: {}: {}", quote(key), wrong.join("; ")));
        }
        if negated || matches!(self.peek(), "" | ",") {
            return Ok(Requirement { key: key.into(), test: if negated { Test::Absent } else { Test::Exists } });
        }
        let operator = self.next();
        let values = match operator {
            "in" | "notin" => self.values()?,
            "=" | "==" | "!=" | ">" | "<" => vec![self.exact_value()?],
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        build(key, operator, &values)
    }

    fn exact_value(&mut self) -> Result<&'t str, String> {
        match self.peek() {
            "" | "," => Ok(""),
            _ => match self.next() {
                value if is_word(value) => Ok(value),
                other => Err(format!("found '{other}', expected: identifier")),
            },
        }
    }

    /// `(a,b,)`: an empty place between commas or brackets is the empty value.
    fn values(&mut self) -> Result<Vec<&'t str>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('"));
        }
        let first = self.peek();
        if first != ")" && first != "," && !is_word(first) {
            return Err(format!("found '{first}', expected: ',', ')' or identifier"));
        }
        let mut out = Vec::new();
        if first == ")" {
            self.next();
            return Ok(vec![""]);
        }
        loop {
            match self.next() {
                value if is_word(value) => {
                    out.push(value);
                    let after = self.peek();
                    if after != "," && after != ")" {
                        return Err(format!("found '{after}', expected: ',' or ')'"));
                    }
                }
                "," => {
                    if out.is_empty() || matches!(self.peek(), ")" | ",") {
                        out.push("");
                    }
                }
                other => return Err(format!("found '{other}', expected: ',', or identifier")),
            }
            if self.peek() == ")" {
                self.next();
                out.sort_unstable();
                out.dedup();
                return Ok(out);
            }
        }
    }
}

/// The requirement, when its values may stand there.
fn build(key: &str, operator: &str, values: &[&str]) -> Result<Requirement, String> {
    let mut errors = Errors::default();
    let root = Path::Root("values");
    let mut number = 0;
    for (index, value) in values.iter().enumerate() {
        if matches!(operator, ">" | "<") {
            match value.parse::<i64>() {
                Ok(limit) => number = limit,
                Err(_) => {
                    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.invalid(&root.index(index), *value, detail);
                }
            }
        }
    }
    for (index, value) in values.iter().enumerate() {
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&root.index(index).key(key), *value, &wrong.join("; "));
        }
    }
    if !errors.is_empty() {
        return Err(errors.summary());
    }
    let boxed = || values.iter().map(|value| Box::from(*value)).collect();
    let test = match operator {
        ">" => Test::Above(number),
        "<" => Test::Below(number),
        "!=" | "notin" => Test::NotIn(boxed()),
        _ => Test::In(boxed()),
    };
    Ok(Requirement { key: key.into(), test })
}
