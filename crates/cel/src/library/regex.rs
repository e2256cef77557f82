//! Regular expressions with the syntax and errors of Go's `regexp`, executed in linear time.

mod class;
mod translate;

use std::collections::HashMap;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

use super::{int, text};
use crate::budget::{Budget, Stop};
use crate::declare::{Functions, member};
use crate::types::Type;
use crate::value::Value;

/// Bytes that a compiled pattern may have.
const SIZE: usize = 1 << 20;
/// Compiled patterns that one evaluation keeps.
const KEPT: usize = 32;
/// Work of compiling a pattern that may become large.
const LARGE: usize = 200_000;

pub(super) fn add(all: &mut Functions) {
    use Type::{Int, String};
    all.add("find", [member("string_find_string", &[String, String], String, find)]);
    all.add(
        "findAll",
        [
            member("string_find_all_string", &[String, String], Type::list(String), find_all),
            member("string_find_all_string_int", &[String, String, Int], Type::list(String), find_all).stopping_early(),
        ],
    );
}

/// Compiles a pattern.
///
/// # Errors
/// Go's error message for the pattern.
pub fn compile(pattern: &str) -> Result<Arc<Regex>, String> {
    let translated = translate::translate(pattern).map_err(|error| format!("error parsing regexp: {error}"))?;
    let built = RegexBuilder::new(&translated).size_limit(SIZE).dfa_size_limit(SIZE).nest_limit(500).build();
    built.map(Arc::new).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!("error parsing regexp: expression too large: `{pattern}`"),
        _ => format!("error parsing regexp: expression nests too deeply: `{pattern}`"),
    })
}

/// Patterns that were compiled during an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: HashMap<String, Result<Arc<Regex>, String>>,
}

/// A pattern, compiled once per evaluation.
fn pattern(budget: &mut Budget, pattern: &str) -> Result<Arc<Regex>, Stop> {
    if let Some(known) = budget.patterns.known.get(pattern) {
        return known.clone().map_err(Stop::Error);
    }
    let large = pattern.contains('{') || pattern.contains("\\p") || pattern.contains("\\P");
    budget.work(1_000 + pattern.len().saturating_mul(64) + if large { LARGE } else { 0 })?;
    let compiled = compile(pattern);
    if budget.patterns.known.len() < KEPT {
        budget.patterns.known.insert(pattern.to_owned(), compiled.clone());
    }
    compiled.map_err(Stop::Error)
}

pub(super) fn matches<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let subject = text(args, 0)?;
    let regex = pattern(budget, text(args, 1)?)?;
    is_match(budget, &regex, subject).map(Value::Bool)
}

/// Whether a pattern matches somewhere in a text.
fn is_match(budget: &mut Budget, regex: &Regex, subject: &str) -> Result<bool, Stop> {
    budget.bytes(subject.len().saturating_mul(4))?;
    Ok(regex.is_match(subject.as_bytes()))
}

fn illegal(stop: Stop) -> Stop {
    match stop {
        Stop::Error(why) => Stop::Error(format!("Illegal regex: {why}")),
        other => other,
    }
}

fn find<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let subject = text(args, 0)?;
    let regex = pattern(budget, text(args, 1)?).map_err(illegal)?;
    find_in(budget, &regex, subject)
}

fn find_in<'a>(budget: &mut Budget, regex: &Regex, subject: &str) -> Result<Value<'a>, Stop> {
    budget.bytes(subject.len().saturating_mul(4))?;
    let found = regex.find(subject.as_bytes()).map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned());
    Ok(Value::string(found.unwrap_or_default()))
}

fn find_all<'a>(budget: &mut Budget, args: &[Value<'a>]) -> Result<Value<'a>, Stop> {
    let subject = text(args, 0)?;
    let limit = if args.len() > 2 { int(args, 2)? } else { -1 };
    let regex = pattern(budget, text(args, 1)?).map_err(illegal)?;
    find_all_in(budget, &regex, subject, limit)
}

fn find_all_in<'a>(budget: &mut Budget, regex: &Regex, subject: &str, limit: i64) -> Result<Value<'a>, Stop> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    budget.bytes(subject.len().saturating_mul(4))?;
    let mut found = Vec::new();
    for one in regex.find_iter(subject.as_bytes()).filter(|one| subject.is_char_boundary(one.start())).take(limit) {
        budget.make(1)?;
        budget.make_bytes(one.len())?;
        found.push(Value::string(String::from_utf8_lossy(one.as_bytes()).into_owned()));
    }
    Ok(Value::list(found))
}

/// `matches`, `find` or `findAll` with a pattern that is compiled already.
pub(crate) fn with_pattern<'a>(
    budget: &mut Budget,
    function: &str,
    regex: &Regex,
    args: &[Value<'a>],
) -> Result<Value<'a>, Stop> {
    let subject = text(args, 0)?;
    match function {
        "matches" => is_match(budget, regex, subject).map(Value::Bool),
        "find" => find_in(budget, regex, subject),
        _ => find_all_in(budget, regex, subject, if args.len() > 2 { int(args, 2)? } else { -1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pattern: &str, subject: &str) -> Result<bool, String> {
        compile(pattern).map(|regex| regex.is_match(subject.as_bytes()))
    }

    #[test]
    fn classes_are_ascii() {
        assert_eq!(run(r"^\d+$", "١"), Ok(false));
        assert_eq!(run(r"^\w+$", "ä"), Ok(false));
        assert_eq!(run(r"^.$", "ä"), Ok(true));
        assert_eq!(run(r"(?i)^Ä$", "ä"), Ok(true));
        assert_eq!(run(r"\bx\b", "äxä"), Ok(true));
        assert_eq!(run(r"^[\d\-x]+$", "1-x"), Ok(true));
        assert_eq!(run(r"^\Qa.b\E$", "a.b"), Ok(true));
        assert_eq!(run(r"^a{,2}$", "a{,2}"), Ok(true));
        assert_eq!(run(r"^\p{Greek}+$", "αβ"), Ok(true));
        assert_eq!(run(r"^[[:alpha:]]+[^[:digit:]]$", "ab-"), Ok(true));
        assert_eq!(run(r"^[a&&b~~-]+$", "&~-"), Ok(true));
    }

    #[test]
    fn compiling_is_limited() {
        assert!(compile(r"((((a{100}){10}){10}){10})").is_err());
        assert!(compile(&"(".repeat(1_000)).is_err());
        assert!(compile(&format!("{}a{}", "(".repeat(800), ")".repeat(800))).is_err());
    }
}
