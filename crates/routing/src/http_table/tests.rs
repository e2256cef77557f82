//! The table against cases of the specification.

use std::sync::Arc;

use api::view::gateway_api::HttpRouteMatch;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::{Failed, HttpTable, MatchError, RequestView, RouteEntry, check_matches};
use crate::model::{RouteId, RouteKind};

fn id(kind: RouteKind, key: &str) -> RouteId {
    RouteId { kind, key: key.into() }
}

/// Puts a route with one rule for each list of matches into a table; the values are `NAME RULE`.
fn insert(table: &mut HttpTable<String>, id: &RouteId, created: &str, hosts: &[&str], rules: &Value) {
    let hostnames: Vec<Arc<str>> = hosts.iter().map(|host| Arc::from(*host)).collect();
    let rules: Vec<Vec<HttpRouteMatch>> = serde_json::from_value(rules.clone()).unwrap();
    let rules = rules.iter().enumerate();
    table.insert(
        RouteEntry { id, created, hostnames: &hostnames },
        rules.map(|(index, matches)| (index, &matches[..], format!("{} {index}", id.key))),
    );
}

fn path(kind: &str, value: &str) -> Value {
    json!({"path": {"type": kind, "value": value}})
}

fn one(rules: &Value) -> HttpTable<String> {
    let mut table = HttpTable::default();
    insert(&mut table, &id(RouteKind::Http, "a/r"), "", &[], rules);
    table
}

fn find<'a>(
    table: &'a HttpTable<String>,
    method: &Method,
    target: &str,
    headers: &[(&'static str, &str)],
) -> Option<&'a str> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    let (host, target) = target.split_once('/').unwrap();
    let target = format!("/{target}");
    let (path, query) = target.split_once('?').map_or((&*target, None), |(path, query)| (path, Some(query)));
    table.find(&RequestView { method, host, path, query, headers: &map }).map(|selected| &**selected.rule)
}

fn get<'a>(table: &'a HttpTable<String>, target: &str) -> Option<&'a str> {
    find(table, &Method::GET, target, &[])
}

#[test]
fn paths_are_exact_or_prefixes_by_elements() {
    let table = one(&json!([
        [path("Exact", "/exact")],
        [path("PathPrefix", "/abc/")],
        [path("PathPrefix", "/abc/def")],
        [path("Exact", "/abc/def")],
        [path("RegularExpression", "/re/[0-9]+")],
        [path("PathPrefix", "/re")],
    ]));
    let cases = [
        ("/exact", Some("a/r 0")),
        ("/exact/", None),
        ("/Exact", None),
        ("/abc", Some("a/r 1")),
        ("/abc/", Some("a/r 1")),
        ("/abc/d", Some("a/r 1")),
        ("/abcd", None),
        ("/ABC", None),
        ("/abc/def", Some("a/r 3")),
        ("/abc/def/", Some("a/r 2")),
        ("/abc/def/ghi/jkl/mno", Some("a/r 2")),
        ("/abc/defg", Some("a/r 1")),
        ("/re/12", Some("a/r 4")),
        ("/re/12/", Some("a/r 5")),
        ("/", None),
    ];
    for (target, expected) in cases {
        assert_eq!(get(&table, target), expected, "{target}");
    }
}

#[test]
fn a_rule_without_matches_takes_everything() {
    let table = one(&json!([[]]));
    let headers = HeaderMap::new();
    for path in ["/", "/a", "*", ""] {
        let request = RequestView { method: &Method::OPTIONS, host: "h", path, query: None, headers: &headers };
        assert_eq!(table.find(&request).unwrap().prefix, Some("/"), "{path}");
    }
}

#[test]
fn the_prefix_is_returned_without_slash() {
    let table = one(&json!([[path("PathPrefix", "/abc/")], [path("Exact", "/x")]]));
    let headers = HeaderMap::new();
    let prefix = |path| {
        let request = RequestView { method: &Method::GET, host: "h", path, query: None, headers: &headers };
        table.find(&request).unwrap().prefix
    };
    assert_eq!((prefix("/abc/d"), prefix("/x")), (Some("/abc"), None));
}

#[test]
fn order_of_precedence() {
    let header = |name: &str| json!({"name": name, "value": "1"});
    let table = one(&json!([
        [path("PathPrefix", "/p")],
        [{"path": {"value": "/p"}, "queryParams": [header("q"), header("r")]}],
        [{"path": {"value": "/p"}, "headers": [header("x-a")]}],
        [{"path": {"value": "/p"}, "headers": [header("x-a"), header("x-b")]}],
        [{"path": {"value": "/p"}, "method": "GET"}],
        [path("PathPrefix", "/p/longer")],
        [path("RegularExpression", "/p/l.*r")],
        [path("RegularExpression", "/p/.*")],
        [path("Exact", "/p/longer")],
    ]));
    let both = [("x-a", "1"), ("x-b", "1")];
    assert_eq!(find(&table, &Method::POST, "/p", &[]), Some("a/r 0"));
    assert_eq!(find(&table, &Method::POST, "/p?q=1&r=1", &[]), Some("a/r 1"));
    assert_eq!(find(&table, &Method::POST, "/p?q=1&r=1", &both[..1]), Some("a/r 2"));
    assert_eq!(find(&table, &Method::POST, "/p?q=1&r=1", &both), Some("a/r 3"));
    assert_eq!(find(&table, &Method::GET, "/p?q=1&r=1", &both), Some("a/r 4"));
    assert_eq!(find(&table, &Method::POST, "/p/longer/x", &both), Some("a/r 7"));
    assert_eq!(find(&table, &Method::POST, "/p/lower", &both), Some("a/r 6"));
    assert_eq!(find(&table, &Method::POST, "/p/longer", &both), Some("a/r 8"));
}

#[test]
fn age_then_name_then_order_decide() {
    let rules = json!([[path("PathPrefix", "/")], [path("PathPrefix", "/")]]);
    let mut table = HttpTable::default();
    insert(&mut table, &id(RouteKind::Http, "b/old"), "2026-01-01T00:00:00Z", &[], &rules);
    insert(&mut table, &id(RouteKind::Http, "a/new"), "2026-01-02T00:00:00Z", &[], &rules);
    insert(&mut table, &id(RouteKind::Http, "a/old"), "2026-01-01T00:00:00Z", &[], &rules);
    assert_eq!(get(&table, "h/"), Some("a/old 0"));
    table.remove(&id(RouteKind::Http, "a/old"));
    assert_eq!(get(&table, "h/"), Some("b/old 0"));
    table.remove(&id(RouteKind::Http, "b/old"));
    assert_eq!(get(&table, "h/"), Some("a/new 0"));
    table.remove(&id(RouteKind::Http, "a/new"));
    assert_eq!(get(&table, "h/"), None);
    assert!(table.is_empty());
}

#[test]
fn the_hostname_as_written_goes_before_the_path() {
    let mut table = HttpTable::default();
    let old = "2026-01-01T00:00:00Z";
    insert(&mut table, &id(RouteKind::Http, "a/all"), old, &[], &json!([[path("Exact", "/x")]]));
    insert(&mut table, &id(RouteKind::Http, "a/wild"), old, &["*.example.com"], &json!([[path("Exact", "/x")], []]));
    insert(
        &mut table,
        &id(RouteKind::Http, "a/exact"),
        "2026-02-01T00:00:00Z",
        &["abc.example.com"],
        &json!([[path("PathPrefix", "/x")],]),
    );
    assert_eq!(get(&table, "abc.example.com/x"), Some("a/exact 0"));
    assert_eq!(get(&table, "abc.example.com/y"), Some("a/wild 1"), "the next hostname is tried");
    assert_eq!(get(&table, "b.example.com/x"), Some("a/wild 0"));
    assert_eq!(get(&table, "example.com/x"), Some("a/all 0"));
    assert_eq!(get(&table, "example.com/y"), None);
}

#[test]
fn a_star_of_an_ingress_is_one_label() {
    let mut table = HttpTable::default();
    insert(&mut table, &id(RouteKind::Ingress, "a/i"), "", &["*.example.com"], &json!([[]]));
    assert_eq!(get(&table, "a.example.com/"), Some("a/i 0"));
    assert_eq!(get(&table, "a.b.example.com/"), None);
    let (method, headers) = (Method::GET, HeaderMap::new());
    let request = RequestView { method: &method, host: "a.b.example.com", path: "/", query: None, headers: &headers };
    assert_eq!(table.explain(&request)[0].failed, Some(Failed::Host));
    insert(&mut table, &id(RouteKind::Http, "a/h"), "", &["*.example.com"], &json!([[]]));
    assert_eq!(get(&table, "a.b.example.com/"), Some("a/h 0"));
}

#[test]
fn explanations_name_the_first_condition_that_fails() {
    let named = |name: &str| json!([{"name": name, "value": "1"}]);
    let table = one(&json!([
        [path("Exact", "/b"), path("PathPrefix", "/a/b")],
        [{"path": {"value": "/a"}, "method": "POST", "headers": named("X-A")}],
        [{"path": {"value": "/a"}, "headers": named("X-A"), "queryParams": named("q")}],
        [{"path": {"value": "/a"}, "queryParams": named("q")}],
        [{"path": {"value": "/a"}}],
    ]));
    let (method, headers) = (Method::GET, HeaderMap::new());
    let request = RequestView { method: &method, host: "h", path: "/a", query: None, headers: &headers };
    let explained: Vec<_> =
        table.explain(&request).into_iter().map(|one| (one.rule_index, one.match_index, one.failed)).collect();
    let expected = [
        (0, 0, Some(Failed::Path)),
        (0, 1, Some(Failed::Path)),
        (1, 0, Some(Failed::Method)),
        (2, 0, Some(Failed::Header("x-a"))),
        (3, 0, Some(Failed::Query("q"))),
        (4, 0, None),
    ];
    assert_eq!(explained, expected);
}

#[test]
fn rules_with_a_bad_match_are_dropped() {
    let bad = json!([[path("Exact", "/a"), path("RegularExpression", "(")], [path("PathPrefix", "/")]]);
    let table = one(&bad);
    assert_eq!(get(&table, "h/a"), Some("a/r 1"));
    let check = |matches: Value| check_matches(&serde_json::from_value::<Vec<HttpRouteMatch>>(matches).unwrap());
    assert!(matches!(check(bad[0].clone()), Err(MatchError::Syntax { field: "path", .. })));
    assert_eq!(check(bad[1].clone()), Ok(()));
    assert_eq!(check(json!([path("Later", "/")])), Err(MatchError::Kind { field: "path" }));
    assert!(matches!(check(json!([{"method": "A B"}])), Err(MatchError::Method { .. })));
}

#[test]
fn a_path_of_slashes_costs_no_more_than_the_prefixes_there_are() {
    // Quadratic hashing of a path of 60 000 elements would take minutes.
    let table = one(&json!([[path("PathPrefix", "/a/b")], [path("PathPrefix", "/")]]));
    let target = "/".repeat(60_000);
    for _ in 0..1000 {
        assert_eq!(get(&table, &target), Some("a/r 1"));
    }
}

#[test]
fn forty_thousand_routes() {
    let rules = json!([[path("PathPrefix", "/")]]);
    let mut table = HttpTable::default();
    for number in 0..40_000 {
        let host = format!("h{number}.example.com");
        insert(&mut table, &id(RouteKind::Http, &format!("a/{number}")), "", &[&host], &rules);
    }
    let published = table.clone();
    for number in (0..40_000).step_by(2) {
        table.remove(&id(RouteKind::Http, &format!("a/{number}")));
    }
    assert_eq!((table.len(), published.len()), (20_000, 40_000));
    assert_eq!(get(&table, "h39998.example.com/"), None);
    assert_eq!(get(&table, "h39999.example.com/"), Some("a/39999 0"));
    assert_eq!(get(&published, "h39998.example.com/"), Some("a/39998 0"));
}
