//! Regular expressions on paths, rewrites with their captures, and redirects to a location with variables.

use std::fmt;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::{RequestValues, Template};
use crate::request_path;

/// Characters that stay as they are in a path (`pchar` of RFC 3986, and `/`), besides the unreserved ones.
const IN_PATH: &[u8] = b"/!$&'()*+,;=:@";
/// Those that stay as they are in the value of a parameter, or where it is not known.
const IN_QUERY: &[u8] = b"/";

/// The memory that a compiled expression may take.
const SIZE_LIMIT: usize = 256 << 10;

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

    fn build(source: &str, pattern: &str, ignores_case: bool) -> Result<Self, PatternError> {
        let mut builder = RegexBuilder::new(pattern);
        let built = builder.case_insensitive(ignores_case).unicode(false).size_limit(SIZE_LIMIT).build();
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
