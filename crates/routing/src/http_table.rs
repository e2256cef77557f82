//! Which rule takes an HTTP request: in, the HTTPRoutes and Ingresses of a listener; out, the rule for a request.
//!
//! The order of precedence, over all routes of the listener:
//! 1. the most specific hostname, as written in the route ([`crate::hosts`]);
//! 2. an exact path, then regular expressions (longer patterns first), then prefixes (longer ones first);
//! 3. a condition on the method; 4. more conditions on headers; 5. more conditions on query parameters;
//! 6. the older route, then `namespace/name`, then the order of the rules and of the matches of a rule.
//!
//! If no rule of a hostname takes the request, the next hostname that covers the host is tried.
//!
//! ```text
//! host ──▶ HostMap ──▶ exact paths (by hash) ──▶ regular expressions (in order) ──▶ prefixes (by hash, longest first)
//!                           └──▶ entries of one path, in order of precedence, with conditions
//! ```

mod entry;
mod level;

use std::sync::Arc;

use api::view::gateway_api::HttpRouteMatch;
use http::{HeaderMap, Method};

pub use crate::conditions::MatchError;
use crate::model::RouteId;
use crate::table::Table;
pub use crate::table::{Considered, Failed, RouteEntry, Selected};
pub use entry::Rank;
use entry::{Compiled, Entry};
use level::Paths;

/// What is known of a request when its rule is selected.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its host, without port, in lower case ([`crate::hosts::host_of`]).
    pub host: &'a str,
    /// Its path, without query.
    pub path: &'a str,
    /// Its query, without `?`.
    pub query: Option<&'a str>,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

/// The rules of a listener, with one value (such as an `Arc`) for each.
///
/// A clone is a few references, so that a table can be published while the original is changed. Inserting or removing a
/// route costs, for each of its hosts and matches, a few small copies (`crate::persistent`) and one of the list of
/// entries with the same path. Finding a rule does not allocate, apart from regular expressions on values that have to be
/// joined or decoded. It costs, for each hostname that covers the host, one lookup for the path, one for each length (in
/// path elements) of its prefixes, and the regular expressions of that hostname.
#[derive(Debug)]
pub struct HttpTable<R>(Table<Paths<R>>);

impl<R> Clone for HttpTable<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Default for HttpTable<R> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<R: Clone> HttpTable<R> {
    /// Number of routes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no routes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a route into the table, in place of an earlier version of it: its rules with their index, matches and value.
    /// A rule without matches takes all requests; rules with a match that cannot be used ([`check_matches`]) are dropped.
    pub fn insert<'m>(&mut self, route: RouteEntry<'_>, rules: impl Iterator<Item = (usize, &'m [HttpRouteMatch], R)>) {
        let rules = rules.filter_map(|(index, matches, value)| {
            let compiled = Compiled::all(matches).ok()?;
            Some((index, compiled.into_iter().map(|compiled| (compiled, value.clone())).collect()))
        });
        self.0.insert(route, rules, |origin, (compiled, value)| Entry { compiled, origin, value });
    }

    /// Removes a route.
    pub fn remove(&mut self, id: &RouteId) {
        self.0.remove(id);
    }

    /// The rule that takes a request.
    #[must_use]
    pub fn find(&self, request: &RequestView<'_>) -> Option<Selected<'_, R>> {
        let entry = self.0.levels(request.host).find_map(|level| level.value.find(request, level.labels))?;
        Some(Selected { rule: &entry.value, prefix: entry.compiled.prefix() })
    }

    /// All matches of the hostnames that cover the host, in order of precedence, with the first condition of each that
    /// does not hold. For diagnosis: the cost is that of the number of entries.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &RequestView<'a>) -> Vec<Considered<'a, R>> {
        let mut all = Vec::new();
        for level in self.0.levels(request.host) {
            let mut entries: Vec<&'a Arc<Entry<R>>> = level.value.entries().collect();
            entries.sort_by(|one, two| one.order(two));
            all.extend(entries.into_iter().map(|entry| Considered {
                rule: &entry.value,
                route: entry.origin.id(),
                hostname: level.name,
                wildcard: level.labels > 0,
                rule_index: entry.origin.rule,
                match_index: entry.origin.place,
                failed: entry.failed(request, level.labels),
            }));
        }
        all
    }
}

/// Whether all matches of a rule can be used.
///
/// # Errors
/// The first one that cannot.
pub fn check_matches(matches: &[HttpRouteMatch]) -> Result<(), MatchError> {
    Compiled::all(matches).map(drop)
}

#[cfg(test)]
mod oracle;
#[cfg(any(test, fuzzing))]
pub mod scan;
#[cfg(test)]
mod tests;
