//! Which rule takes a gRPC call: in, the GRPCRoutes of a listener; out, the rule for a call to `/SERVICE/METHOD`.
//!
//! The order of precedence, over all routes of the listener:
//! 1. the most specific hostname, as written in the route ([`crate::hosts`]);
//! 2. an exact service, then regular expressions (longer patterns first), then any service; 3. the same for the method;
//! 4. more conditions on headers; 5. the older route, then `namespace/name`, then the order of the rules and matches.
//!
//! If no rule of a hostname takes the call, the next hostname that covers the host is tried.

mod entry;
mod level;

use std::sync::Arc;

use api::view::gateway_api::GrpcRouteMatch;

pub use crate::conditions::MatchError;
pub use crate::http_table::RequestView;
use crate::model::RouteId;
use crate::table::Table;
pub use crate::table::{Considered, Failed, RouteEntry, Selected};
pub use entry::Rank;
use entry::{Call, Compiled, Entry};
use level::Methods;

/// The rules of a listener, with one value (such as an `Arc`) for each. Costs are those of
/// [`HttpTable`](crate::http_table::HttpTable); matches without an exact service are tried one after the other.
#[derive(Debug)]
pub struct GrpcTable<R>(Table<Methods<R>>);

impl<R> Clone for GrpcTable<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Default for GrpcTable<R> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<R: Clone> GrpcTable<R> {
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
    /// A rule without matches takes all calls; rules with a match that cannot be used ([`check_matches`]) are dropped.
    pub fn insert<'m>(&mut self, route: RouteEntry<'_>, rules: impl Iterator<Item = (usize, &'m [GrpcRouteMatch], R)>) {
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

    /// The rule that takes a call.
    #[must_use]
    pub fn find(&self, request: &RequestView<'_>) -> Option<Selected<'_, R>> {
        let call = Call::of(request.path)?;
        let entry = self.0.levels(request.host).find_map(|level| level.value.find(&call, request.headers))?;
        Some(Selected { rule: &entry.value, prefix: None })
    }

    /// All matches of the hostnames that cover the host, in order of precedence, with the first condition of each that
    /// does not hold. For diagnosis: the cost is that of the number of entries.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &RequestView<'a>) -> Vec<Considered<'a, R>> {
        let call = Call::of(request.path);
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
                failed: match &call {
                    Some(call) => entry.failed(call, request.headers),
                    None => Some(Failed::Path),
                },
            }));
        }
        all
    }
}

/// Whether all matches of a rule can be used.
///
/// # Errors
/// The first one that cannot.
pub fn check_matches(matches: &[GrpcRouteMatch]) -> Result<(), MatchError> {
    Compiled::all(matches).map(drop)
}

#[cfg(test)]
mod tests;
