//! Routes that come, change and go, and requests, all of them from few hosts, paths and values, so that most conditions hold for some request:
//! the table finds what a scan of all matches finds, its explanation agrees, a clone keeps what it was, and nothing remains in the end.
#![no_main]

use api::view::gateway_api::{
    GrpcMethodMatch, GrpcRouteMatch, HttpRouteMatch, MatchKind, NamedMatch, PathMatch, PathMatchKind,
};
use common::{PATHS, Requested, requested};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use routing::grpc_table::GrpcTable;
use routing::http_table::scan::{Found, Route, scan};
use routing::http_table::{HttpTable, RouteEntry};
use routing::model::{RouteId, RouteKind};

/// Hostnames of routes.
const HOSTNAMES: [&str; 8] = ["a.b.c", "b.c", "x.c", "*.b.c", "*.c", "*.a.b.c", "*.y.x.b.c", "a-much-longer-name.b.c"];
const PATTERNS: [&str; 10] = ["/a.*", "/[ab]", ".*", "/a/.+", "/(a|b)/c?", "", "/a|/b", "(?i)/A", "(", "/[^/]*/b"];
/// Times at which routes were created.
const CREATED: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", ""];
/// Routes that exist at the same time; a step is about one of them.
const ROUTES: u8 = 12;

fuzz_target!(|data: &[u8]| {
    // An input that ends early is as good as its steps.
    let _ = steps(&mut Unstructured::new(data));
});

fn steps(input: &mut Unstructured<'_>) -> Result<()> {
    let (mut table, mut calls) = (HttpTable::default(), GrpcTable::default());
    let mut routes: Vec<Route> = Vec::new();
    let mut before = None;
    while !input.is_empty() {
        match input.int_in_range(0..=7u8)? {
            0 => remove(&id(input)?, &mut routes, &mut table, &mut calls),
            1 => before = Some((table.clone(), routes.clone())),
            2..=4 => {
                let route = route(input)?;
                routes.retain(|other| other.id != route.id);
                insert(&route, &mut table, &mut calls);
                routes.push(route);
            }
            _ => {
                let request = requested(input)?;
                check(&table, &routes, &request);
                if let Some((table, routes)) = &before {
                    check(table, routes, &request);
                }
                let explained = calls.explain(&request.view());
                let first = explained.into_iter().find(|one| one.failed.is_none()).map(|one| one.rule.clone());
                assert_eq!(calls.find(&request.view()).map(|found| found.rule.clone()), first);
            }
        }
        assert_eq!(table.len(), routes.len());
    }
    while let Some(route) = routes.last() {
        remove(&route.id.clone(), &mut routes, &mut table, &mut calls);
    }
    assert!(table.is_empty() && calls.is_empty());
    Ok(())
}

fn check(table: &HttpTable<Found>, routes: &[Route], request: &Requested) {
    let view = request.view();
    let found = table.find(&view).map(|found| found.rule.clone());
    assert_eq!(found, scan(routes, &view), "{request:?} {routes:?}");
    let first = table.explain(&view).into_iter().find(|one| one.failed.is_none()).map(|one| one.rule.clone());
    assert_eq!(found, first, "the explanation");
}

fn insert(route: &Route, table: &mut HttpTable<Found>, calls: &mut GrpcTable<Found>) {
    let entry = RouteEntry { id: &route.id, created: route.created, hostnames: &route.hostnames };
    let rules = || route.rules.iter().enumerate();
    table.insert(entry, rules().map(|(index, rule)| (index, &rule[..], (route.id.clone(), index))));
    let rules: Vec<Vec<GrpcRouteMatch>> = rules().map(|(_, rule)| rule.iter().map(call).collect()).collect();
    calls.insert(entry, rules.iter().enumerate().map(|(index, rule)| (index, &rule[..], (route.id.clone(), index))));
}

fn remove(id: &RouteId, routes: &mut Vec<Route>, table: &mut HttpTable<Found>, calls: &mut GrpcTable<Found>) {
    routes.retain(|route| route.id != *id);
    table.remove(id);
    calls.remove(id);
}

/// The match of calls whose service and method are the elements of the path.
fn call(given: &HttpRouteMatch) -> GrpcRouteMatch {
    let method = given.path.as_ref().map(|path| {
        let (service, method) =
            path.value.as_deref().unwrap_or_default().trim_matches('/').split_once('/').unwrap_or_default();
        let kind = match path.kind {
            PathMatchKind::RegularExpression => MatchKind::RegularExpression,
            _ => MatchKind::Exact,
        };
        GrpcMethodMatch { kind, service: Some(service.into()), method: Some(method.into()) }
    });
    GrpcRouteMatch { method, headers: given.headers.clone() }
}

fn id(input: &mut Unstructured<'_>) -> Result<RouteId> {
    let kind = *input.choose(&[RouteKind::Http, RouteKind::Http, RouteKind::Ingress])?;
    Ok(RouteId { kind, key: format!("ns/{}", input.int_in_range(0..=ROUTES - 1)?).into() })
}

fn route(input: &mut Unstructured<'_>) -> Result<Route> {
    let id = id(input)?;
    let created = input.choose(&CREATED)?;
    let hostnames = some(input, 3, |input| Ok((*input.choose(&HOSTNAMES)?).into()))?;
    let rules = some(input, 4, |input| some(input, 3, condition))?;
    Ok(Route { id, created, hostnames, rules })
}

fn condition(input: &mut Unstructured<'_>) -> Result<HttpRouteMatch> {
    let path = match input.int_in_range(0..=7u8)? {
        0 => None,
        1 => Some((PathMatchKind::RegularExpression, *input.choose(&PATTERNS)?)),
        2..=4 => Some((PathMatchKind::Exact, *input.choose(&PATHS)?)),
        _ => Some((PathMatchKind::PathPrefix, *input.choose(&PATHS)?)),
    };
    let path = path.map(|(kind, value)| PathMatch { kind, value: Some(value.into()) });
    let headers = some(input, 2, |input| named(input, &["x-a", "X-B", "X-A", "x b"]))?;
    let query_params = some(input, 2, |input| named(input, &["q", "r", "a b"]))?;
    let method = *input.choose(&[None, None, None, Some("GET"), Some("POST"), Some("get")])?;
    Ok(HttpRouteMatch { path, headers, query_params, method: method.map(Into::into) })
}

fn named(input: &mut Unstructured<'_>, names: &[&str]) -> Result<NamedMatch> {
    let name = (*input.choose(names)?).into();
    let (kind, value) = match input.int_in_range(0..=4u8)? {
        0 => (MatchKind::RegularExpression, input.choose(&["[12]", "1|2", ".*", "1,.", "("])?),
        _ => (MatchKind::Exact, input.choose(&["1", "2", "1,2", "", "1 2"])?),
    };
    Ok(NamedMatch { kind, name, value: (*value).into() })
}

/// None to `most` values; fewer when the input ends.
fn some<T>(input: &mut Unstructured<'_>, most: u8, one: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Vec<T>> {
    let count = input.int_in_range(0..=most)?;
    (0..count).map(|_| one(input)).collect()
}
