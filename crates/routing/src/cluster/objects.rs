//! The objects of a cluster, and the indexes that tell which of them belong together.
//!
//! Only this module stores objects. What is derived from them reads them through a [`Reader`](super::graph::Reader), which
//! records what was read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::view::gateway_api::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, ListenerSet, ParentRef, ReferenceGrant, StreamRoute,
};
use api::view::{ObjectMeta, Service, StringMap};

use super::change::{CaState, SecretState};
use crate::mesh::Contender;
use crate::model::{RouteId, RouteKind};
use crate::traffic::{self, Target, section_of};

pub(super) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
pub(super) type Index<K> = Map<Arc<str>, BTreeSet<K>>;

/// A route of any kind.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RouteObject {
    Http(Arc<HttpRoute>),
    Grpc(Arc<GrpcRoute>),
    Stream(Arc<StreamRoute>),
}

impl RouteObject {
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Http(route) => &route.metadata,
            Self::Grpc(route) => &route.metadata,
            Self::Stream(route) => &route.metadata,
        }
    }

    pub(crate) fn parent_refs(&self) -> &[ParentRef] {
        match self {
            Self::Http(route) => &route.spec.parent_refs,
            Self::Grpc(route) => &route.spec.parent_refs,
            Self::Stream(route) => &route.spec.parent_refs,
        }
    }

    /// Whether it has a rule of this name.
    pub(crate) fn has_rule(&self, name: &str) -> bool {
        match self {
            Self::Http(route) => route.spec.rules.iter().any(|rule| rule.name.as_deref() == Some(name)),
            Self::Grpc(route) => route.spec.rules.iter().any(|rule| rule.name.as_deref() == Some(name)),
            Self::Stream(_) => false,
        }
    }

    /// Its hostnames; those of a TCPRoute or a UDPRoute do not exist.
    pub(crate) fn hostnames(&self, kind: RouteKind) -> &[Box<str>] {
        match self {
            Self::Http(route) => &route.spec.hostnames,
            Self::Grpc(route) => &route.spec.hostnames,
            Self::Stream(route) if kind == RouteKind::Tls => &route.spec.hostnames,
            Self::Stream(_) => &[],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) classes: Map<Arc<str>, Arc<GatewayClass>>,
    pub(super) gateways: Map<Arc<str>, Arc<Gateway>>,
    pub(super) sets: Map<Arc<str>, Arc<ListenerSet>>,
    pub(super) routes: Map<RouteId, RouteObject>,
    pub(super) grants: Map<Arc<str>, Arc<ReferenceGrant>>,
    pub(super) policies: Map<Arc<str>, Arc<BackendTlsPolicy>>,
    pub(super) traffic: Map<Arc<str>, Arc<traffic::Stored>>,
    pub(super) services: Map<Arc<str>, Arc<Service>>,
    pub(super) namespaces: Map<Arc<str>, StringMap>,
    pub(super) secrets: Map<Arc<str>, SecretState>,
    pub(super) config_maps: Map<Arc<str>, CaState>,
    /// Gateways by the name of their class.
    pub(super) gateways_of: Index<Arc<str>>,
    /// ListenerSets by their Gateway.
    pub(super) sets_of: Index<Arc<str>>,
    /// ReferenceGrants by namespace.
    pub(super) grants_of: Index<Arc<str>>,
    /// Policies by the Services that they name as targets.
    pub(super) policies_of: Index<Arc<str>>,
    /// Routes by the Services that they name as parents.
    pub(super) contenders: Map<Arc<str>, BTreeMap<RouteId, Contender>>,
    /// The Services of other namespaces that routes of a namespace name as parents, each with the number of routes that do.
    pub(super) consumed: Map<Arc<str>, BTreeMap<Arc<str>, usize>>,
    /// TrafficPolicies by the objects that they name as targets.
    pub(super) traffic_of: Map<Target, BySection>,
}

/// TrafficPolicies by the section of an object, which is empty for the whole object: their age and key, the one that holds first.
pub(super) type BySection = BTreeMap<Box<str>, BTreeSet<(Box<str>, Arc<str>)>>;

#[cfg(test)]
impl Objects {
    /// Whether there is no object, and no entry of an index.
    pub(super) fn is_empty(&self) -> bool {
        let Self { classes, gateways, sets, routes, grants, policies, services, namespaces, secrets, .. } = self;
        let maps = classes.is_empty() && gateways.is_empty() && sets.is_empty() && routes.is_empty();
        let more = grants.is_empty() && policies.is_empty() && services.is_empty() && namespaces.is_empty();
        let indexes = [&self.gateways_of, &self.sets_of, &self.grants_of, &self.policies_of];
        maps && more
            && secrets.is_empty()
            && self.config_maps.is_empty()
            && self.traffic.is_empty()
            && self.traffic_of.is_empty()
            && self.contenders.is_empty()
            && self.consumed.is_empty()
            && indexes.iter().all(|index| index.is_empty())
    }
}

/// Stores a value or removes it; the previous one is returned, and whether there is a difference.
pub(super) fn store<K: std::hash::Hash + Eq, V: PartialEq + Clone>(
    map: &mut Map<K, V>,
    key: K,
    value: Option<V>,
) -> Option<Previous<V>> {
    let old = match value.clone() {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
    (old != value).then_some(Previous { old, new: value })
}

/// A value before and after a change; they differ.
pub(super) struct Previous<V> {
    pub(super) old: Option<V>,
    pub(super) new: Option<V>,
}

impl<V> Previous<V> {
    /// Whether a part of the value differs.
    pub(super) fn differs<'a, P: PartialEq + 'a>(&'a self, part: impl Fn(&'a V) -> P) -> bool {
        self.old.as_ref().map(&part) != self.new.as_ref().map(&part)
    }
}

/// Moves a key from the entries of an old value to those of a new one.
pub(super) fn reindex<T: std::hash::Hash + Ord + Clone>(
    index: &mut Map<T, BTreeSet<Arc<str>>>,
    key: &Arc<str>,
    old: &BTreeSet<T>,
    new: &BTreeSet<T>,
) {
    for gone in old.difference(new) {
        if let Some(keys) = index.get_mut(gone) {
            keys.remove(key);
            if keys.is_empty() {
                index.remove(gone);
            }
        }
    }
    for come in new.difference(old) {
        index.entry(come.clone()).or_default().insert(Arc::clone(key));
    }
}

/// Moves a TrafficPolicy from the sections that it named to those that it names.
pub(super) fn reindex_traffic(
    index: &mut Map<Target, BySection>,
    key: &Arc<str>,
    old: Option<&traffic::Stored>,
    new: Option<&traffic::Stored>,
) {
    let entry = |stored: &traffic::Stored| (stored.policy.metadata.creation_timestamp.clone(), Arc::clone(key));
    for (stored, target, section) in old.into_iter().flat_map(|stored| sections(key, stored)) {
        let Some(by_section) = index.get_mut(&target) else { continue };
        if let Some(policies) = by_section.get_mut(section) {
            policies.remove(&entry(stored));
            if policies.is_empty() {
                by_section.remove(section);
            }
        }
        if by_section.is_empty() {
            index.remove(&target);
        }
    }
    for (stored, target, section) in new.into_iter().flat_map(|stored| sections(key, stored)) {
        index.entry(target).or_default().entry(section.into()).or_default().insert(entry(stored));
    }
}

fn sections<'a>(
    key: &'a str,
    stored: &'a traffic::Stored,
) -> impl Iterator<Item = (&'a traffic::Stored, Target, &'a str)> {
    let references = stored.policy.spec.target_refs.iter();
    references.filter_map(move |one| Some((stored, Target::of(key, one)?, section_of(one).unwrap_or_default())))
}

/// The namespace in `namespace/name`.
pub(crate) fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// The name in `namespace/name`.
pub(crate) fn name_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

/// The Gateway of a ListenerSet.
pub(crate) fn gateway_of_set(key: &str, set: &ListenerSet) -> Option<Arc<str>> {
    let parent = &set.spec.parent_ref;
    parent.is("Gateway").then(|| parent.key(namespace_of(key)).into())
}

/// The Services that a policy names as its targets.
pub(crate) fn target_services(key: &str, policy: &BackendTlsPolicy) -> BTreeSet<Arc<str>> {
    let targets = policy.spec.target_refs.iter();
    let services = targets.filter(|target| target.group.is_empty() && &*target.kind == "Service");
    services.map(|target| format!("{}/{}", namespace_of(key), target.name).into()).collect()
}
