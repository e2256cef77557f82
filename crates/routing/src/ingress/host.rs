//! All Ingresses of a host, merged into its rules.
//!
//! In: the Ingresses with rules for the host, oldest first, and the Services. Out: the rules, and what the owners should
//! know. The oldest Ingress owns a path; canaries add a backend to the path of another Ingress.

mod rules;

use std::borrow::Cow;
use std::sync::Arc;

use api::view::ingress::{IngressBackend, PathType};
use api::view::{Ingress, Service};

use super::certificates::covers;
use super::settings::Settings;
use super::table::{HostRules, Location};
use super::{Finding, Reason};
use crate::policy::Pattern;
use crate::request_path;

pub(super) use rules::redirect_to;
use rules::{PathRule, location, root_redirect};

/// An Ingress and its settings.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Parsed {
    pub(super) key: Arc<str>,
    pub(super) ingress: Arc<Ingress>,
    pub(super) settings: Settings,
    pub(super) findings: Vec<Finding>,
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
    let spec = &owner.ingress.spec;
    let all = spec.rules.iter().flat_map(|rule| rule.http.paths.iter().map(move |path| (rule, path))).enumerate();
    let count = all.clone().count();
    let here = all.filter(|(_, (rule, _))| is_host(&rule.host, host));
    let mut found: Vec<_> = here
        .map(|(index, (_, path))| Path {
            owner,
            index,
            path: if path.path.is_empty() { "/" } else { &path.path },
            kind: path.path_type,
            backend: &path.backend,
            is_default: false,
        })
        .collect();
    let default = spec.default_backend.as_ref();
    found.extend(default.map(|backend| Path {
        owner,
        index: count,
        path: "/",
        kind: PathType::Prefix,
        backend,
        is_default: true,
    }));
    found
}

/// Merges the Ingresses of a host.
pub(super) fn assemble(host: Option<&str>, members: &[&Parsed], services: Services<'_>) -> Assembled {
    let mut assembly = Assembly { findings: Vec::new(), paths: Vec::new() };
    let (canaries, owners): (Vec<&Parsed>, Vec<&Parsed>) =
        members.iter().partition(|member| member.settings.canary.is_some());
    let owned: Vec<_> = owners.iter().flat_map(|owner| paths(owner, host)).collect();
    let is_regex = owned.iter().any(|path| !path.is_default && uses_regex(path));
    assembly.select(host, &owned, is_regex);
    for canary in canaries {
        assembly.add_canary(host, canary);
    }
    if owners.is_empty() {
        return Assembled { rules: None, findings: assembly.findings };
    }
    let has_tls = host.is_some_and(|host| owners.iter().any(|owner| has_certificate(&owner.ingress, host)));
    let rules = assembly.build(is_regex, has_tls, services);
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

/// A path as others conflict with it: on a host without regular expressions `/a`, `/%61` and `/a/` are the same prefix.
/// None for a path that no request can have.
fn identity<'a>(path: &Path<'a>, is_regex: bool) -> Option<(PathType, Cow<'a, [u8]>)> {
    if is_regex {
        return Some((path.kind, Cow::Borrowed(path.path.as_bytes())));
    }
    let decoded = request_path::decode(path.path)?;
    Some(match path.kind {
        PathType::Exact => (PathType::Exact, decoded),
        _ => (PathType::Prefix, Cow::Owned(request_path::without_slash(&decoded).to_owned())),
    })
}

struct Assembly<'a> {
    findings: Vec<(Arc<str>, Finding)>,
    /// The selected paths, each with its canary.
    paths: Vec<(Path<'a>, Option<Path<'a>>)>,
}

impl<'a> Assembly<'a> {
    fn find(&mut self, owner: &Parsed, reason: Reason, message: String) {
        self.findings.push((owner.key.clone(), Finding { reason, message }));
    }

    /// Selects the paths that are served: of equal ones the oldest, and as the fallback the oldest default backend.
    fn select(&mut self, host: Option<&str>, owned: &[Path<'a>], is_regex: bool) {
        for path in owned.iter().filter(|path| !path.is_default) {
            let own = identity(path, is_regex);
            let same = |(have, _): &&(Path<'_>, _)| identity(have, is_regex) == own;
            if !path.path.starts_with('/') {
                self.find(path.owner, Reason::PathInvalid, format!("path `{}` does not start with /", path.path));
            } else if path.kind == PathType::Unknown {
                self.find(path.owner, Reason::PathInvalid, format!("path {} has an unknown pathType", path.path));
            } else if own.is_none() {
                let message = format!("path {} has a malformed escape, or leaves the root by `..`", path.path);
                self.find(path.owner, Reason::PathInvalid, message);
            } else if let Some((first, _)) = self.paths.iter().find(same) {
                let (at, first) = (place(host, path.path), &first.owner.key);
                let message = format!("{at} is served by Ingress {first}, which is older or names it first");
                self.find(path.owner, Reason::PathConflict, message);
            } else {
                self.paths.push((*path, None));
            }
        }
        let is_root =
            |(path, _): &(Path<'_>, _)| path.kind != PathType::Exact && path.path.trim_end_matches('/').is_empty();
        if !self.paths.iter().any(is_root) {
            let default = owned.iter().find(|path| path.is_default);
            self.paths.extend(default.map(|path| (*path, None)));
        }
    }

    /// Adds a canary to the paths of Ingresses of its own namespace: nobody else may take over requests of theirs.
    fn add_canary(&mut self, host: Option<&str>, canary: &'a Parsed) {
        for path in
            paths(canary, host).into_iter().filter(|path| !path.is_default || canary.ingress.spec.rules.is_empty())
        {
            let same = |(have, _): &&mut (Path<'_>, _)| have.path == path.path && have.kind == path.kind;
            let at = place(host, path.path);
            let problem = match self.paths.iter_mut().find(same) {
                None => format!("no other Ingress has {at} with pathType {}", path.kind.as_str()),
                Some((have, _)) if have.namespace() != path.namespace() => {
                    format!("{at} is served by Ingress {} of another namespace", have.owner.key)
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

    fn build(&mut self, is_regex: bool, has_tls: bool, services: Services<'_>) -> HostRules {
        let mut rules = HostRules { patterns: is_regex.then(Vec::new), ..HostRules::default() };
        let paths = std::mem::take(&mut self.paths);
        for (path, canary) in &paths {
            let rule = PathRule { path, canary: canary.as_ref(), is_regex, has_tls, services };
            match location(&rule, &mut self.findings) {
                Ok(location) => self.insert(&mut rules, path, location),
                Err(error) => self.find(path.owner, Reason::PathInvalid, format!("path {}: {error}", path.path)),
            }
        }
        if let Some(patterns) = &mut rules.patterns {
            patterns.sort_by(|(a, _), (b, _)| (b.source().len(), b.source()).cmp(&(a.source().len(), a.source())));
        }
        if let Some(redirect) = root_redirect(&rules, paths.iter().map(|(path, _)| path.owner)) {
            rules.exact.insert(b"/"[..].into(), redirect);
        }
        rules
    }

    fn insert(&mut self, rules: &mut HostRules, path: &Path<'_>, location: Location) {
        match (&mut rules.patterns, identity(path, false)) {
            (Some(patterns), _) => match Pattern::at_start(path.path) {
                Ok(pattern) => patterns.push((pattern, location)),
                Err(error) => self.find(path.owner, Reason::PathInvalid, error.to_string()),
            },
            (None, Some((PathType::Exact, path))) => drop(rules.exact.insert(path.into(), location)),
            (None, Some((_, path))) => drop(rules.prefixes.insert(path.into(), location)),
            (None, None) => (),
        }
    }
}

/// A host and a path, for messages.
fn place(host: Option<&str>, path: &str) -> String {
    format!("{}{path}", host.unwrap_or("*"))
}
