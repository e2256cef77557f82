//! All Ingresses of a host, merged into its rules.
//!
//! In: the Ingresses with rules for the host, oldest first, and the Services. Out: the rules, and what the owners should
//! know. The oldest Ingress owns a path; canaries add a backend to the path of another Ingress. Regular expressions, canaries
//! and redirects to https concern Ingresses of the same namespace only: others may share the host.

pub(super) mod limits;
mod rules;

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::view::ingress::{IngressBackend, PathType};
use api::view::{Ingress, Service};

use super::certificates::covers;
use super::settings::Settings;
use super::table::{HostRules, Location, PatternRules};
use super::{Finding, Reason};
use crate::policy::{Pattern, PatternError};
use crate::request_path;

use limits::{Budget, Excess, MOST_EXPRESSIONS, MOST_PATHS};
pub(super) use rules::redirect_to;
use rules::{PathRule, closed, location, root_redirect};

/// An Ingress and its settings.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Parsed {
    pub(super) key: Arc<str>,
    pub(super) ingress: Arc<Ingress>,
    pub(super) settings: Settings,
    pub(super) findings: Vec<Finding>,
    /// Paths beyond the limit, by host in lower case.
    pub(super) excess: HashMap<Box<str>, Excess>,
}

/// The rules of a host; none when only canaries have it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Assembled {
    pub(super) rules: Option<Arc<HostRules>>,
    /// What the owners of Ingresses should know, by key.
    pub(super) findings: Vec<(Arc<str>, Finding)>,
}

/// Finds a Service by key.
pub(super) type Services<'a> = &'a dyn Fn(&str) -> Option<Arc<Service>>;

/// A path of an Ingress on the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    pub(super) owner: &'a Parsed,
    /// Its place among all paths of the Ingress; the default backend comes last.
    pub(super) index: usize,
    pub(super) path: &'a str,
    pub(super) kind: PathType,
    pub(super) backend: &'a IngressBackend,
    /// It is a regular expression.
    pub(super) is_regex: bool,
    /// Its place among those paths of the Ingress that are not literal text, from 1; 0 for literal text.
    place: usize,
    /// It is the default backend.
    is_default: bool,
}

impl<'a> Path<'a> {
    /// The namespace of its Ingress.
    fn namespace(&self) -> &'a str {
        &self.owner.ingress.metadata.namespace
    }
}

/// Whether the rule of an Ingress is for this host; none is the host of rules without one.
pub(super) fn is_host(rule: &str, host: Option<&str>) -> bool {
    host.map_or(rule.is_empty(), |host| rule.eq_ignore_ascii_case(host))
}

/// The paths of an Ingress on a host, its default backend last.
fn paths<'a>(owner: &'a Parsed, host: Option<&str>) -> Vec<Path<'a>> {
    let all = limits::paths(&owner.ingress);
    let mut expressions = 0;
    let place = |path: &str| {
        let is_literal = Pattern::text_before(path) == path;
        expressions += usize::from(!is_literal);
        if is_literal { 0 } else { expressions }
    };
    let places: Vec<_> = all.clone().map(|(_, path)| &*path.path).map(place).collect();
    let here = all.zip(places).enumerate().filter(|(_, ((rule, _), _))| is_host(&rule.host, host));
    let path = |index, path, kind, backend| Path {
        owner,
        index,
        path,
        kind,
        backend,
        is_regex: false,
        place: 0,
        is_default: false,
    };
    let mut found: Vec<_> = here
        .map(|(index, ((_, one), place))| {
            let text = if one.path.is_empty() { "/" } else { &*one.path };
            Path { place, ..path(index, text, one.path_type, &one.backend) }
        })
        .collect();
    let default = owner.ingress.spec.default_backend.as_ref();
    let count = limits::paths(&owner.ingress).count();
    found.extend(default.map(|backend| Path { is_default: true, ..path(count, "/", PathType::Prefix, backend) }));
    found
}

/// Merges the Ingresses of a host.
pub(super) fn assemble(host: Option<&str>, members: &[&Parsed], services: Services<'_>) -> Assembled {
    let (canaries, owners): (Vec<&Parsed>, Vec<&Parsed>) =
        members.iter().partition(|member| member.settings.canary.is_some());
    let mut owned: Vec<_> = owners.iter().flat_map(|owner| paths(owner, host)).collect();
    let expressions: HashSet<&str> =
        owned.iter().filter(|path| !path.is_default && uses_regex(path)).map(Path::namespace).collect();
    for path in owned.iter_mut().filter(|path| !path.is_default) {
        path.is_regex = expressions.contains(path.namespace());
    }
    let mut assembly = Assembly { findings: Vec::new(), paths: Vec::new(), closed: Vec::new() };
    assembly.select(host, &owned);
    for &owner in &owners {
        assembly.drop_excess(host, owner, expressions.contains(&*owner.ingress.metadata.namespace));
    }
    assembly.add_canaries(host, &canaries);
    let Some(oldest) = owners.first() else {
        return Assembled { rules: None, findings: assembly.findings };
    };
    let has_tls = |owner: &&Parsed| {
        owner.ingress.metadata.namespace == oldest.ingress.metadata.namespace
            && host.is_some_and(|host| has_certificate(&owner.ingress, host))
    };
    let has_tls = owners.iter().any(has_tls);
    let rules = assembly.build(host, &owners, has_tls, services);
    Assembled { rules: Some(Arc::new(rules)), findings: assembly.findings }
}

/// Whether the Ingress has a `tls` entry for a host of its rules.
pub(super) fn has_certificate(ingress: &Ingress, host: &str) -> bool {
    let is_for = |hosts: &[Box<str>]| hosts.is_empty() || hosts.iter().any(|entry| covers(entry, host));
    ingress.spec.tls.iter().any(|tls| is_for(&tls.hosts))
}

fn uses_regex(path: &Path<'_>) -> bool {
    let settings = &path.owner.settings;
    settings.use_regex || settings.rewrite_target.as_ref().is_some_and(|(text, _)| **text != *path.path)
}

/// A path as others conflict with it: a regular expression by its text, otherwise `/a`, `/%61` and `/a/` are the same prefix.
/// None for a path that no request can have.
fn identity<'a>(path: &Path<'a>) -> Option<(bool, PathType, Cow<'a, [u8]>)> {
    if path.is_regex {
        return Some((true, path.kind, Cow::Borrowed(path.path.as_bytes())));
    }
    let decoded = request_path::decode(path.path)?;
    Some(match path.kind {
        PathType::Exact => (false, PathType::Exact, decoded),
        _ => (false, PathType::Prefix, Cow::Owned(request_path::without_slash(&decoded).to_owned())),
    })
}

struct Assembly<'a> {
    findings: Vec<(Arc<str>, Finding)>,
    /// The selected paths, each with its canary.
    paths: Vec<(Path<'a>, Option<Path<'a>>)>,
    /// Paths that cannot be served, of Ingresses that restrict access.
    closed: Vec<Path<'a>>,
}

impl<'a> Assembly<'a> {
    fn find(&mut self, owner: &Parsed, reason: Reason, message: String) {
        self.findings.push((owner.key.clone(), Finding { reason, message }));
    }

    /// Notes paths of an Ingress that cannot be served. If access to them is restricted, their requests must not take another
    /// rule instead.
    fn reject(&mut self, owner: &Parsed, paths: impl IntoIterator<Item = Path<'a>>, problem: &str) {
        let is_closed = owner.settings.policy.restricts();
        let outcome = if is_closed { "; because access is restricted, its requests fail with 503" } else { "" };
        self.find(owner, Reason::PathInvalid, format!("{problem}{outcome}"));
        if is_closed {
            self.closed.extend(paths);
        }
    }

    /// Selects the paths that are served: of equal ones the oldest, and as the fallback the oldest default backend.
    fn select(&mut self, host: Option<&str>, owned: &[Path<'a>]) {
        let (mut known, mut budgets) = (HashMap::new(), HashMap::<&str, Budget>::new());
        for path in owned.iter().filter(|path| !path.is_default) {
            let budget = budgets.entry(path.namespace()).or_default();
            match identity(path) {
                _ if !path.path.starts_with('/') => {
                    self.reject(path.owner, [*path], &format!("path `{}` does not start with /", path.path));
                }
                _ if path.kind == PathType::Unknown => {
                    self.reject(path.owner, [*path], &format!("path {} has an unknown pathType", path.path));
                }
                None => {
                    let message = format!("path {} has a malformed escape, or leaves the root by `..`", path.path);
                    self.find(path.owner, Reason::PathInvalid, message);
                }
                Some(identity) => match known.entry(identity) {
                    Entry::Occupied(first) => {
                        let (at, first): (_, &Path<'_>) = (place(host, path.path), first.get());
                        let message =
                            format!("{at} is served by Ingress {}, which is older or names it first", first.owner.key);
                        self.find(path.owner, Reason::PathConflict, message);
                    }
                    Entry::Vacant(_) if is_beyond(path, budget) => {
                        let most = format!(
                            "path {}: an Ingress, and a namespace on a host, have at most {MOST_EXPRESSIONS} \
                             regular expressions of 32 KiB together",
                            path.path
                        );
                        self.reject(path.owner, [*path], &most);
                    }
                    Entry::Vacant(slot) => {
                        slot.insert(*path);
                        self.paths.push((*path, None));
                    }
                },
            }
        }
        let is_root =
            |(path, _): &(Path<'_>, _)| path.kind != PathType::Exact && path.path.trim_end_matches('/').is_empty();
        if !self.paths.iter().any(is_root) {
            let default = owned.iter().find(|path| path.is_default);
            self.paths.extend(default.map(|path| (*path, None)));
        }
    }

    /// Notes the paths of an Ingress beyond the limit. `has_regex` says whether paths of its namespace are expressions.
    fn drop_excess(&mut self, host: Option<&str>, owner: &'a Parsed, has_regex: bool) {
        let Some(excess) = owner.excess.get(host.unwrap_or_default()) else { return };
        let all = excess.paths(&owner.ingress);
        let path = |text: &'a str, kind, backend, is_regex| Path {
            owner,
            index: MOST_PATHS,
            path: if text.is_empty() { "/" } else { text },
            kind,
            backend,
            is_regex,
            place: 0,
            is_default: false,
        };
        let message = format!(
            "{} paths of {} are beyond the limit of {MOST_PATHS} paths of an Ingress",
            all.len(),
            host.unwrap_or("*")
        );
        if has_regex || owner.settings.use_regex || owner.settings.rewrite_target.is_some() {
            // One expression in place of any number.
            let all = all.take(1).map(|one| path(&excess.common, PathType::Prefix, &one.backend, true));
            self.reject(owner, all, &message);
        } else {
            let all = all.map(|one| path(&one.path, one.path_type, &one.backend, false));
            self.reject(owner, all, &message);
        }
    }

    /// Adds canaries to the paths of Ingresses of their own namespace: nobody else may take over requests of theirs.
    fn add_canaries(&mut self, host: Option<&str>, canaries: &[&'a Parsed]) {
        let mut known = HashMap::new();
        for (index, (path, _)) in self.paths.iter().enumerate() {
            known.entry((path.namespace(), path.kind, path.path)).or_insert(index);
        }
        for &canary in canaries {
            let is_used = |path: &Path<'_>| !path.is_default || canary.ingress.spec.rules.is_empty();
            for path in paths(canary, host).into_iter().filter(is_used) {
                let at = place(host, path.path);
                let found = known.get(&(path.namespace(), path.kind, path.path));
                let problem = match found.and_then(|index| self.paths.get_mut(*index)) {
                    None => {
                        let (namespace, kind) = (path.namespace(), path.kind.as_str());
                        format!("no other Ingress of namespace {namespace} has {at} with pathType {kind}")
                    }
                    Some((have, Some(first))) if first.owner.key != canary.key => {
                        format!("Ingress {} is the canary of {at} of Ingress {}", first.owner.key, have.owner.key)
                    }
                    Some((_, Some(_))) => continue,
                    Some((_, slot)) => {
                        *slot = Some(path);
                        continue;
                    }
                };
                self.find(canary, Reason::CanaryIgnored, format!("the canary receives no requests: {problem}"));
            }
        }
    }

    fn build(&mut self, host: Option<&str>, owners: &[&Parsed], has_tls: bool, services: Services<'_>) -> HostRules {
        let mut rules = HostRules::default();
        let paths = std::mem::take(&mut self.paths);
        for (path, canary) in &paths {
            let rule = PathRule { path, canary: canary.as_ref(), host, has_tls, services };
            let inserted = location(&rule, &mut self.findings).and_then(|location| insert(&mut rules, path, location));
            if let Err(error) = inserted {
                self.reject(path.owner, [*path], &error.to_string());
            }
        }
        for path in &self.closed {
            close(&mut rules, path, services);
        }
        let ages: HashMap<&str, usize> = owners.iter().enumerate().map(|(age, owner)| (&*owner.key, age)).collect();
        rules.order_patterns(|owner| ages.get(owner).copied());
        if let Some(redirect) = root_redirect(&rules, paths.iter().map(|(path, _)| path.owner)) {
            rules.exact.insert(b"/"[..].into(), redirect);
        }
        rules
    }
}

/// Whether a path is an expression beyond the limits.
fn is_beyond(path: &Path<'_>, budget: &mut Budget) -> bool {
    let is_expression = path.is_regex && path.place > 0;
    is_expression && (path.place > MOST_EXPRESSIONS || !budget.admits(path.path))
}

fn insert(rules: &mut HostRules, path: &Path<'_>, location: Location) -> Result<(), PatternError> {
    match identity(path) {
        _ if path.is_default => rules.fallback = Some(location),
        Some((true, ..)) => rules.patterns.push(PatternRules::new(Pattern::at_start(path.path)?, location)),
        Some((_, PathType::Exact, path)) => drop(rules.exact.insert(path.into(), location)),
        Some((_, _, path)) => drop(rules.prefixes.insert(path.into(), location)),
        None => (),
    }
    Ok(())
}

/// Closes a path that cannot be served, where nobody else has exactly this one: for an expression everything that begins with
/// its literal text.
fn close(rules: &mut HostRules, path: &Path<'_>, services: Services<'_>) {
    let location = closed(&PathRule { path, canary: None, host: None, has_tls: false, services });
    match Pattern::literal_start(path.path) {
        Ok(pattern) if path.is_regex => rules.patterns.push(PatternRules::new(pattern, location)),
        _ => {
            let Some(decoded) = request_path::decode(path.path) else { return };
            if path.kind == PathType::Exact && !path.is_regex {
                rules.exact.entry(decoded.into()).or_insert(location);
                return;
            }
            let prefix = request_path::without_slash(&decoded);
            rules.prefixes.entry(prefix.into()).or_insert(location);
        }
    }
}

/// A host and a path, for messages.
fn place(host: Option<&str>, path: &str) -> String {
    format!("{}{path}", host.unwrap_or("*"))
}
