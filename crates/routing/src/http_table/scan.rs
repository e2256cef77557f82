//! The specification of the table, for tests and the fuzzer: a scan of all matches of all routes, without an index.
//!
//! In: routes as written and a request; out, the rule that takes it. It shares nothing with the table but the types of the API.

use std::cmp::Reverse;
use std::sync::Arc;

use api::view::gateway_api::{HttpRouteMatch, MatchKind, NamedMatch, PathMatch, PathMatchKind};
use http::{HeaderName, Method};
use regex::bytes::Regex;

use super::RequestView;
use crate::hosts::covers;
use crate::model::{RouteId, RouteKind};

/// A route with the matches of its rules.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its identity.
    pub id: RouteId,
    /// Its creationTimestamp.
    pub created: &'static str,
    /// Its hostnames; all hosts when empty.
    pub hostnames: Vec<Arc<str>>,
    /// The matches of each rule; all requests when empty.
    pub rules: Vec<Vec<HttpRouteMatch>>,
}

/// A rule: its route and its place in it.
pub type Found = (RouteId, usize);

/// The rule that takes a request.
#[must_use]
pub fn scan(routes: &[Route], request: &RequestView<'_>) -> Option<Found> {
    let default = [HttpRouteMatch::default()];
    let mut found = Vec::new();
    for route in routes {
        let names: Vec<Option<&str>> = route.hostnames.iter().map(|name| Some(&**name)).collect();
        for name in if names.is_empty() { vec![None] } else { names } {
            if !covers(name, request.host) || !is_for(route.id.kind, name, request.host) {
                continue;
            }
            let usable = route.rules.iter().enumerate().filter(|(_, rule)| rule.iter().all(is_usable));
            for (index, rule) in usable {
                for (place, given) in if rule.is_empty() { &default[..] } else { rule }.iter().enumerate() {
                    if match_holds(given, request) {
                        let age = (route.created, route.id.key.clone(), route.id.kind, index, place);
                        let rank = (host_rank(name), path_rank(given), Reverse(conditions(given)), age);
                        found.push((rank, (route.id.clone(), index)));
                    }
                }
            }
        }
    }
    found.into_iter().min_by(|one, two| one.0.cmp(&two.0)).map(|(_, found)| found)
}

/// The `*` of an Ingress stands for one label.
fn is_for(kind: RouteKind, name: Option<&str>, host: &str) -> bool {
    let suffix = name.and_then(|name| name.strip_prefix("*."));
    kind != RouteKind::Ingress
        || suffix.is_none_or(|suffix| host.len() > suffix.len() && !host[..host.len() - suffix.len() - 1].contains('.'))
}

fn pattern(text: &str) -> Option<Regex> {
    let is_whole = Regex::new(text).is_ok();
    is_whole.then(|| Regex::new(&format!("^(?:{text})$")).ok()).flatten()
}

fn is_usable(given: &HttpRouteMatch) -> bool {
    let named = |one: &NamedMatch| match one.kind {
        MatchKind::Exact => true,
        MatchKind::RegularExpression => pattern(&one.value).is_some(),
        MatchKind::Unknown => false,
    };
    let path = given.path.as_ref().is_none_or(|path| match path.kind {
        PathMatchKind::RegularExpression => pattern(path.value.as_deref().unwrap_or("/")).is_some(),
        PathMatchKind::Unknown => false,
        PathMatchKind::Exact | PathMatchKind::PathPrefix => true,
    });
    let is_method = given.method.as_ref().is_none_or(|method| Method::from_bytes(method.as_bytes()).is_ok());
    let is_name = |one: &NamedMatch| HeaderName::from_bytes(one.name.as_bytes()).is_ok();
    path && is_method
        && given.headers.iter().all(|one| is_name(one) && named(one))
        && given.query_params.iter().all(named)
}

fn value_holds(kind: MatchKind, expected: &str, value: &[u8]) -> bool {
    match kind {
        MatchKind::RegularExpression => pattern(expected).is_some_and(|pattern| pattern.is_match(value)),
        _ => expected.as_bytes() == value,
    }
}

/// Conditions of which the first for each name counts.
fn first_of_each<'a>(all: &'a [NamedMatch], key: impl Fn(&str) -> String) -> Vec<&'a NamedMatch> {
    let is_first =
        |(at, one): &(usize, &NamedMatch)| !all[..*at].iter().any(|other| key(&other.name) == key(&one.name));
    all.iter().enumerate().filter(is_first).map(|(_, one)| one).collect()
}

fn headers(given: &HttpRouteMatch) -> Vec<&NamedMatch> {
    first_of_each(&given.headers, str::to_ascii_lowercase)
}

fn parameters(given: &HttpRouteMatch) -> Vec<&NamedMatch> {
    first_of_each(&given.query_params, str::to_owned)
}

fn match_holds(given: &HttpRouteMatch, request: &RequestView<'_>) -> bool {
    let default = PathMatch::default();
    let path = given.path.as_ref().unwrap_or(&default);
    let value = path.value.as_deref().unwrap_or("/");
    let split = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let path_holds = match path.kind {
        PathMatchKind::Exact => value == request.path,
        PathMatchKind::RegularExpression => value_holds(MatchKind::RegularExpression, value, request.path.as_bytes()),
        // The prefix `/` also covers `*` of OPTIONS and the empty path of CONNECT.
        _ if value.trim_end_matches('/').is_empty() => true,
        _ => split(request.path).starts_with(&split(&absolute(value))),
    };
    let header = |one: &NamedMatch| {
        let values: Vec<&[u8]> = request.headers.get_all(&*one.name).iter().map(|value| value.as_bytes()).collect();
        !values.is_empty() && value_holds(one.kind, &one.value, &values.join(&b","[..]))
    };
    let query = |one: &NamedMatch| {
        let pairs = request.query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let named = pairs.find(|(name, _)| decoded(name) == one.name.as_bytes());
        named.is_some_and(|(_, value)| value_holds(one.kind, &one.value, &decoded(value)))
    };
    path_holds
        && given.method.as_deref().is_none_or(|method| method == request.method.as_str())
        && headers(given).into_iter().all(header)
        && parameters(given).into_iter().all(query)
}

/// A prefix without `/` at its end, and with one at its start, which those of Ingresses may lack.
fn absolute(prefix: &str) -> String {
    let prefix = prefix.trim_end_matches('/');
    if prefix.starts_with('/') { prefix.to_owned() } else { format!("/{prefix}") }
}

/// A name or value of a query, as browsers encode forms.
fn decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|two| *first == b'%' && two.iter().all(u8::is_ascii_hexdigit));
        let escaped = digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

fn conditions(given: &HttpRouteMatch) -> (bool, usize, usize) {
    (given.method.is_some(), headers(given).len(), parameters(given).len())
}

/// The position of a path in the order of precedence: smaller is better.
fn path_rank(given: &HttpRouteMatch) -> (u8, Reverse<usize>) {
    let Some(path) = &given.path else { return (2, Reverse(0)) };
    let value = path.value.as_deref().unwrap_or("/");
    match path.kind {
        PathMatchKind::Exact => (0, Reverse(value.len())),
        PathMatchKind::RegularExpression => (1, Reverse(value.chars().count())),
        _ if value.trim_end_matches('/').is_empty() => (2, Reverse(0)),
        _ => (2, Reverse(absolute(value).len())),
    }
}

/// The position of a hostname in the order of precedence: smaller is better.
fn host_rank(name: Option<&str>) -> (u8, Reverse<usize>) {
    match name {
        None => (2, Reverse(0)),
        Some(name) => (u8::from(name.starts_with("*.")), Reverse(name.len())),
    }
}
