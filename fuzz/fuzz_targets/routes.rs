//! Rules of an HTTPRoute and a request: the rule that takes it is the first one whose conditions hold, and what its
//! filters make of the request can be sent.
#![no_main]

use std::sync::Arc;

use api::view::gateway_api::{
    Filter, GrpcMethodMatch, GrpcRouteMatch, HttpRouteMatch, HttpRouteRule, MatchKind, PathMatchKind,
};
use http::Uri;
use libfuzzer_sys::fuzz_target;
use routing::filters::{Filters, RedirectRequest};
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
    let view = RequestView { method: &method, host: &host, path: target.path(), query: target.query(), headers: &headers };
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
            filter(&rules[*found.rule].filters, &view, found.prefix);
        }
    }
    table.remove(&id);
    assert!(table.is_empty() && table.find(&view).is_none());
    call(&rules, &view);
});

fn filter(filters: &[Filter], request: &RequestView<'_>, prefix: Option<&str>) {
    let Ok(filters) = Filters::compile(filters) else { return };
    let mut changed = request.headers.clone();
    filters.modify_request(&mut changed);
    filters.modify_response(&mut changed);
    if let Some(rewrite) = &filters.rewrite {
        let path = rewrite.path(request.path, prefix);
        assert!(path.starts_with('/') || path == request.path, "{path}");
        assert!(path.parse::<Uri>().is_ok(), "{path}");
    }
    if let Some(redirect) = &filters.redirect {
        let RequestView { host, path, query, .. } = *request;
        let known = RedirectRequest { scheme: "http", host, path, query, listener_port: 8080, prefix };
        let (status, location) = redirect.location(&known);
        assert!(status.is_redirection());
        assert!(location.as_bytes().starts_with(b"http") || location.as_bytes().starts_with(b"/"));
    }
    if let Some(cors) = &filters.cors {
        let origin = request.headers.get("origin");
        cors.decorate(origin, &mut changed);
        let shared = changed.get("access-control-allow-origin");
        assert!(shared.is_none_or(|shared| shared == "*" || Some(shared) == origin));
        assert!(origin.is_some() || shared.is_none());
        let answered = cors.preflight(request.method, request.headers);
        assert!(answered.is_none_or(|answer| answer.get("access-control-allow-origin") == shared));
    }
    for mirror in &filters.mirrors {
        mirror.takes_next();
    }
}

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
