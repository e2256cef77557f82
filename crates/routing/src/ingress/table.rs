//! Which rule of a class takes a request.
//!
//! In: the merged rules of each host. Out: one rule, or none (404). The host decides first: exact, then `*.` for exactly one
//! label, then the rules without host; a request never reaches the rules of a less specific host. Then the path, decoded and
//! resolved ([`crate::request_path`]): exact, then the longest prefix by elements; or, on a host with regular expressions, the first of them in the order of their length.
//! Last, the headers and cookies that lead to a canary.
//!
//! [`crate::http_table`] decides differently in each of these: it tries less specific hosts, tries regular expressions
//! before prefixes, and ranks conditions by their number.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};

use crate::hosts::HostMap;
use crate::http_table::RequestView;
use crate::model::Rule;
use crate::policy::Pattern;
use crate::request_path;
use crate::table::Failed;

/// The rules of a class, in any form; that of the engine is [`Rule`]. A copy is cheap.
#[derive(Debug)]
pub struct IngressTable<R = Rule>(HostMap<Entry<R>>);

/// A host, none for all other hosts, and its rules.
type Entry<R> = (Option<Arc<str>>, Arc<HostRules<R>>);

/// The rules of a host.
#[derive(PartialEq, Debug)]
pub(super) struct HostRules<R = Rule> {
    /// By whole path, decoded.
    pub(super) exact: HashMap<Box<[u8]>, Location<R>, foldhash::fast::RandomState>,
    /// By prefix, decoded, without `/` at its end.
    pub(super) prefixes: HashMap<Box<[u8]>, Location<R>, foldhash::fast::RandomState>,
    /// By regular expression, in the order of precedence, instead of by prefix.
    pub(super) patterns: Option<Vec<(Pattern, Location<R>)>>,
}

/// The rules of a path, in the order of precedence; the last one has no condition.
pub(super) type Location<R = Rule> = Vec<(Condition, Arc<R>)>;

/// A rule that was considered for a request.
#[derive(Debug)]
pub struct Considered<'a, R = Rule> {
    /// The host of the rule; none for all other hosts.
    pub host: Option<&'a Arc<str>>,
    /// The rule.
    pub rule: &'a Arc<R>,
    /// The first condition that does not hold; none if all hold, so the first such rule takes the request.
    pub failed: Option<Failed<'a>>,
}

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

impl<R> IngressTable<R> {
    /// The rule that takes a request; none for a path that cannot be decoded or that leaves the root.
    #[must_use]
    pub fn find(&self, request: &RequestView<'_>) -> Option<&Arc<R>> {
        let path = request_path::decode(request.path)?;
        let location = self.host(request.host)?.location(&path)?;
        location.iter().find(|(condition, _)| condition.holds(request.headers)).map(|(_, rule)| rule)
    }

    /// Hosts with rules, and all rules of each with their conditions; none is the host of the rules for all other hosts.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&Arc<str>>, &Condition, &Arc<R>)> {
        let hosts = self.sorted().into_iter();
        hosts.flat_map(|(host, rules)| rules.rules().map(move |(condition, rule)| (host.as_ref(), condition, rule)))
    }

    /// Hosts with rules, in no particular order.
    pub fn hosts(&self) -> impl Iterator<Item = Option<&Arc<str>>> {
        self.0.values().map(|(host, _)| host.as_ref())
    }

    /// All rules of exactly this host.
    pub fn of_host(&self, host: Option<&str>) -> impl Iterator<Item = &Arc<R>> {
        self.get(host).into_iter().flat_map(|rules| rules.rules()).map(|(_, rule)| rule)
    }

    /// Takes the rules of a host over from another table, in another form, in place of those before.
    pub fn take<S>(
        &mut self,
        host: Option<&Arc<str>>,
        from: &IngressTable<S>,
        mut compile: impl FnMut(&Arc<S>) -> Arc<R>,
    ) {
        let rules = from.get(host.map(|host| &**host));
        self.set(host, rules.map(|rules| Arc::new(rules.map(&mut compile))));
    }

    /// The rules of the host that covers the one of a request, in order of precedence, each with the first condition that
    /// does not hold. For diagnosis: the cost is that of the number of rules.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &RequestView<'_>) -> Vec<Considered<'a, R>> {
        let (Some((host, rules)), Some(path)) = (self.entry(request.host), request_path::decode(request.path)) else {
            return Vec::new();
        };
        let considered = |(path_holds, condition, rule): (bool, &'a Condition, &'a Arc<R>)| {
            let failed = match path_holds {
                false => Some(Failed::Path),
                true if condition.holds(request.headers) => None,
                true => Some(condition.failed()),
            };
            Considered { host: host.as_ref(), rule, failed }
        };
        rules.for_path(&path).map(considered).collect()
    }

    /// The rules of the most specific name that covers a host. A `*` stands for one label.
    fn host(&self, host: &str) -> Option<&HostRules<R>> {
        self.entry(host).map(|(_, rules)| &**rules)
    }

    fn entry(&self, host: &str) -> Option<&Entry<R>> {
        self.0.covering(host).find(|covering| covering.labels <= 1).map(|covering| covering.value)
    }

    /// Replaces the rules of a host.
    pub(super) fn set(&mut self, host: Option<&Arc<str>>, rules: Option<Arc<HostRules<R>>>) {
        let name = host.map(|host| &**host);
        match rules {
            Some(rules) => drop(self.0.insert(name, (host.cloned(), rules))),
            None => drop(self.0.remove(name)),
        }
    }

    /// The rules of exactly this host.
    pub(super) fn get(&self, host: Option<&str>) -> Option<&Arc<HostRules<R>>> {
        self.0.get(host).map(|(_, rules)| rules)
    }

    fn sorted(&self) -> Vec<&Entry<R>> {
        let mut all: Vec<_> = self.0.values().collect();
        all.sort_unstable_by_key(|(host, _)| host.as_ref());
        all
    }
}

impl<R> Clone for IngressTable<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> Default for IngressTable<R> {
    fn default() -> Self {
        Self(HostMap::default())
    }
}

impl<R> Default for HostRules<R> {
    fn default() -> Self {
        Self { exact: HashMap::default(), prefixes: HashMap::default(), patterns: None }
    }
}

impl<R: PartialEq> PartialEq for IngressTable<R> {
    fn eq(&self, other: &Self) -> bool {
        self.sorted() == other.sorted()
    }
}

impl<R> HostRules<R> {
    /// The rules of a decoded path.
    pub(super) fn location(&self, path: &[u8]) -> Option<&Location<R>> {
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
            prefix = prefix.get(..prefix.iter().rposition(|byte| *byte == b'/')?)?;
        }
    }

    /// The same paths and conditions with other rules.
    fn map<S>(&self, map: &mut impl FnMut(&Arc<R>) -> Arc<S>) -> HostRules<S> {
        let mut all = |location: &Location<R>| -> Location<S> {
            location.iter().map(|(condition, rule)| (condition.clone(), map(rule))).collect()
        };
        HostRules {
            exact: self.exact.iter().map(|(path, location)| (path.clone(), all(location))).collect(),
            prefixes: self.prefixes.iter().map(|(path, location)| (path.clone(), all(location))).collect(),
            patterns: self
                .patterns
                .as_ref()
                .map(|patterns| patterns.iter().map(|(pattern, location)| (pattern.clone(), all(location))).collect()),
        }
    }

    fn rules(&self) -> impl Iterator<Item = (&Condition, &Arc<R>)> {
        self.for_path(b"").map(|(_, condition, rule)| (condition, rule))
    }

    /// All rules in order of precedence, each with whether its path takes this one.
    fn for_path<'a>(&'a self, path: &[u8]) -> impl Iterator<Item = (bool, &'a Condition, &'a Arc<R>)> + use<'a, R> {
        let mut exact: Vec<_> = self.exact.iter().collect();
        let mut prefixes: Vec<_> = self.prefixes.iter().collect();
        exact.sort_unstable_by_key(|(path, _)| *path);
        prefixes.sort_unstable_by(|(a, _), (b, _)| (b.len(), a).cmp(&(a.len(), b)));
        let below =
            |prefix: &[u8]| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
        let exact = exact.into_iter().map(|(have, location)| (**have == *path, location));
        let prefixes = prefixes.into_iter().map(|(prefix, location)| (below(prefix), location));
        let patterns = self.patterns.iter().flatten().map(|(pattern, location)| (pattern.is_match(path), location));
        let all: Vec<(bool, &Location<R>)> = exact.chain(prefixes).chain(patterns).collect();
        all.into_iter()
            .flat_map(|(holds, location)| location.iter().map(move |(condition, rule)| (holds, condition, rule)))
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

    /// What does not hold, when it does not.
    fn failed(&self) -> Failed<'_> {
        match self {
            Self::Always => Failed::Path,
            Self::Header(name, _) => Failed::Header(name.as_str()),
            Self::Cookie(..) => Failed::Header(COOKIE.as_str()),
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
