//! Rules of routes with all references resolved, and which rules of a route are not valid.

use std::sync::Arc;
use std::time::Duration;

use api::view::gateway_api::{
    Filter, FilterKind, GrpcRouteRule, HttpRouteMatch, HttpRouteRule, Retry as RetrySpec, StreamRoute,
};

use crate::cluster::Verdict;
use crate::cluster::objects::RouteObject;
use crate::filters::Filters;
use crate::model::{Backend, Matches, Retry, RouteId, Rule, StreamRule};
use crate::references::Resolver;
use crate::{durations, grpc_table, http_table};

/// Attempts after the first, where a rule has retries and does not say how many.
const RETRY_ATTEMPTS: u32 = 1;

/// The rules of a route.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) rules: Vec<Rule>,
    /// What is wrong with the rules that are not valid, each once.
    problems: Vec<String>,
    dropped: usize,
}

impl Rules {
    /// Condition `PartiallyInvalid`.
    pub(crate) fn partially_invalid(&self) -> Option<Verdict> {
        (!self.problems.is_empty()).then(|| Verdict::good("UnsupportedValue", self.problems.join("; ")))
    }

    /// Condition `Accepted` when no rule is left.
    pub(crate) fn refusal(&self) -> Option<Verdict> {
        let none_left = self.dropped > 0 && self.rules.is_empty();
        none_left.then(|| Verdict::bad("UnsupportedValue", self.problems.join("; ")))
    }

    fn drop_rule(&mut self, index: usize, name: Option<&str>, why: &str) {
        self.dropped += 1;
        self.problems.push(format!("Dropped Rule {}: {why}", describe(index, name)));
    }

    fn keep(&mut self, rule: Rule) {
        if let Some(why) = &rule.broken {
            let which = describe(rule.index, rule.name.as_deref());
            self.problems.push(format!("Dropped Rule {which}: {why}; its requests are answered with status 500"));
        }
        self.rules.push(rule);
    }
}

fn describe(index: usize, name: Option<&str>) -> String {
    name.map_or_else(|| index.to_string(), |name| format!("{index} (\"{name}\")"))
}

/// Whether no rule is left of a route that has some: it is accepted nowhere then.
pub(crate) fn is_refused(object: &RouteObject) -> bool {
    match object {
        RouteObject::Http(route) => {
            let rules = &route.spec.rules;
            !rules.is_empty() && rules.iter().all(|rule| http_table::check_matches(&rule.matches).is_err())
        }
        RouteObject::Grpc(route) => {
            let rules = &route.spec.rules;
            !rules.is_empty() && rules.iter().all(|rule| grpc_table::check_matches(&rule.matches).is_err())
        }
        RouteObject::Stream(_) => false,
    }
}

/// The rules of an HTTPRoute.
pub(crate) fn http(route: &RouteId, rules: &[HttpRouteRule], resolver: &mut Resolver<'_, '_>) -> Rules {
    let mut found = Rules::default();
    for (index, rule) in rules.iter().enumerate() {
        if let Err(why) = http_table::check_matches(&rule.matches) {
            resolve_only(resolver, &rule.filters, &rule.backend_refs);
            found.drop_rule(index, rule.name.as_deref(), &why.to_string());
            continue;
        }
        let backends = resolver.backends(&rule.backend_refs);
        found.keep(Rule {
            route: route.clone(),
            index,
            name: rule.name.clone(),
            matches: Matches::Http(matches_or_all(&rule.matches)),
            mirrors: resolver.mirrors(&rule.filters),
            broken: broken(&rule.filters, &backends, resolver),
            filters: rule.filters.clone(),
            backends,
            request_timeout: duration(rule.timeouts.request.as_deref()),
            backend_timeout: duration(rule.timeouts.backend_request.as_deref()),
            retry: rule.retry.as_ref().map(retry),
            session: rule.session_persistence.clone(),
            policy: None,
        });
    }
    found
}

/// The rules of a GRPCRoute.
pub(crate) fn grpc(route: &RouteId, rules: &[GrpcRouteRule], resolver: &mut Resolver<'_, '_>) -> Rules {
    let mut found = Rules::default();
    for (index, rule) in rules.iter().enumerate() {
        if let Err(why) = grpc_table::check_matches(&rule.matches) {
            resolve_only(resolver, &rule.filters, &rule.backend_refs);
            found.drop_rule(index, rule.name.as_deref(), &why.to_string());
            continue;
        }
        let backends = resolver.backends(&rule.backend_refs);
        found.keep(Rule {
            route: route.clone(),
            index,
            name: rule.name.clone(),
            matches: Matches::Grpc(rule.matches.clone()),
            mirrors: resolver.mirrors(&rule.filters),
            broken: broken(&rule.filters, &backends, resolver),
            filters: rule.filters.clone(),
            backends,
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            session: rule.session_persistence.clone(),
            policy: None,
        });
    }
    found
}

/// The rule of a TLSRoute, a TCPRoute or a UDPRoute.
pub(crate) fn stream(
    id: &RouteId,
    route: &StreamRoute,
    hostnames: &[Arc<str>],
    resolver: &mut Resolver<'_, '_>,
) -> Option<StreamRule> {
    let rule = route.spec.rules.first()?;
    let backends = resolver.backends(&rule.backend_refs);
    Some(StreamRule { route: id.clone(), hostnames: hostnames.to_vec(), backends, policy: None })
}

/// The references of a dropped rule count for `ResolvedRefs` as well.
fn resolve_only(
    resolver: &mut Resolver<'_, '_>,
    filters: &[Filter],
    references: &[api::view::gateway_api::BackendRef],
) {
    resolver.mirrors(filters);
    resolver.backends(references);
}

/// A rule without matches takes every request: those with the prefix `/`.
fn matches_or_all(matches: &[HttpRouteMatch]) -> Vec<HttpRouteMatch> {
    if matches.is_empty() { vec![HttpRouteMatch::default()] } else { matches.to_vec() }
}

/// Why requests of a rule fail: a filter that cannot be applied, of the rule or of one of its backends.
fn broken(filters: &[Filter], backends: &[Backend], resolver: &mut Resolver<'_, '_>) -> Option<Box<str>> {
    let all = || filters.iter().chain(backends.iter().flat_map(|backend| &backend.filters));
    for filter in all().filter(|filter| filter.kind == FilterKind::ExtensionRef) {
        resolver.unknown_kind(&filter.extension_ref.clone().unwrap_or_default());
    }
    let lists = std::iter::once(filters).chain(backends.iter().map(|backend| &backend.filters[..]));
    lists.filter_map(|filters| Filters::compile(filters).err()).next().map(|error| error.to_string().into())
}

fn retry(retry: &RetrySpec) -> Retry {
    Retry {
        codes: retry.codes.clone(),
        attempts: retry.attempts.unwrap_or(RETRY_ATTEMPTS),
        backoff: duration(retry.backoff.as_deref()),
    }
}

/// A duration of GEP-2257; one that is not valid is none.
fn duration(text: Option<&str>) -> Option<Duration> {
    durations::parse(text?)
}
