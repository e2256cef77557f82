//! The table against cases of the specification, and against a scan of all matches, also after changes.

use std::cmp::Reverse;
use std::sync::Arc;

use api::view::gateway_api::{GrpcMethodMatch, GrpcRouteMatch, MatchKind, NamedMatch};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{Failed, GrpcTable, RequestView, RouteEntry, check_matches};
use crate::hosts::covers;
use crate::model::{RouteId, RouteKind};

fn id(key: &str) -> RouteId {
    RouteId { kind: RouteKind::Grpc, key: key.into() }
}

fn view<'a>(host: &'a str, path: &'a str, headers: &'a HeaderMap) -> RequestView<'a> {
    RequestView { method: &Method::POST, host, path, query: None, headers }
}

fn table(rules: &Value) -> GrpcTable<usize> {
    let rules: Vec<Vec<GrpcRouteMatch>> = serde_json::from_value(rules.clone()).unwrap();
    let mut table = GrpcTable::default();
    let entry = RouteEntry { id: &id("a/r"), created: "", hostnames: &[] };
    table.insert(entry, rules.iter().enumerate().map(|(index, matches)| (index, &matches[..], index)));
    table
}

fn method(kind: &str, service: Option<&str>, method: Option<&str>) -> Value {
    json!({"method": {"type": kind, "service": service, "method": method}})
}

#[test]
fn services_and_methods() {
    let table = table(&json!([
        [method("Exact", None, Some("Ping"))],
        [method("Exact", Some("foo.Bar"), None)],
        [method("Exact", Some("foo.Bar"), Some("Login"))],
        [method("RegularExpression", Some("(?i)foo\\.[A-Z]+"), Some("Log.*"))],
    ]));
    let headers = HeaderMap::new();
    let cases = [
        ("/foo.Bar/Login", Some(2)),
        ("/foo.Bar/Ping", Some(1)),
        ("/foo.Baz/Ping", Some(0)),
        ("/foo.Baz/Logout", Some(3)),
        ("/foo.Baz/Other", None),
        ("/foo.bar/login", None),
        ("/Ping", None),
        ("Ping", None),
        ("", None),
    ];
    for (path, expected) in cases {
        assert_eq!(table.find(&view("h", path, &headers)).map(|selected| *selected.rule), expected, "{path}");
    }
    let explained = table.explain(&view("h", "/foo.Baz/Ping", &headers));
    let explained: Vec<_> = explained.into_iter().map(|one| (*one.rule, one.failed)).collect();
    let path = Some(Failed::Path);
    assert_eq!(explained, [(2, path), (1, path), (3, Some(Failed::Method)), (0, None)]);
}

#[test]
fn a_rule_without_matches_takes_all_calls() {
    let headers = HeaderMap::new();
    assert!(table(&json!([[]])).find(&view("h", "/s/m", &headers)).is_some());
    assert!(table(&json!([])).find(&view("h", "/s/m", &headers)).is_none());
    assert!(
        check_matches(&serde_json::from_value::<Vec<_>>(json!([method("Later", Some("s"), None)])).unwrap()).is_err()
    );
}

#[derive(Clone, Debug)]
struct Route {
    id: RouteId,
    created: &'static str,
    hostnames: Vec<Arc<str>>,
    rules: Vec<Vec<GrpcRouteMatch>>,
}

fn one_match() -> impl Strategy<Value = GrpcRouteMatch> {
    let name = |names: &'static [&'static str]| prop::option::weighted(0.7, select(names).prop_map(Box::from));
    let header = prop::option::of(select(&["1", "2"])).prop_map(|value| {
        let header = |value: &str| NamedMatch { kind: MatchKind::Exact, name: "x-a".into(), value: value.into() };
        value.map(header).into_iter().collect()
    });
    let exact = (name(&["s", "s.t", "u"]), name(&["M", "Mn", "O"]));
    let regex = (name(&["s.*", ".*", "[su]"]), name(&["M.?", ".*", "O|P"]));
    let method = prop_oneof![
        2 => exact.prop_map(|(service, method)| GrpcMethodMatch { kind: MatchKind::Exact, service, method }),
        1 => regex.prop_map(|(service, method)| GrpcMethodMatch { kind: MatchKind::RegularExpression, service, method }),
    ];
    (prop::option::weighted(0.9, method), header).prop_map(|(method, headers)| GrpcRouteMatch { method, headers })
}

fn route() -> impl Strategy<Value = Route> {
    let hosts = proptest::collection::vec(select(&["a.b.c", "*.b.c", "*.c"]).prop_map(Arc::from), 0..3);
    let rules = proptest::collection::vec(proptest::collection::vec(one_match(), 0..3), 1..4);
    let created = select(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]);
    (0..8u8, created, hosts, rules).prop_map(|(name, created, hostnames, rules)| Route {
        id: id(&format!("ns/{name}")),
        created,
        hostnames,
        rules,
    })
}

fn part(kind: MatchKind, expected: Option<&str>, value: &str) -> (bool, (u8, Reverse<usize>)) {
    match expected {
        None => (true, (2, Reverse(0))),
        Some(expected) if kind == MatchKind::Exact => (expected == value, (0, Reverse(expected.len()))),
        Some(pattern) => {
            let regex = regex::Regex::new(&format!("^({pattern})$")).unwrap();
            (regex.is_match(value), (1, Reverse(pattern.len())))
        }
    }
}

fn scan(routes: &[Route], host: &str, (service, method): (&str, &str), sent: Option<&str>) -> Option<(RouteId, usize)> {
    let default = [GrpcRouteMatch::default()];
    let mut found = Vec::new();
    for route in routes {
        let names: Vec<Option<&str>> = route.hostnames.iter().map(|name| Some(&**name)).collect();
        for name in if names.is_empty() { vec![None] } else { names } {
            for (index, rule) in route.rules.iter().enumerate() {
                for (place, given) in if rule.is_empty() { &default[..] } else { rule }.iter().enumerate() {
                    let condition = given.method.clone().unwrap_or_default();
                    let service = part(condition.kind, condition.service.as_deref(), service);
                    let method = part(condition.kind, condition.method.as_deref(), method);
                    let headers = given.headers.iter().all(|header| Some(&*header.value) == sent);
                    if covers(name, host) && service.0 && method.0 && headers {
                        let host =
                            name.map_or((2, Reverse(0)), |name| (u8::from(name.starts_with('*')), Reverse(name.len())));
                        let age = (route.created, route.id.key.clone(), index, place);
                        let rank = (host, service.1, method.1, Reverse(given.headers.len()), age);
                        found.push((rank, (route.id.clone(), index)));
                    }
                }
            }
        }
    }
    found.into_iter().min_by(|one, two| one.0.cmp(&two.0)).map(|(_, found)| found)
}

proptest! {
    #[test]
    fn the_table_equals_a_scan_of_all_matches(
        steps in proptest::collection::vec((route(), prop::bool::weighted(0.75)), 0..20),
        host in select(&["a.b.c", "x.b.c", "x.c", "other"]),
        service in select(&["s", "s.t", "u", "v"]),
        method in select(&["M", "Mn", "O", "P"]),
        header in prop::option::of(select(&["1", "2"])),
    ) {
        let mut routes: Vec<Route> = Vec::new();
        let mut table = GrpcTable::default();
        let mut headers = HeaderMap::new();
        header.map(|value| headers.insert("x-a", HeaderValue::from_static(value)));
        let path = format!("/{service}/{method}");
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
            let request = view(host, &path, &headers);
            let found = table.find(&request).map(|selected| selected.rule.clone());
            prop_assert_eq!(&found, &scan(&routes, host, (service, method), header));
            let explained = table.explain(&request);
            prop_assert_eq!(&found, &explained.iter().find(|one| one.failed.is_none()).map(|one| one.rule.clone()));
        }
    }
}
