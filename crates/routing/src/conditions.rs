//! Conditions on headers and query parameters, compiled: in, matches of routes; out, whether a request fulfils them.
//!
//! A comparison with an exact value does not allocate. Regular expressions have the syntax of RE2 and cover the whole
//! value; their length and compiled size are limited, because users of the API choose them and requests wait for them.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use regex::bytes::{Regex, RegexBuilder};

use api::view::gateway_api::{MatchKind, NamedMatch};

/// Characters of a regular expression.
pub const PATTERN_LENGTH: usize = 1024;
/// Bytes of a compiled regular expression, and of the cache of its automaton in each thread.
const COMPILED_SIZE: usize = 256 * 1024;

/// Why a match cannot be used. The rule that contains it is dropped.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum MatchError {
    /// The regular expression is longer than the limit.
    #[error("{field}: the regular expression has {length} characters; at most {PATTERN_LENGTH} are supported")]
    TooLong {
        /// The field of the match.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// The regular expression needs too much memory.
    #[error("{field}: the regular expression {pattern:?} is too large when compiled; use smaller repetition counts")]
    TooLarge {
        /// The field of the match.
        field: &'static str,
        /// The expression.
        pattern: Box<str>,
    },
    /// The regular expression cannot be parsed.
    #[error("{field}: {pattern:?} is not a regular expression in RE2 syntax")]
    Syntax {
        /// The field of the match.
        field: &'static str,
        /// The expression.
        pattern: Box<str>,
    },
    /// A kind of a later version of the API.
    #[error("{field}.type is not supported; use one of the types of Gateway API 1.7")]
    Kind {
        /// The field of the match.
        field: &'static str,
    },
    /// Not the name of a header.
    #[error("headers: {name:?} is not the name of a header")]
    HeaderName {
        /// The name.
        name: Box<str>,
    },
    /// Not a method.
    #[error("method: {method:?} is not a method of HTTP")]
    Method {
        /// The method.
        method: Box<str>,
    },
}

/// Compiles a regular expression that has to match the whole value.
pub(crate) fn compile(field: &'static str, pattern: &str) -> Result<Regex, MatchError> {
    let length = pattern.chars().count();
    if length > PATTERN_LENGTH {
        return Err(MatchError::TooLong { field, length });
    }
    let build = |pattern: &str| {
        RegexBuilder::new(pattern)
            // As in RE2, classes such as \w and the flag (?i) are about ASCII.
            .unicode(!pattern.is_ascii())
            .size_limit(COMPILED_SIZE)
            .dfa_size_limit(COMPILED_SIZE)
            .build()
    };
    // First by itself: `a)|(b` is an error, but would not be one between parentheses.
    build(pattern).and_then(|_| build(&format!(r"\A(?:{pattern})\z"))).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => MatchError::TooLarge { field, pattern: pattern.into() },
        _ => MatchError::Syntax { field, pattern: pattern.into() },
    })
}

/// A condition on a value.
#[derive(Clone, Debug)]
pub(crate) enum ValueCondition {
    Exact(Box<str>),
    Regex(Regex),
}

impl ValueCondition {
    pub(crate) fn new(field: &'static str, kind: MatchKind, value: &str) -> Result<Self, MatchError> {
        match kind {
            MatchKind::Exact => Ok(Self::Exact(value.into())),
            MatchKind::RegularExpression => Ok(Self::Regex(compile(field, value)?)),
            MatchKind::Unknown => Err(MatchError::Kind { field }),
        }
    }

    pub(crate) fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(expected) => expected.as_bytes() == value,
            Self::Regex(regex) => regex.is_match(value),
        }
    }
}

/// How many conditions on headers count: of several for one name, the first.
pub(crate) fn distinct_headers(all: &[NamedMatch]) -> usize {
    distinct(all, |one, two| one.eq_ignore_ascii_case(two))
}

/// How many conditions on query parameters count: of several for one name, the first.
pub(crate) fn distinct_parameters(all: &[NamedMatch]) -> usize {
    distinct(all, |one, two| one == two)
}

fn distinct(all: &[NamedMatch], is_same: impl Fn(&str, &str) -> bool) -> usize {
    let is_first = |(at, one): &(usize, &NamedMatch)| !all[..*at].iter().any(|other| is_same(&other.name, &one.name));
    all.iter().enumerate().filter(is_first).count()
}

/// A condition on a header.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCondition {
    pub(crate) name: HeaderName,
    value: ValueCondition,
}

impl HeaderCondition {
    /// Compiles the headers of a match; of several for one name, the first counts.
    pub(crate) fn all(matches: &[NamedMatch]) -> Result<Box<[Self]>, MatchError> {
        let mut all: Vec<Self> = Vec::with_capacity(matches.len());
        for given in matches {
            let name = HeaderName::from_bytes(given.name.as_bytes())
                .map_err(|_| MatchError::HeaderName { name: given.name.clone() })?;
            let value = ValueCondition::new("headers", given.kind, &given.value)?;
            if !all.iter().any(|condition| condition.name == name) {
                all.push(Self { name, value });
            }
        }
        Ok(all.into())
    }

    /// Whether the header is there with that value; values of repeated headers are joined by commas.
    pub(crate) fn holds(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(&self.name).iter();
        let Some(first) = values.next() else { return false };
        let mut rest = values.peekable();
        if rest.peek().is_none() {
            return self.value.holds(first.as_bytes());
        }
        match &self.value {
            ValueCondition::Exact(expected) => joins_to(first, rest, expected.as_bytes()),
            ValueCondition::Regex(regex) => {
                let mut joined = first.as_bytes().to_vec();
                for value in rest {
                    joined.push(b',');
                    joined.extend_from_slice(value.as_bytes());
                }
                regex.is_match(&joined)
            }
        }
    }
}

fn joins_to<'a>(first: &HeaderValue, rest: impl Iterator<Item = &'a HeaderValue>, expected: &[u8]) -> bool {
    let Some(mut left) = expected.strip_prefix(first.as_bytes()) else { return false };
    for value in rest {
        match left.strip_prefix(b",").and_then(|left| left.strip_prefix(value.as_bytes())) {
            Some(after) => left = after,
            None => return false,
        }
    }
    left.is_empty()
}

/// A condition on a query parameter. Names and values of the query are decoded (`%XX`, and `+` for a space) before they
/// are compared.
#[derive(Clone, Debug)]
pub(crate) struct QueryCondition {
    pub(crate) name: Box<str>,
    value: ValueCondition,
}

impl QueryCondition {
    /// Compiles the query parameters of a match; of several for one name, the first counts.
    pub(crate) fn all(matches: &[NamedMatch]) -> Result<Box<[Self]>, MatchError> {
        let mut all: Vec<Self> = Vec::with_capacity(matches.len());
        for given in matches {
            let value = ValueCondition::new("queryParams", given.kind, &given.value)?;
            if !all.iter().any(|condition| condition.name == given.name) {
                all.push(Self { name: given.name.clone(), value });
            }
        }
        Ok(all.into())
    }

    /// Whether the first parameter of that name has that value.
    pub(crate) fn holds(&self, query: Option<&str>) -> bool {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let Some((_, value)) = pairs.find(|(name, _)| decodes_to(name, &self.name)) else { return false };
        match &self.value {
            ValueCondition::Exact(expected) => decodes_to(value, expected),
            ValueCondition::Regex(regex) if is_plain(value) => regex.is_match(value.as_bytes()),
            ValueCondition::Regex(regex) => regex.is_match(&decoded(value).collect::<Vec<u8>>()),
        }
    }
}

fn is_plain(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, b'%' | b'+'))
}

fn decodes_to(text: &str, expected: &str) -> bool {
    if is_plain(text) { text == expected } else { decoded(text).eq(expected.bytes()) }
}

/// The bytes of an encoded name or value; `%` without two hexadecimal digits stands for itself.
fn decoded(text: &str) -> impl Iterator<Item = u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = *bytes.get(at)?;
        at += 1;
        Some(match byte {
            b'+' => b' ',
            b'%' => match (digit(at), digit(at + 1)) {
                (Some(high), Some(low)) => {
                    at += 2;
                    u8::try_from(high * 16 + low).unwrap_or(b'%')
                }
                _ => b'%',
            },
            byte => byte,
        })
    })
}

#[cfg(test)]
mod tests {
    use api::view::gateway_api::{MatchKind, NamedMatch};
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{HeaderCondition, MatchError, PATTERN_LENGTH, QueryCondition, compile};

    fn named(kind: MatchKind, name: &str, value: &str) -> NamedMatch {
        NamedMatch { kind, name: name.into(), value: value.into() }
    }

    fn header(kind: MatchKind, value: &str, sent: &[&str]) -> bool {
        let headers: HeaderMap =
            sent.iter().map(|value| (HeaderName::from_static("x-a"), HeaderValue::from_str(value).unwrap())).collect();
        HeaderCondition::all(&[named(kind, "X-A", value)]).unwrap()[0].holds(&headers)
    }

    fn query(kind: MatchKind, value: &str, sent: &str) -> bool {
        QueryCondition::all(&[named(kind, "a b", value)]).unwrap()[0].holds(Some(sent))
    }

    #[test]
    fn headers_are_joined_by_commas() {
        use MatchKind::{Exact, RegularExpression};
        let table: [(_, _, &[&str], _); 11] = [
            (Exact, "one", &["one"], true),
            (Exact, "one", &["One"], false),
            (Exact, "one", &[], false),
            (Exact, "one,two", &["one", "two"], true),
            (Exact, "one,two", &["one,two"], true),
            (Exact, "one", &["one", "two"], false),
            (Exact, "one,two,", &["one", "two"], false),
            (Exact, "one,", &["one", ""], true),
            (RegularExpression, "o.e", &["one"], true),
            (RegularExpression, "one,t.*", &["one", "two"], true),
            (RegularExpression, "on", &["one"], false),
        ];
        for (kind, value, sent, expected) in table {
            assert_eq!(header(kind, value, sent), expected, "{value} {sent:?}");
        }
    }

    #[test]
    fn query_parameters_are_decoded_and_the_first_counts() {
        use MatchKind::{Exact, RegularExpression};
        let table = [
            (Exact, "1", "a+b=1", true),
            (Exact, "1", "a%20b=1&x", true),
            (Exact, "1", "x=2&a+b=1&a+b=2", true),
            (Exact, "1", "a+b=2&a+b=1", false),
            (Exact, "1", "A+b=1", false),
            (Exact, "", "a+b", true),
            (Exact, "", "a+b=", true),
            (Exact, "=x", "a+b==x", true),
            (Exact, "é", "a+b=%C3%a9", true),
            (Exact, "%zz%", "a+b=%zz%", true),
            (Exact, "1", "", false),
            (RegularExpression, "[0-9] [a-z]", "a+b=1+z", true),
            (RegularExpression, "[0-9]", "a+b=12", false),
        ];
        for (kind, value, sent, expected) in table {
            assert_eq!(query(kind, value, sent), expected, "{value} {sent}");
        }
        assert!(!QueryCondition::all(&[named(Exact, "a", "")]).unwrap()[0].holds(None));
    }

    #[test]
    fn the_first_of_equal_names_counts() {
        let exact = |name, value| named(MatchKind::Exact, name, value);
        assert_eq!(HeaderCondition::all(&[exact("a", "1"), exact("A", "2")]).unwrap().len(), 1);
        assert_eq!(QueryCondition::all(&[exact("a", "1"), exact("A", "2"), exact("a", "3")]).unwrap().len(), 2);
    }

    #[test]
    fn regular_expressions_are_whole_and_limited() {
        let whole = compile("path", "/a|/bc").unwrap();
        assert!(whole.is_match(b"/a") && whole.is_match(b"/bc") && !whole.is_match(b"/ab") && !whole.is_match(b"/a\n"));
        assert!(compile("path", r"(?i)/a\w+").unwrap().is_match(b"/Ab"));
        assert!(compile("path", "/[é]").unwrap().is_match("/é".as_bytes()));
        assert!(matches!(compile("path", "a)|(b"), Err(MatchError::Syntax { .. })));
        assert!(matches!(compile("path", "(a{1000}){1000}"), Err(MatchError::TooLarge { .. })));
        assert!(matches!(compile("path", &"a".repeat(PATTERN_LENGTH + 1)), Err(MatchError::TooLong { .. })));
        let unknown = HeaderCondition::all(&[named(MatchKind::Unknown, "a", "")]);
        assert_eq!(unknown.unwrap_err(), MatchError::Kind { field: "headers" });
        assert!(matches!(
            HeaderCondition::all(&[named(MatchKind::Exact, ":method", "")]),
            Err(MatchError::HeaderName { .. })
        ));
    }
}
