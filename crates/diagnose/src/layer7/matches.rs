//! Matches of rules as text. Equal text is an equal condition: the order of headers and parameters does not count, nor a
//! `/` at the end of a prefix.

use api::view::gateway_api::{GrpcRouteMatch, HttpRouteMatch, MatchKind, NamedMatch, PathMatchKind};
use routing::model::{Matches, Rule};

/// The matches of a rule.
pub(super) fn all(rule: &Rule) -> Vec<String> {
    match &rule.matches {
        Matches::Http(matches) => matches.iter().map(http).collect(),
        Matches::Grpc(matches) if matches.is_empty() => vec![grpc(&GrpcRouteMatch::default())],
        Matches::Grpc(matches) => matches.iter().map(grpc).collect(),
    }
}

/// A match of an HTTPRoute: `path prefix /a, method GET, header x = 1`.
pub(super) fn http(given: &HttpRouteMatch) -> String {
    let mut parts = vec![path(given)];
    parts.extend(given.method.as_ref().map(|method| format!("method {method}")));
    parts.extend(named("header", &given.headers));
    parts.extend(named("query parameter", &given.query_params));
    parts.join(", ")
}

/// The condition on the path.
pub(super) fn path(given: &HttpRouteMatch) -> String {
    let path = given.path.as_ref();
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    match path.map_or(PathMatchKind::PathPrefix, |path| path.kind) {
        PathMatchKind::Exact => format!("path = {value}"),
        PathMatchKind::PathPrefix => match value.trim_end_matches('/') {
            "" => "path prefix /".to_owned(),
            prefix => format!("path prefix {prefix}"),
        },
        PathMatchKind::RegularExpression => format!("path ~ {value}"),
        PathMatchKind::Unknown => format!("path ? {value}"),
    }
}

/// A match of a GRPCRoute: `service shop.Cart, method Add`.
pub(super) fn grpc(given: &GrpcRouteMatch) -> String {
    let mut parts = Vec::new();
    if let Some(method) = &given.method {
        let operator = operator(method.kind);
        let one = |noun: &str, value: &Option<Box<str>>| {
            value.as_deref().filter(|value| !value.is_empty()).map(|value| format!("{noun} {operator} {value}"))
        };
        parts.extend(one("service", &method.service));
        parts.extend(one("method", &method.method));
    }
    parts.extend(named("header", &given.headers));
    if parts.is_empty() { "any call".to_owned() } else { parts.join(", ") }
}

/// A condition on a header or a query parameter.
pub(super) fn condition(noun: &str, given: &NamedMatch) -> String {
    // Names of headers have no case.
    let name = if noun == "header" { given.name.to_ascii_lowercase() } else { given.name.to_string() };
    format!("{noun} {name} {} {}", operator(given.kind), given.value)
}

fn named(noun: &str, given: &[NamedMatch]) -> Vec<String> {
    let mut all: Vec<String> = given.iter().map(|one| condition(noun, one)).collect();
    all.sort_unstable();
    all
}

const fn operator(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Exact => "=",
        MatchKind::RegularExpression => "~",
        MatchKind::Unknown => "?",
    }
}
