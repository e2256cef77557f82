//! A match of a rule, compiled: its path, its conditions, and its place in the order of precedence.

use std::cmp::{Ordering, Reverse};

use api::view::gateway_api::{HttpRouteMatch, PathMatchKind};
use http::Method;
use regex::bytes::Regex;

use super::RequestView;
use crate::conditions::{HeaderCondition, MatchError, QueryCondition, compile, distinct_headers, distinct_parameters};
use crate::table::{Failed, Origin};

/// A condition on the path.
#[derive(Debug)]
pub(super) enum Path {
    Exact(Box<str>),
    Regex(Regex),
    /// Without `/` at its end; empty for all paths.
    Prefix(Box<str>),
}

/// The place of a match in the order of precedence, before age: the smaller one is tried first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// Exact paths, then regular expressions, then prefixes.
    class: u8,
    /// Longer paths first.
    length: Reverse<usize>,
    /// A method, then more headers, then more query parameters.
    conditions: Reverse<(bool, usize, usize)>,
}

impl Rank {
    /// The rank of a match.
    #[must_use]
    pub fn of(given: &HttpRouteMatch) -> Self {
        let (kind, value) = path_of(given);
        let (class, length) = match kind {
            PathMatchKind::Exact => (0, value.len()),
            PathMatchKind::RegularExpression | PathMatchKind::Unknown => (1, value.chars().count()),
            PathMatchKind::PathPrefix => (2, prefix(value).len()),
        };
        let (headers, parameters) = (distinct_headers(&given.headers), distinct_parameters(&given.query_params));
        Self { class, length: Reverse(length), conditions: Reverse((given.method.is_some(), headers, parameters)) }
    }
}

/// The condition on the path; all paths where there is none.
fn path_of(given: &HttpRouteMatch) -> (PathMatchKind, &str) {
    let path = given.path.as_ref();
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    (path.map_or(PathMatchKind::PathPrefix, |path| path.kind), value)
}

/// A match.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) path: Path,
    rank: Rank,
    method: Option<Method>,
    headers: Box<[HeaderCondition]>,
    query: Box<[QueryCondition]>,
}

impl Compiled {
    /// The matches of a rule; one for all requests if there are none.
    pub(super) fn all(matches: &[HttpRouteMatch]) -> Result<Vec<Self>, MatchError> {
        if matches.is_empty() {
            return Ok(vec![Self::new(&HttpRouteMatch::default())?]);
        }
        matches.iter().map(Self::new).collect()
    }

    fn new(given: &HttpRouteMatch) -> Result<Self, MatchError> {
        let (kind, value) = path_of(given);
        let path = match kind {
            PathMatchKind::Exact => Path::Exact(value.into()),
            PathMatchKind::PathPrefix => Path::Prefix(prefix(value)),
            PathMatchKind::RegularExpression => Path::Regex(compile("path", value)?),
            PathMatchKind::Unknown => return Err(MatchError::Kind { field: "path" }),
        };
        let method = given.method.as_ref().map(|method| {
            Method::from_bytes(method.as_bytes()).map_err(|_| MatchError::Method { method: method.clone() })
        });
        Ok(Self {
            path,
            rank: Rank::of(given),
            method: method.transpose()?,
            headers: HeaderCondition::all(&given.headers)?,
            query: QueryCondition::all(&given.query_params)?,
        })
    }

    /// The prefix, in the form of [`crate::table::Selected`].
    pub(super) fn prefix(&self) -> Option<&str> {
        match &self.path {
            Path::Prefix(prefix) => Some(if prefix.is_empty() { "/" } else { prefix }),
            _ => None,
        }
    }

    pub(super) fn path_holds(&self, path: &str) -> bool {
        match &self.path {
            Path::Exact(exact) => **exact == *path,
            Path::Regex(regex) => regex.is_match(path.as_bytes()),
            Path::Prefix(prefix) => path
                .strip_prefix(&**prefix)
                .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/')),
        }
    }
}

/// A prefix without `/` at its end. Ingresses may have prefixes without `/` at the start.
fn prefix(value: &str) -> Box<str> {
    let value = value.trim_end_matches('/');
    if value.is_empty() || value.starts_with('/') { value.into() } else { format!("/{value}").into() }
}

/// A match in a table.
#[derive(Debug)]
pub(crate) struct Entry<R> {
    pub(super) compiled: Compiled,
    pub(super) origin: Origin,
    pub(super) value: R,
}

impl<R> Entry<R> {
    /// The order of precedence.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.compiled.rank.cmp(&other.compiled.rank).then_with(|| self.origin.order(&other.origin))
    }

    /// Whether everything but the path of the request is as it should be.
    pub(super) fn conditions_hold(&self, request: &RequestView<'_>, labels: usize) -> bool {
        let Compiled { method, headers, query, .. } = &self.compiled;
        method.as_ref().is_none_or(|method| method == request.method)
            && headers.iter().all(|header| header.holds(request.headers))
            && query.iter().all(|parameter| parameter.holds(request.query))
            && self.origin.takes_labels(labels)
    }

    /// The first condition that does not hold.
    pub(super) fn failed(&self, request: &RequestView<'_>, labels: usize) -> Option<Failed<'_>> {
        let Compiled { method, headers, query, .. } = &self.compiled;
        if !self.origin.takes_labels(labels) {
            return Some(Failed::Host);
        }
        if !self.compiled.path_holds(request.path) {
            return Some(Failed::Path);
        }
        if method.as_ref().is_some_and(|method| method != request.method) {
            return Some(Failed::Method);
        }
        let header = headers.iter().find(|header| !header.holds(request.headers));
        let parameter = query.iter().find(|parameter| !parameter.holds(request.query));
        header
            .map(|header| Failed::Header(header.name.as_str()))
            .or_else(|| parameter.map(|parameter| Failed::Query(&parameter.name)))
    }
}
