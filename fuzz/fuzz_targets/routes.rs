//! Rules of an HTTPRoute and a request: the rule that takes it is the first one whose conditions hold, and what its
//! filters make of the request can be sent.
#![no_main]

use std::sync::Arc;

use api::view::gateway_api::{
    GrpcMethodMatch, GrpcRouteMatch, HttpRouteMatch, HttpRouteRule, MatchKind, PathMatchKind,
};
use libfuzzer_sys::fuzz_target;
use routing::grpc_table::GrpcTable;
use routing::hosts::host_of;
use routing::http_table::{HttpTable, RequestView, RouteEntry};
use routing::model::{RouteId, RouteKind};

// Rules as JSON, a zero byte, and the head of a request: method, host, target and header lines.
fuzz_target!(|data: &[u8]| {
    let (rules, request) = common::halves(data);
    let Ok(rules) = serde_json::from_slice::<Vec<HttpRouteRule>>(rules) else { return };
    let Some(common::Head { method, host, target, headers }) = common::head(request) else { return };
    let host = host_of(&host);
    let view =
        RequestView { method: &method, host: &host, path: target.path(), query: target.query(), headers: &headers };
    let id = RouteId { kind: RouteKind::Http, key: "a/b".into() };
    let hostnames: Vec<Arc<str>> = vec!["*.example.com".into(), "a.example.com".into()];
    let mut table = HttpTable::default();
    for hostnames in [&hostnames[..], &[]] {
        let entry = RouteEntry { id: &id, created: "", hostnames };
        table.insert(entry, rules.iter().enumerate().map(|(index, rule)| (index, &rule.matches[..], index)));
        let found = table.find(&view);
        let first = table.explain(&view).into_iter().find(|one| one.failed.is_none());
        assert_eq!(found.as_ref().map(|found| found.rule), first.map(|first| first.rule));
        if let Some(found) = found {
            common::filters::check(&rules[*found.rule].filters, &view, found.prefix);
        }
    }
    table.remove(&id);
    assert!(table.is_empty() && table.find(&view).is_none());
    call(&rules, &view);
});

/// The same for a GRPCRoute whose methods are the paths of the rules.
fn call(rules: &[HttpRouteRule], view: &RequestView<'_>) {
    let method = |one: &HttpRouteMatch| {
        let (service, method) = one.path.as_ref()?.value.as_deref()?.strip_prefix('/')?.split_once('/')?;
        let kind = match one.path.as_ref()?.kind {
            PathMatchKind::RegularExpression => MatchKind::RegularExpression,
            _ => MatchKind::Exact,
        };
        Some(GrpcMethodMatch { kind, service: Some(service.into()), method: Some(method.into()) })
    };
    let one = |one: &HttpRouteMatch| GrpcRouteMatch { method: method(one), headers: one.headers.clone() };
    let rules: Vec<Vec<GrpcRouteMatch>> = rules.iter().map(|rule| rule.matches.iter().map(one).collect()).collect();
    let id = RouteId { kind: RouteKind::Grpc, key: "a/b".into() };
    let mut table = GrpcTable::default();
    let entry = RouteEntry { id: &id, created: "", hostnames: &[] };
    table.insert(entry, rules.iter().enumerate().map(|(index, matches)| (index, &matches[..], index)));
    let first = table.explain(view).into_iter().find(|one| one.failed.is_none()).map(|one| *one.rule);
    assert_eq!(table.find(view).map(|found| *found.rule), first);
}
