//! Regular expressions on paths, rewrites with their captures, and redirects to a location with variables.

use std::fmt;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::{RequestValues, Template};
use crate::request_path;

/// Characters that stay as they are in a path (`pchar` of RFC 3986, and `/`), besides the unreserved ones.
const IN_PATH: &[u8] = b"/!$&'()*+,;=:@";
/// Those that stay as they are in the value of a parameter, or where it is not known.
const IN_QUERY: &[u8] = b"/";

/// The longest expression, in bytes.
const LONGEST: usize = 1024;
/// The memory that a compiled expression may take, in bytes.
const SIZE_LIMIT: usize = 128 << 10;
/// The memory that each thread may take for what it learned while it matched an expression, in bytes.
const CACHE_LIMIT: usize = 256 << 10;
/// The longest text that [`Pattern::literal_start`] compares, in bytes.
const LONGEST_LITERAL: usize = 256;
/// Characters with a meaning in an expression, but for `.`, which is often meant literally.
const METACHARACTERS: &[char] = &['^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '\\'];

/// A regular expression on a path or a header, by default without regard to case. Bytes are compared, and `\w`, `\d` and `\s` are those of ASCII.
#[derive(Clone)]
pub struct Pattern {
    source: Box<str>,
    regex: Regex,
    ignores_case: bool,
}

/// A regular expression cannot be used: it is malformed, too large, or has a look-around or a back reference.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{pattern}` is not a regular expression that can be used: {reason}")]
pub struct PatternError {
    /// The expression.
    pub pattern: Box<str>,
    /// What is wrong with it.
    pub reason: Box<str>,
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// When it is malformed, too large, or has a look-around or a back reference.
    pub fn new(source: &str) -> Result<Self, PatternError> {
        Self::build(source, source, true)
    }

    /// Compiles an expression for which case matters.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn case_sensitive(source: &str) -> Result<Self, PatternError> {
        Self::build(source, source, false)
    }

    /// Compiles an expression that has to match from the start of the path.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn at_start(source: &str) -> Result<Self, PatternError> {
        Self::build(source, &format!("^{source}"), true)
    }

    /// Compiles an expression for all paths that begin with the text before the first metacharacter of another one. That is
    /// still its source. At least all paths that the other one matches begin so.
    ///
    /// # Errors
    /// None that are known.
    pub fn literal_start(source: &str) -> Result<Self, PatternError> {
        let text = match has_alternatives(source) {
            true => "",
            false => Self::text_before(source),
        };
        let text = text.split('.').next().unwrap_or_default();
        let end = (0..=text.len().min(LONGEST_LITERAL)).rev().find(|end| text.is_char_boundary(*end));
        let text = text.get(..end.unwrap_or_default()).unwrap_or_default();
        Self::compile(source, &format!("^{}", regex::escape(text)), true)
    }

    /// The text of an expression before its first metacharacter other than `.`.
    #[must_use]
    pub fn text_before(source: &str) -> &str {
        let (text, rest) = source.split_at(source.find(METACHARACTERS).unwrap_or(source.len()));
        // A quantifier is about the character before it.
        match rest.starts_with(['*', '+', '?', '{']) {
            true => text.char_indices().next_back().map_or("", |(last, _)| text.get(..last).unwrap_or_default()),
            false => text,
        }
    }

    fn build(source: &str, pattern: &str, ignores_case: bool) -> Result<Self, PatternError> {
        if source.len() > LONGEST {
            let pattern = source.chars().take(64).chain("…".chars()).collect::<String>().into();
            return Err(PatternError { pattern, reason: format!("it is longer than {LONGEST} bytes").into() });
        }
        Self::compile(source, pattern, ignores_case)
    }

    fn compile(source: &str, pattern: &str, ignores_case: bool) -> Result<Self, PatternError> {
        let mut builder = RegexBuilder::new(pattern);
        builder.case_insensitive(ignores_case).unicode(false).size_limit(SIZE_LIMIT).dfa_size_limit(CACHE_LIMIT);
        let built = builder.build();
        let reason = |error: regex::Error| error.to_string().lines().last().unwrap_or_default().into();
        let regex = built.map_err(|error| PatternError { pattern: source.into(), reason: reason(error) })?;
        Ok(Self { source: source.into(), regex, ignores_case })
    }

    /// Whether it matches somewhere in a text.
    #[must_use]
    pub fn is_match(&self, text: impl AsRef<[u8]>) -> bool {
        self.regex.is_match(text.as_ref())
    }

    /// The expression.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (self.regex.as_str(), self.ignores_case) == (other.regex.as_str(), other.ignores_case)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.regex.as_str())
    }
}

/// A change of the path by a regular expression, as `rewrite … break` of nginx: where the expression matches somewhere in
/// the path, decoded and with `//` and `..` resolved, the target replaces the whole path; otherwise nothing changes.
/// Captures are encoded again.
#[derive(Clone, PartialEq, Debug)]
pub struct PathRewrite {
    /// The expression.
    pub pattern: Pattern,
    /// The new path, with `$1` … `$9` for captures; a query in it precedes that of the request, and a `?` at its end drops
    /// the query of the request.
    pub target: Template,
}

impl PathRewrite {
    /// The new path and query; none when nothing changes.
    #[must_use]
    pub fn apply(&self, values: &RequestValues<'_>) -> Option<String> {
        let path = request_path::decode(values.path)?;
        let found = self.pattern.regex.captures(&path)?;
        // A part of the path must not become a parameter of the query.
        let kept = if self.target.source().contains('?') { IN_QUERY } else { IN_PATH };
        let captures = captures(&found, kept);
        let captures: Vec<&str> = captures.iter().map(String::as_str).collect();
        let mut target = self.target.render(&RequestValues { captures: &captures, ..*values });
        if !target.starts_with('/') {
            target.insert(0, '/');
        }
        if target.ends_with('?') {
            target.pop();
            return Some(target);
        }
        if let Some(query) = values.query.filter(|query| !query.is_empty()) {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(query);
        }
        Some(target)
    }
}

/// Whether an expression, possibly a malformed one, has alternatives outside of groups.
fn has_alternatives(source: &str) -> bool {
    let (mut depth, mut rest) = (0_usize, source.chars());
    while let Some(next) = rest.next() {
        match next {
            '\\' => drop(rest.next()),
            '[' => drop(rest.find(|c| *c == ']')),
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => (),
        }
    }
    false
}

/// The text of each capture, percent-encoded.
fn captures(found: &Captures<'_>, kept: &[u8]) -> Vec<String> {
    let text = |place: usize| {
        let mut text = String::new();
        request_path::encode(found.get(place).map_or(&[], |part| part.as_bytes()), kept, &mut text);
        text
    };
    (0..found.len()).map(text).collect()
}

/// A redirect as the response to every request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redirect {
    /// Its status.
    pub status: u16,
    /// The value of `Location`.
    pub location: Template,
}
