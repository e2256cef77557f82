//! The rules of one path: the one of its backend, and those that lead to a canary.

use std::sync::Arc;

use api::acme;
use api::view::gateway_api::{HttpRouteMatch, MatchKind, NamedMatch, PathMatch, PathMatchKind};
use api::view::ingress::PathType;

use super::super::settings::{ALWAYS, Canary, CanaryHeader, NEVER};
use super::super::table::{Condition, HeaderTest, HostRules, Location};
use super::super::target::{resolve, service_key};
use super::super::{Finding, Reason};
use super::{Parsed, Path, Services};
use crate::model::{Backend, Matches, RouteId, RouteKind, Rule};
use crate::policy::{PathRewrite, Pattern, PatternError, Policy, Redirect, Template};

/// The status of redirects to https and to another form of the host.
const REDIRECT: u16 = 308;
/// The status of paths that are closed.
const CLOSED: u16 = 503;

/// A path, and what its rules depend on.
pub(super) struct PathRule<'a> {
    pub(super) path: &'a Path<'a>,
    pub(super) canary: Option<&'a Path<'a>>,
    /// The host; none is that of rules without one.
    pub(super) host: Option<&'a str>,
    /// The host has a certificate.
    pub(super) has_tls: bool,
    pub(super) services: Services<'a>,
}

/// The rules of a path.
pub(super) fn location(rule: &PathRule<'_>, findings: &mut Vec<(Arc<str>, Finding)>) -> Result<Location, PatternError> {
    let mut policy = policy(rule)?;
    if let Err(finding) = fix_auth_host(&mut policy, rule.host) {
        findings.push((rule.path.owner.key.clone(), finding));
    }
    let policy = Arc::new(policy);
    let stable = backend(rule, rule.path, findings);
    let Some((path, canary)) =
        rule.canary.and_then(|path| path.owner.settings.canary.as_ref().map(|canary| (path, canary)))
    else {
        return Ok(vec![(Condition::Always, Arc::new(build(rule, &Condition::Always, None, vec![stable], policy)))]);
    };
    let new = backend(rule, path, findings);
    let mut location: Location = Vec::new();
    for (condition, is_canary) in conditions(canary) {
        let (name, backend) = if is_canary { ("canary", &new) } else { ("stable", &stable) };
        let built = build(rule, &condition, Some(name), vec![backend.clone()], policy.clone());
        location.push((condition, Arc::new(built)));
    }
    let shares =
        vec![Backend { weight: canary.total - canary.weight, ..stable }, Backend { weight: canary.weight, ..new }];
    location.push((Condition::Always, Arc::new(build(rule, &Condition::Always, None, shares, policy))));
    Ok(location)
}

/// The rule of a path that cannot be served although access to it is restricted.
pub(super) fn closed(rule: &PathRule<'_>) -> Location {
    let policy = Arc::new(Policy { refuse: Some(CLOSED), ..Policy::default() });
    let always = Condition::Always;
    let closed = build(rule, &always, Some("closed"), Vec::new(), policy);
    vec![(always, Arc::new(closed))]
}

/// The conditions of a canary in the order of precedence; whether each leads to it.
fn conditions(canary: &Canary) -> Vec<(Condition, bool)> {
    let mut found = Vec::new();
    let equals = |text: &str| HeaderTest::Equals(text.into());
    match &canary.header {
        Some((name, CanaryHeader::Test(test))) => found.push((Condition::Header(name.clone(), test.clone()), true)),
        Some((name, CanaryHeader::AlwaysOrNever)) => {
            found.push((Condition::Header(name.clone(), equals(ALWAYS)), true));
            found.push((Condition::Header(name.clone(), equals(NEVER)), false));
        }
        None => (),
    }
    if let Some(cookie) = &canary.cookie {
        found.push((Condition::Cookie(cookie.clone(), ALWAYS), true));
        found.push((Condition::Cookie(cookie.clone(), NEVER), false));
    }
    found
}

/// The policy of the Ingress, with what depends on host and path.
fn policy(rule: &PathRule<'_>) -> Result<Policy, PatternError> {
    let settings = &rule.path.owner.settings;
    let path = rule.path.path;
    let mut policy = settings.policy.clone();
    // Certificate authorities that verify the host: neither redirected nor protected by authentication.
    if path.starts_with(acme::PATH) {
        policy.basic_auth = None;
        policy.external_auth = None;
    } else if settings.force_ssl_redirect || settings.ssl_redirect && rule.has_tls {
        policy.require_https = Some(REDIRECT);
    }
    if let Some((_, target)) = settings.rewrite_target.as_ref().filter(|(text, _)| **text != *path) {
        policy.rewrite = Some(PathRewrite { pattern: Pattern::new(path)?, target: target.clone() });
    }
    if let Some(session) = policy.session.as_mut().filter(|session| session.path.is_none() && !rule.path.is_regex) {
        session.path = Some(path.into());
    }
    Ok(policy)
}

/// Replaces `$host` as host of the server for external authentication by the host of the rule. A rule for many hosts is closed:
/// clients would choose where the node connects to.
fn fix_auth_host(policy: &mut Policy, host: Option<&str>) -> Result<(), Finding> {
    let Some(auth) = policy.external_auth.as_mut().filter(|auth| auth.is_chosen_by_clients()) else { return Ok(()) };
    if let Some(fixed) = host.filter(|host| !host.starts_with('*')).and_then(|host| auth.at_host(host)) {
        *auth = fixed;
        return Ok(());
    }
    policy.refuse = Some(CLOSED);
    let host = host.unwrap_or("*");
    let message = format!(
        "annotation auth-url: clients choose the value of $host for the rule of {host}; name the host of the server; requests of \
         the rule fail with {CLOSED}"
    );
    Err(Finding { reason: Reason::AccessRefused, message })
}

fn backend(rule: &PathRule<'_>, path: &Path<'_>, findings: &mut Vec<(Arc<str>, Finding)>) -> Backend {
    let namespace = &path.owner.ingress.metadata.namespace;
    let service = service_key(namespace, path.backend).and_then(|key| (rule.services)(&key));
    // The annotations of the path's owner hold for its canary too.
    let (target, problem) = resolve(namespace, path.backend, rule.path.owner.settings.protocol, service.as_deref());
    if let Some(problem) = problem {
        let message = format!("path {}: {problem}; its requests fail with 500", path.path);
        findings.push((path.owner.key.clone(), Finding { reason: Reason::BackendInvalid, message }));
    }
    Backend { weight: 1, target, filters: Vec::new(), mirrors: Vec::new(), policy: None }
}

fn build(
    rule: &PathRule<'_>,
    condition: &Condition,
    name: Option<&str>,
    backends: Vec<Backend>,
    policy: Arc<Policy>,
) -> Rule {
    let owner = rule.path.owner;
    Rule {
        route: route(owner),
        index: rule.path.index,
        name: name.map(Into::into),
        matches: Matches::Http(vec![HttpRouteMatch {
            path: Some(path_match(rule.path)),
            headers: header_match(condition).into_iter().collect(),
            ..HttpRouteMatch::default()
        }]),
        filters: owner.settings.filters.clone(),
        mirrors: Vec::new(),
        backends,
        request_timeout: None,
        backend_timeout: None,
        retry: owner.settings.retry.clone(),
        session: None,
        policy: Some(policy),
        broken: owner.settings.broken.clone(),
    }
}

fn route(owner: &Parsed) -> RouteId {
    RouteId { kind: RouteKind::Ingress, key: owner.key.clone() }
}

/// The condition on the path in the form of an HTTPRoute.
fn path_match(path: &Path<'_>) -> PathMatch {
    let (kind, value) = match path.kind {
        _ if path.is_regex => (PathMatchKind::RegularExpression, format!("(?i)(?:{}).*", path.path)),
        PathType::Exact => (PathMatchKind::Exact, path.path.to_owned()),
        _ => (PathMatchKind::PathPrefix, path.path.to_owned()),
    };
    PathMatch { kind, value: Some(value.into()) }
}

/// The condition on headers in the form of an HTTPRoute.
fn header_match(condition: &Condition) -> Option<NamedMatch> {
    let named = |kind, name: &str, value: &str| Some(NamedMatch { kind, name: name.into(), value: value.into() });
    let regex = MatchKind::RegularExpression;
    match condition {
        Condition::Always => None,
        Condition::Header(name, HeaderTest::Equals(value)) => named(MatchKind::Exact, name.as_str(), value),
        Condition::Header(name, HeaderTest::Matches(pattern)) => {
            named(regex, name.as_str(), &format!(".*(?:{}).*", pattern.source()))
        }
        Condition::Cookie(name, value) => {
            named(regex, "cookie", &format!("(?:.*;\\s*)?{}={value}(?:\\s*;.*)?", regex::escape(name)))
        }
    }
}

/// The redirect of `/` to `app-root`, if the Ingress that serves `/` has one.
pub(super) fn root_redirect<'a>(rules: &HostRules, mut owners: impl Iterator<Item = &'a Parsed>) -> Option<Location> {
    let (_, rule) = rules.location(b"/")?.last()?;
    let owner = owners.find(|owner| owner.key == rule.route.key)?;
    let redirect = owner.settings.app_root.clone()?;
    let policy = Policy { redirect: Some(redirect), ..rule.policy.as_deref().cloned().unwrap_or_default() };
    let path = PathMatch { kind: PathMatchKind::Exact, value: Some("/".into()) };
    let matches = Matches::Http(vec![HttpRouteMatch { path: Some(path), ..HttpRouteMatch::default() }]);
    let redirect = Rule { name: Some("app-root".into()), matches, policy: Some(Arc::new(policy)), ..(**rule).clone() };
    Some(vec![(Condition::Always, Arc::new(redirect))])
}

/// The rules of a host that is redirected to another one.
pub(in crate::ingress) fn redirect_to(host: &str, owner: &Parsed) -> HostRules {
    // Hosts have no `$`, so this cannot fail.
    let location = Template::url(&format!("$scheme://{host}$request_uri"));
    let redirect = location.ok().map(|location| Redirect { status: REDIRECT, location });
    let policy = Policy { redirect, ..Policy::default() };
    let path = PathMatch { kind: PathMatchKind::PathPrefix, value: Some("/".into()) };
    let rule = Rule {
        route: route(owner),
        index: 0,
        name: Some("www".into()),
        matches: Matches::Http(vec![HttpRouteMatch { path: Some(path), ..HttpRouteMatch::default() }]),
        filters: Vec::new(),
        mirrors: Vec::new(),
        backends: Vec::new(),
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        session: None,
        policy: Some(Arc::new(policy)),
        broken: None,
    };
    let mut rules = HostRules::default();
    rules.prefixes.insert(Box::default(), vec![(Condition::Always, Arc::new(rule))]);
    rules
}
