//! The table against a scan of all matches in the order of the specification, also after changes.

use std::cmp::Reverse;
use std::sync::Arc;

use api::view::gateway_api::{HttpRouteMatch, MatchKind, NamedMatch, PathMatch, PathMatchKind};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use proptest::sample::select;

use super::{Failed, HttpTable, RequestView, RouteEntry};
use crate::hosts::covers;
use crate::model::{RouteId, RouteKind};

#[derive(Clone, Debug)]
struct Route {
    id: RouteId,
    created: &'static str,
    hostnames: Vec<Arc<str>>,
    rules: Vec<Vec<HttpRouteMatch>>,
}

#[derive(Clone, Debug)]
struct Request {
    method: Method,
    host: String,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
}

type Found = (RouteId, usize);

fn value_holds(kind: MatchKind, expected: &str, value: &str) -> bool {
    match kind {
        MatchKind::RegularExpression => regex::Regex::new(&format!("^({expected})$")).unwrap().is_match(value),
        _ => expected == value,
    }
}

fn match_holds(given: &HttpRouteMatch, request: &Request) -> bool {
    let default = PathMatch::default();
    let path = given.path.as_ref().unwrap_or(&default);
    let value = path.value.as_deref().unwrap_or("/");
    let split = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let path_holds = match path.kind {
        PathMatchKind::Exact => value == request.path,
        PathMatchKind::RegularExpression => value_holds(MatchKind::RegularExpression, value, &request.path),
        // The prefix `/` also covers `*` of OPTIONS and the empty path of CONNECT.
        _ if value.trim_end_matches('/').is_empty() => true,
        _ => split(&request.path).starts_with(&split(value.trim_end_matches('/'))),
    };
    let header = |one: &NamedMatch| {
        let name = HeaderName::from_bytes(one.name.as_bytes()).unwrap();
        let values: Vec<_> = request.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
        !values.is_empty() && value_holds(one.kind, &one.value, &values.join(","))
    };
    let query = |one: &NamedMatch| {
        let pairs = request.query.as_deref().unwrap_or_default().split('&');
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.find(|(name, _)| *name == &*one.name).is_some_and(|(_, v)| value_holds(one.kind, &one.value, v))
    };
    path_holds
        && given.method.as_deref().is_none_or(|method| method == request.method.as_str())
        && given.headers.iter().all(header)
        && given.query_params.iter().all(query)
}

/// The position of a path in the order of precedence: smaller is better.
fn path_rank(given: &HttpRouteMatch) -> (u8, Reverse<usize>) {
    let Some(path) = &given.path else { return (2, Reverse(0)) };
    let value = path.value.as_deref().unwrap_or("/");
    match path.kind {
        PathMatchKind::Exact => (0, Reverse(value.len())),
        PathMatchKind::RegularExpression => (1, Reverse(value.len())),
        _ => (2, Reverse(value.trim_end_matches('/').len())),
    }
}

fn host_rank(name: Option<&str>) -> (u8, Reverse<usize>) {
    match name {
        None => (2, Reverse(0)),
        Some(name) => (u8::from(name.starts_with("*.")), Reverse(name.len())),
    }
}

fn scan(routes: &[Route], request: &Request) -> Option<Found> {
    let default = [HttpRouteMatch::default()];
    let mut found = Vec::new();
    for route in routes {
        let names: Vec<Option<&str>> = route.hostnames.iter().map(|name| Some(&**name)).collect();
        for name in if names.is_empty() { vec![None] } else { names } {
            if !covers(name, &request.host) {
                continue;
            }
            for (index, rule) in route.rules.iter().enumerate() {
                for (place, given) in if rule.is_empty() { &default[..] } else { rule }.iter().enumerate() {
                    if match_holds(given, request) {
                        let conditions = (given.method.is_some(), given.headers.len(), given.query_params.len());
                        let age = (route.created, route.id.key.clone(), index, place);
                        let rank = (host_rank(name), path_rank(given), Reverse(conditions), age);
                        found.push((rank, (route.id.clone(), index)));
                    }
                }
            }
        }
    }
    found.into_iter().min_by(|one, two| one.0.cmp(&two.0)).map(|(_, found)| found)
}

fn named(names: &'static [&'static str]) -> impl Strategy<Value = NamedMatch> {
    let value = prop_oneof![
        4 => select(&["1", "2", "1,2"]).prop_map(|value| (MatchKind::Exact, value)),
        1 => select(&["[12]", "1|2", ".*"]).prop_map(|value| (MatchKind::RegularExpression, value)),
    ];
    (select(names), value).prop_map(|(name, (kind, value))| NamedMatch { kind, name: name.into(), value: value.into() })
}

fn distinct(names: &'static [&'static str]) -> impl Strategy<Value = Vec<NamedMatch>> {
    proptest::collection::vec(named(names), 0..3).prop_map(|mut all| {
        all.sort_by(|one, two| one.name.cmp(&two.name));
        all.dedup_by(|one, two| one.name == two.name);
        all
    })
}

const PATHS: &[&str] = &["/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/ab", "/b", "/a//b", "*", ""];

fn path() -> impl Strategy<Value = PathMatch> {
    let plain = select(&PATHS[..8]);
    prop_oneof![
        2 => plain.clone().prop_map(|value| (PathMatchKind::Exact, value)),
        3 => plain.prop_map(|value| (PathMatchKind::PathPrefix, value)),
        1 => select(&["/a.*", "/[ab]", ".*", "/a/.+"]).prop_map(|value| (PathMatchKind::RegularExpression, value)),
    ]
    .prop_map(|(kind, value)| PathMatch { kind, value: Some(value.into()) })
}

fn one_match() -> impl Strategy<Value = HttpRouteMatch> {
    let method = prop::option::weighted(0.3, select(&["GET", "POST"]).prop_map(Box::from));
    (prop::option::weighted(0.9, path()), distinct(&["x-a", "X-B"]), distinct(&["q", "r"]), method)
        .prop_map(|(path, headers, query_params, method)| HttpRouteMatch { path, headers, query_params, method })
}

fn route() -> impl Strategy<Value = Route> {
    let host = select(&["a.b.c", "b.c", "*.b.c", "*.c", "x.c"]).prop_map(Arc::from);
    let rules = proptest::collection::vec(proptest::collection::vec(one_match(), 0..3), 1..4);
    let created = select(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]);
    (0..12u8, created, proptest::collection::vec(host, 0..3), rules).prop_map(|(name, created, hostnames, rules)| {
        Route { id: RouteId { kind: RouteKind::Http, key: format!("ns/{name}").into() }, created, hostnames, rules }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let host = select(&["a.b.c", "b.c", "y.x.b.c", "x.c", "c", "other"]).prop_map(str::to_owned);
    let query = prop::option::of(select(&["q=1", "q=2&r=1", "r=1&q=1&q=2", "q"]).prop_map(str::to_owned));
    let header = (select(&["x-a", "x-b"]), select(&["1", "2"]));
    let headers = proptest::collection::vec(header, 0..4).prop_map(|all| {
        let mut map = HeaderMap::new();
        for (name, value) in all {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    });
    let path = prop_oneof![select(PATHS).prop_map(str::to_owned), "(/[ab]{0,2}){1,5}"];
    (select(&[Method::GET, Method::POST, Method::PUT]), host, path, query, headers)
        .prop_map(|(method, host, path, query, headers)| Request { method, host, path, query, headers })
}

fn check(table: &HttpTable<Found>, routes: &[Route], request: &Request) -> Result<(), TestCaseError> {
    let view = RequestView {
        method: &request.method,
        host: &request.host,
        path: &request.path,
        query: request.query.as_deref(),
        headers: &request.headers,
    };
    let found = table.find(&view).map(|selected| selected.rule.clone());
    prop_assert_eq!(&found, &scan(routes, request));
    let explained = table.explain(&view);
    prop_assert_eq!(&found, &explained.iter().find(|one| one.failed.is_none()).map(|one| one.rule.clone()));
    prop_assert!(explained.iter().all(|one| one.failed != Some(Failed::Host)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_table_equals_a_scan_of_all_matches(
        steps in proptest::collection::vec((route(), prop::bool::weighted(0.75)), 0..25),
        requests in proptest::collection::vec(request(), 1..8),
    ) {
        let mut routes: Vec<Route> = Vec::new();
        let mut table = HttpTable::default();
        let mut published = Vec::new();
        for (route, insert) in steps {
            routes.retain(|other| other.id != route.id);
            if insert {
                let entry = RouteEntry { id: &route.id, created: route.created, hostnames: &route.hostnames };
                let rules = route.rules.iter().enumerate();
                table.insert(entry, rules.map(|(index, rule)| (index, &rule[..], (route.id.clone(), index))));
                routes.push(route);
            } else {
                table.remove(&route.id);
            }
            prop_assert_eq!(table.len(), routes.len());
            published.push((table.clone(), routes.clone()));
        }
        published.push((table, routes));
        for request in &requests {
            for (table, routes) in published.iter().rev().step_by(4) {
                check(table, routes, request)?;
            }
        }
    }
}
