//! A match of a rule, compiled: service, method, conditions on headers, and its place in the order of precedence.

use std::cmp::{Ordering, Reverse};

use api::view::gateway_api::{GrpcRouteMatch, MatchKind};
use http::HeaderMap;

use crate::conditions::{HeaderCondition, MatchError, ValueCondition, distinct_headers};
use crate::table::{Failed, Origin};

/// A call: `/SERVICE/METHOD`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) service: &'a str,
    pub(super) method: &'a str,
}

impl<'a> Call<'a> {
    pub(super) fn of(path: &'a str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.rsplit_once('/')?;
        Some(Self { service, method })
    }
}

/// The place of a match in the order of precedence, before age: the smaller one is tried first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    service: NameRank,
    method: NameRank,
    /// More headers first.
    headers: Reverse<usize>,
}

/// Exact names, then regular expressions, then none; longer ones first.
type NameRank = (u8, Reverse<usize>);

impl Rank {
    /// The rank of a match.
    #[must_use]
    pub fn of(given: &GrpcRouteMatch) -> Self {
        let method = given.method.as_ref();
        let name = |name: Option<&Box<str>>| match (name.filter(|name| !name.is_empty()), method.map(|one| one.kind)) {
            (Some(name), Some(MatchKind::Exact)) => (0, Reverse(name.chars().count())),
            (Some(name), _) => (1, Reverse(name.chars().count())),
            (None, _) => (2, Reverse(0)),
        };
        let service = name(method.and_then(|method| method.service.as_ref()));
        let method = name(method.and_then(|method| method.method.as_ref()));
        Self { service, method, headers: Reverse(distinct_headers(&given.headers)) }
    }
}

/// A condition on the service or the method.
#[derive(Debug)]
pub(super) struct Name(ValueCondition);

impl Name {
    fn new(field: &'static str, kind: MatchKind, given: Option<&str>) -> Result<Option<Self>, MatchError> {
        let Some(given) = given.filter(|given| !given.is_empty()) else { return Ok(None) };
        Ok(Some(Self(ValueCondition::new(field, kind, given)?)))
    }

    fn holds(&self, value: &str) -> bool {
        self.0.holds(value.as_bytes())
    }

    fn exact(name: Option<&Self>) -> Option<&str> {
        match &name?.0 {
            ValueCondition::Exact(exact) => Some(exact),
            ValueCondition::Regex(_) => None,
        }
    }
}

/// A match.
#[derive(Debug)]
pub(super) struct Compiled {
    rank: Rank,
    service: Option<Name>,
    method: Option<Name>,
    headers: Box<[HeaderCondition]>,
}

impl Compiled {
    /// The matches of a rule; one for all calls if there are none.
    pub(super) fn all(matches: &[GrpcRouteMatch]) -> Result<Vec<Self>, MatchError> {
        if matches.is_empty() {
            return Ok(vec![Self::new(&GrpcRouteMatch::default())?]);
        }
        matches.iter().map(Self::new).collect()
    }

    fn new(given: &GrpcRouteMatch) -> Result<Self, MatchError> {
        let method = given.method.clone().unwrap_or_default();
        if method.kind == MatchKind::Unknown {
            return Err(MatchError::Kind { field: "method" });
        }
        Ok(Self {
            rank: Rank::of(given),
            service: Name::new("method.service", method.kind, method.service.as_deref())?,
            method: Name::new("method.method", method.kind, method.method.as_deref())?,
            headers: HeaderCondition::all(&given.headers)?,
        })
    }

    /// The service, if there is only one that fits.
    pub(super) fn service(&self) -> Option<&str> {
        Name::exact(self.service.as_ref())
    }
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

    pub(super) fn holds(&self, call: &Call<'_>, sent: &HeaderMap) -> bool {
        let Compiled { service, method, headers, .. } = &self.compiled;
        service.as_ref().is_none_or(|service| service.holds(call.service))
            && method.as_ref().is_none_or(|method| method.holds(call.method))
            && headers.iter().all(|header| header.holds(sent))
    }

    /// The first condition that does not hold.
    pub(super) fn failed(&self, call: &Call<'_>, sent: &HeaderMap) -> Option<Failed<'_>> {
        let Compiled { service, method, headers, .. } = &self.compiled;
        if service.as_ref().is_some_and(|service| !service.holds(call.service)) {
            return Some(Failed::Path);
        }
        if method.as_ref().is_some_and(|method| !method.holds(call.method)) {
            return Some(Failed::Method);
        }
        headers.iter().find(|header| !header.holds(sent)).map(|header| Failed::Header(header.name.as_str()))
    }
}
