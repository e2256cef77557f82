//! Which rule of a class takes a request.
//!
//! In: the merged rules of each host. Out: one rule, or none (404). The host decides first: exact, then `*.` for exactly one
//! label, then the rules without host; a request never reaches the rules of a less specific host. Then the path: exact, then
//! the longest prefix by elements; or, on a host with regular expressions, the first of them in the order of their length.
//! Last, the headers and cookies that lead to a canary.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};

use crate::model::Rule;
use crate::policy::Pattern;

/// The part of a request that decides.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The host, in lower case, without port.
    pub host: &'a str,
    /// The path, without query.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// The rules of a class. A copy is cheap.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct IngressTable {
    hosts: Arc<BTreeMap<Arc<str>, Arc<HostRules>>>,
    /// The rules without host.
    any: Option<Arc<HostRules>>,
}

/// The rules of a host.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct HostRules {
    /// By whole path.
    pub(super) exact: HashMap<Box<str>, Location, foldhash::fast::RandomState>,
    /// By prefix, without `/` at its end.
    pub(super) prefixes: HashMap<Box<str>, Location, foldhash::fast::RandomState>,
    /// By regular expression, in the order of precedence, instead of by prefix.
    pub(super) patterns: Option<Vec<(Pattern, Location)>>,
}

/// The rules of a path, in the order of precedence; the last one has no condition.
pub(super) type Location = Vec<(Condition, Arc<Rule>)>;

/// A condition besides host and path.
#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    /// None.
    Always,
    /// A header has a value.
    Header(HeaderName, HeaderTest),
    /// A cookie has this value.
    Cookie(Box<str>, &'static str),
}

/// A condition on the value of a header.
#[derive(Clone, PartialEq, Debug)]
pub enum HeaderTest {
    /// It is this one.
    Equals(Box<str>),
    /// An expression matches somewhere in it.
    Matches(Pattern),
}

impl IngressTable {
    /// The rule that takes a request.
    #[must_use]
    pub fn find(&self, request: &RequestView<'_>) -> Option<&Arc<Rule>> {
        let location = self.host(request.host)?.location(request.path)?;
        location.iter().find(|(condition, _)| condition.holds(request.headers)).map(|(_, rule)| rule)
    }

    /// Hosts with rules, and all rules of each with their conditions; none is the host of the rules for all other hosts.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&Arc<str>>, &Condition, &Arc<Rule>)> {
        let named = self.hosts.iter().map(|(host, rules)| (Some(host), rules));
        let all = named.chain(self.any.iter().map(|rules| (None, rules)));
        all.flat_map(|(host, rules)| rules.rules().map(move |(condition, rule)| (host, condition, rule)))
    }

    fn host(&self, host: &str) -> Option<&Arc<HostRules>> {
        let wildcard = || {
            let (label, suffix) = host.split_once('.')?;
            self.hosts.get(format!("*.{suffix}").as_str()).filter(|_| !label.is_empty())
        };
        self.hosts.get(host).or_else(wildcard).or(self.any.as_ref())
    }

    /// Replaces the rules of a host.
    pub(super) fn set(&mut self, host: Option<&Arc<str>>, rules: Option<Arc<HostRules>>) {
        match (host, rules) {
            (None, rules) => self.any = rules,
            (Some(host), Some(rules)) => drop(Arc::make_mut(&mut self.hosts).insert(host.clone(), rules)),
            (Some(host), None) => drop(Arc::make_mut(&mut self.hosts).remove(host)),
        }
    }

    /// The rules of exactly this host.
    pub(super) fn get(&self, host: Option<&str>) -> Option<&Arc<HostRules>> {
        host.map_or(self.any.as_ref(), |host| self.hosts.get(host))
    }
}

impl HostRules {
    pub(super) fn location(&self, path: &str) -> Option<&Location> {
        if let Some(location) = self.exact.get(path) {
            return Some(location);
        }
        if let Some(patterns) = &self.patterns {
            return patterns.iter().find(|(pattern, _)| pattern.is_match(path)).map(|(_, location)| location);
        }
        let mut prefix = path;
        loop {
            if let Some(location) = self.prefixes.get(prefix) {
                return Some(location);
            }
            prefix = prefix.rsplit_once('/')?.0;
        }
    }

    fn rules(&self) -> impl Iterator<Item = (&Condition, &Arc<Rule>)> {
        let mut exact: Vec<_> = self.exact.iter().collect();
        let mut prefixes: Vec<_> = self.prefixes.iter().collect();
        exact.sort_unstable_by_key(|(path, _)| *path);
        prefixes.sort_unstable_by(|(a, _), (b, _)| (b.len(), a).cmp(&(a.len(), b)));
        let patterns = self.patterns.iter().flatten().map(|(_, location)| location);
        let locations = exact.into_iter().chain(prefixes).map(|(_, location)| location).chain(patterns);
        locations.flatten().map(|(condition, rule)| (condition, rule))
    }
}

impl Condition {
    fn holds(&self, headers: &HeaderMap) -> bool {
        match self {
            Self::Always => true,
            Self::Header(name, test) => {
                headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| test.holds(value))
            }
            Self::Cookie(name, want) => cookies(headers).any(|(have, value)| *have == **name && value == *want),
        }
    }
}

impl HeaderTest {
    fn holds(&self, value: &str) -> bool {
        match self {
            Self::Equals(want) => *value == **want,
            Self::Matches(pattern) => pattern.is_match(value),
        }
    }
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}
