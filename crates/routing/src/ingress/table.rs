//! Which rule of a class takes a request.
//!
//! In: the merged rules of each host. Out: one rule, or none (404). The host decides first: exact, then `*.` for exactly one
//! label, then the rules without host; a request never reaches the rules of a less specific host. Then the path, decoded and
//! resolved ([`crate::request_path`]): exact, then the longest prefix by elements; or, for Ingresses with regular expressions, the first of them in the order of their length.
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

/// A host, none for all other hosts, and what it has.
type Entry<R> = (Option<Arc<str>>, Served<R>);

/// What a host has.
#[derive(PartialEq, Debug)]
pub(super) enum Served<R = Rule> {
    /// Rules of its own.
    Rules(Arc<HostRules<R>>),
    /// The rules of this host.
    Alias(Option<Arc<str>>),
}

/// The rules of a host.
#[derive(PartialEq, Debug)]
pub(super) struct HostRules<R = Rule> {
    /// By whole path, decoded.
    pub(super) exact: HashMap<Box<[u8]>, Location<R>, foldhash::fast::RandomState>,
    /// By prefix, decoded, without `/` at its end.
    pub(super) prefixes: HashMap<Box<[u8]>, Location<R>, foldhash::fast::RandomState>,
    /// By regular expression, in the order of precedence.
    pub(super) patterns: Vec<PatternRules<R>>,
    /// For all other paths.
    pub(super) fallback: Option<Location<R>>,
}

/// The rules of a regular expression.
#[derive(PartialEq, Debug)]
pub(super) struct PatternRules<R = Rule> {
    pattern: Pattern,
    /// Prefixes of other namespaces that are shorter than this come after it, if the path begins with its literal text:
    /// nobody takes more from the prefix of another by an expression than by a longer prefix.
    reach: usize,
    location: Location<R>,
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
        let rules = |(host, served)| self.resolve(served).map(|rules: &HostRules<R>| (host, rules));
        let hosts = self.sorted().into_iter().map(|(host, served)| (host.as_ref(), served)).filter_map(rules);
        hosts.flat_map(|(host, rules)| rules.rules().map(move |(condition, rule)| (host, condition, rule)))
    }

    /// Hosts with rules, in no particular order.
    pub fn hosts(&self) -> impl Iterator<Item = Option<&Arc<str>>> {
        self.0.values().map(|(host, _)| host.as_ref())
    }

    /// All rules of exactly this host.
    pub fn of_host(&self, host: Option<&str>) -> impl Iterator<Item = &Arc<R>> {
        let rules = self.get(host).and_then(|served| self.resolve(served));
        rules.into_iter().flat_map(HostRules::rules).map(|(_, rule)| rule)
    }

    /// Takes the rules of a host over from another table, in another form, in place of those before.
    pub fn take<S>(
        &mut self,
        host: Option<&Arc<str>>,
        from: &IngressTable<S>,
        mut compile: impl FnMut(&Arc<S>) -> Arc<R>,
    ) {
        let served = from.get(host.map(|host| &**host)).map(|served| match served {
            Served::Rules(rules) => Served::Rules(Arc::new(rules.map(&mut compile))),
            Served::Alias(source) => Served::Alias(source.clone()),
        });
        self.set(host, served);
    }

    /// The rules of the host that covers the one of a request, in order of precedence, each with the first condition that
    /// does not hold. For diagnosis: the cost is that of the number of rules.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &RequestView<'_>) -> Vec<Considered<'a, R>> {
        let (entry, path) = (self.entry(request.host), request_path::decode(request.path));
        let rules = entry.and_then(|(host, served)| Some((host, self.resolve(served)?)));
        let (Some((host, rules)), Some(path)) = (rules, path) else { return Vec::new() };
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
        self.entry(host).and_then(|(_, served)| self.resolve(served))
    }

    fn resolve<'a>(&'a self, served: &'a Served<R>) -> Option<&'a HostRules<R>> {
        match served {
            Served::Rules(rules) => Some(rules),
            Served::Alias(source) => match self.get(source.as_deref())? {
                Served::Rules(rules) => Some(rules),
                Served::Alias(_) => None,
            },
        }
    }

    fn entry(&self, host: &str) -> Option<&Entry<R>> {
        self.0.covering(host).find(|covering| covering.labels <= 1).map(|covering| covering.value)
    }

    /// Replaces what a host has.
    pub(super) fn set(&mut self, host: Option<&Arc<str>>, served: Option<Served<R>>) {
        let name = host.map(|host| &**host);
        match served {
            Some(served) => drop(self.0.insert(name, (host.cloned(), served))),
            None => drop(self.0.remove(name)),
        }
    }

    /// What exactly this host has.
    pub(super) fn get(&self, host: Option<&str>) -> Option<&Served<R>> {
        self.0.get(host).map(|(_, served)| served)
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

impl<R> Clone for Served<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Rules(rules) => Self::Rules(Arc::clone(rules)),
            Self::Alias(source) => Self::Alias(source.clone()),
        }
    }
}

impl<R> Default for IngressTable<R> {
    fn default() -> Self {
        Self(HostMap::default())
    }
}

impl<R> Default for HostRules<R> {
    fn default() -> Self {
        Self { exact: HashMap::default(), prefixes: HashMap::default(), patterns: Vec::new(), fallback: None }
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
        let prefix = self.prefix(path);
        let takes = |one: &&PatternRules<R>| {
            prefix.is_none_or(|(prefix, _)| one.precedes(prefix.len(), path)) && one.pattern.is_match(path)
        };
        let by_pattern = self.patterns.iter().find(takes).map(|one| &one.location);
        by_pattern.or(prefix.map(|(_, location)| location)).or(self.fallback.as_ref())
    }

    /// The longest prefix of a path, and its rules.
    fn prefix<'p>(&self, path: &'p [u8]) -> Option<(&'p [u8], &Location<R>)> {
        let mut prefix = path;
        loop {
            if let Some(location) = self.prefixes.get(prefix) {
                return Some((prefix, location));
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
            patterns: self.patterns.iter().map(|one| one.with(all(&one.location))).collect(),
            fallback: self.fallback.as_ref().map(all),
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
        let patterns = self.patterns.iter().map(|one| (one.pattern.is_match(path), &one.location));
        let fallback = self.fallback.iter().map(|location| (true, location));
        let mut all: Vec<(bool, &Location<R>)> = exact.chain(prefixes).chain(patterns).chain(fallback).collect();
        // Whether a prefix or an expression comes first depends on the path.
        if !self.patterns.is_empty() && !self.prefixes.is_empty() {
            let first = self.location(path);
            all.sort_by_key(|(_, location)| !first.is_some_and(|first| std::ptr::eq(first, *location)));
        }
        all.into_iter()
            .flat_map(|(holds, location)| location.iter().map(move |(condition, rule)| (holds, condition, rule)))
    }
}

impl HostRules {
    /// Puts the expressions in the order of precedence: the longest first. `age` is the place of an Ingress in the order of age.
    pub(super) fn order_patterns(&mut self, age: impl Fn(&str) -> Option<usize>) {
        let age = |location: &Location| location.last().and_then(|(_, rule)| age(&rule.route.key));
        for one in &mut self.patterns {
            let text = request_path::without_slash(Pattern::text_before(one.pattern.source()).as_bytes());
            let is_older = self.prefixes.get(text).is_some_and(|other| age(&one.location) < age(other));
            one.reach = text.len() + usize::from(is_older);
        }
        let rank = |one: &PatternRules| (one.pattern.source().len(), one.pattern.source().to_owned());
        self.patterns.sort_by_cached_key(|one| std::cmp::Reverse(rank(one)));
    }
}

impl<R> PatternRules<R> {
    pub(super) const fn new(pattern: Pattern, location: Location<R>) -> Self {
        Self { pattern, reach: 0, location }
    }

    /// The same with other rules.
    fn with<S>(&self, location: Location<S>) -> PatternRules<S> {
        PatternRules { pattern: self.pattern.clone(), reach: self.reach, location }
    }

    /// Whether it comes before a prefix of this length.
    fn precedes(&self, prefix: usize, path: &[u8]) -> bool {
        let text = Pattern::text_before(self.pattern.source()).as_bytes();
        prefix < self.reach && path.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
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
