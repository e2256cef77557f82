//! The table against a scan of all matches in the order of the specification, also after changes.

use std::sync::Arc;

use api::view::gateway_api::{HttpRouteMatch, MatchKind, NamedMatch, PathMatch, PathMatchKind};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use proptest::sample::select;

use super::scan::{Found, Route, scan};
use super::{Failed, HttpTable, RequestView, RouteEntry};
use crate::model::{RouteId, RouteKind};

#[derive(Clone, Debug)]
struct Request {
    method: Method,
    host: String,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
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
    prop_assert_eq!(&found, &scan(routes, &view));
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
