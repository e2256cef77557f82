//! What the tables of HTTP and gRPC have in common: routes by identity, their entries by host, and the order of age.
//!
//! In: routes with compiled entries, one entry for each match; out, the part of the table for each hostname that covers
//! a host. An entry is shared by all hosts of its route.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::hosts::{Covering, HostMap};
use crate::model::{RouteId, RouteKind};
use crate::persistent::Map;

/// A route that is put into a table.
#[derive(Clone, Copy, Debug)]
pub struct RouteEntry<'a> {
    /// Its identity.
    pub id: &'a RouteId,
    /// Its creationTimestamp.
    pub created: &'a str,
    /// Its hostnames that intersect with the listener, as written in the route; all hosts when empty.
    pub hostnames: &'a [Arc<str>],
}

/// The value for a request.
#[derive(Debug)]
pub struct Selected<'a, R> {
    /// The value of the rule.
    pub rule: &'a R,
    /// The path prefix that matched, without `/` at its end unless it is `/`.
    pub prefix: Option<&'a str>,
}

/// A rule that was considered for a request.
#[derive(Debug)]
pub struct Considered<'a, R> {
    /// The value of the rule.
    pub rule: &'a R,
    /// The route.
    pub route: &'a RouteId,
    /// The hostname of the route that covers the host, without `*.`; none if it has no hostnames.
    pub hostname: Option<&'a str>,
    /// Whether that hostname is a wildcard.
    pub wildcard: bool,
    /// The place of the rule in the route.
    pub rule_index: usize,
    /// The place of the match in the rule.
    pub match_index: usize,
    /// The first condition that does not hold; none if all hold, so the first such rule takes the request.
    pub failed: Option<Failed<'a>>,
}

/// A condition that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed<'a> {
    /// The `*` of an Ingress stands for one label only.
    Host,
    /// The path.
    Path,
    /// The method.
    Method,
    /// The header of this name.
    Header(&'a str),
    /// The query parameter of this name.
    Query(&'a str),
}

/// Where an entry comes from, and the last criteria of precedence.
#[derive(Debug)]
pub(crate) struct Origin {
    route: Arc<(RouteId, Box<str>)>,
    pub(crate) rule: usize,
    pub(crate) place: usize,
}

impl Origin {
    pub(crate) fn id(&self) -> &RouteId {
        &self.route.0
    }

    /// Older routes first, then by `namespace/name`, then in the order of rules and matches.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let key = |origin: &Self| (origin.rule, origin.place);
        let (one, two) = (&*self.route, &*other.route);
        (one.1.cmp(&two.1))
            .then_with(|| one.0.key.cmp(&two.0.key))
            .then_with(|| one.0.kind.cmp(&two.0.kind))
            .then_with(|| key(self).cmp(&key(other)))
    }

    /// Whether the entry is meant for a host for which the `*` of its hostname stands for so many labels.
    pub(crate) fn takes_labels(&self, labels: usize) -> bool {
        labels <= 1 || self.id().kind != RouteKind::Ingress
    }
}

/// Entries of one hostname.
pub(crate) trait Level: Clone + Default {
    type Entry;
    fn insert(&mut self, entry: &Arc<Self::Entry>);
    fn remove(&mut self, entry: &Arc<Self::Entry>);
    fn is_empty(&self) -> bool;
}

#[derive(Debug)]
struct Known<E> {
    hostnames: Box<[Arc<str>]>,
    entries: Box<[Arc<E>]>,
}

impl<E> Known<E> {
    fn hosts(&self) -> impl Iterator<Item = Option<&str>> {
        let all = self.hostnames.is_empty().then_some(None);
        self.hostnames.iter().map(|host| Some(&**host)).chain(all)
    }
}

/// Routes by identity, and their entries by host.
#[derive(Debug)]
pub(crate) struct Table<L: Level> {
    hosts: HostMap<L>,
    routes: Map<RouteId, Arc<Known<L::Entry>>>,
}

impl<L: Level> Clone for Table<L> {
    fn clone(&self) -> Self {
        Self { hosts: self.hosts.clone(), routes: self.routes.clone() }
    }
}

impl<L: Level> Default for Table<L> {
    fn default() -> Self {
        Self { hosts: HostMap::default(), routes: Map::default() }
    }
}

impl<L: Level> Table<L> {
    pub(crate) const fn len(&self) -> usize {
        self.routes.len()
    }

    /// Puts a route into the table, in place of an earlier version of it.
    pub(crate) fn insert<S>(
        &mut self,
        route: RouteEntry<'_>,
        rules: impl Iterator<Item = (usize, Vec<S>)>,
        entry: impl Fn(Origin, S) -> L::Entry,
    ) {
        self.remove(route.id);
        let origin = Arc::new((route.id.clone(), Box::from(route.created)));
        let matches = rules.flat_map(|(rule, matches)| {
            matches.into_iter().enumerate().map(move |(place, compiled)| (rule, place, compiled))
        });
        let entries: Vec<Arc<L::Entry>> = matches
            .map(|(rule, place, compiled)| Arc::new(entry(Origin { route: origin.clone(), rule, place }, compiled)))
            .collect();
        let mut hostnames = route.hostnames.to_vec();
        hostnames.sort_unstable();
        hostnames.dedup();
        let known = Known { hostnames: hostnames.into(), entries: entries.into() };
        if !known.entries.is_empty() {
            for host in known.hosts() {
                let level = self.hosts.get_mut_or_insert_with(host, L::default);
                known.entries.iter().for_each(|entry| level.insert(entry));
            }
        }
        self.routes.insert(route.id.clone(), Arc::new(known));
    }

    pub(crate) fn remove(&mut self, id: &RouteId) {
        let Some(known) = self.routes.remove(id) else { return };
        for host in known.hosts() {
            if self.hosts.get(host).is_none() {
                continue;
            }
            let level = self.hosts.get_mut_or_insert_with(host, L::default);
            known.entries.iter().for_each(|entry| level.remove(entry));
            if level.is_empty() {
                self.hosts.remove(host);
            }
        }
    }

    /// The entries of the hostnames that cover a host, most specific first.
    pub(crate) fn levels<'a, 'h>(&'a self, host: &'h str) -> impl Iterator<Item = Covering<'a, 'h, L>> {
        self.hosts.covering(host)
    }
}

/// Inserts an entry into a list in order of precedence.
pub(crate) fn insert_sorted<E>(list: &mut Arc<[Arc<E>]>, entry: &Arc<E>, order: impl Fn(&E, &E) -> Ordering) {
    let place = list.partition_point(|other| order(other, entry).is_lt());
    *list = list[..place].iter().chain(std::iter::once(entry)).chain(&list[place..]).cloned().collect();
}

/// Removes an entry from a list.
pub(crate) fn remove_entry<E>(list: &mut Arc<[Arc<E>]>, entry: &Arc<E>) {
    if list.iter().any(|other| Arc::ptr_eq(other, entry)) {
        *list = list.iter().filter(|other| !Arc::ptr_eq(other, entry)).cloned().collect();
    }
}

/// Removes an entry from the list of a path or service.
pub(crate) fn remove_from<E>(map: &mut Map<Box<str>, Arc<[Arc<E>]>>, key: &str, entry: &Arc<E>) {
    let Some(known) = map.get(key) else { return };
    let mut list = known.clone();
    remove_entry(&mut list, entry);
    if list.is_empty() {
        map.remove(key);
    } else {
        map.insert(key.into(), list);
    }
}
