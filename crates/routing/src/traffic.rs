//! TrafficPolicies: what each says, which of them hold for a rule at a listener, and the state that says so.
//!
//! In: TrafficPolicies, and the Gateways, ListenerSets, routes and Services that they name. Out: a [`Policy`](crate::policy::Policy)
//! for each rule of a route at each of its listeners, and one for each backend with settings of its own.
//!
//! A field of a more specific target replaces the whole field of a less specific one of the same owner:
//!
//! | owner | targets, the most specific first |
//! |---|---|
//! | Gateway | listener of the Gateway, Gateway |
//! | ListenerSet | listener of the set, set |
//! | route | rule, route |
//! | Service | port, Service |
//!
//! Between owners there are two kinds of fields. *Restrictions* (who may send requests, how many, how long) hold in addition
//! to each other: those of the Gateway, of the ListenerSet and of the route. Nobody with a route can loosen those of the
//! Gateway. *Settings* (timeouts, balancing, sessions) are those of the Service, else of the route, of the ListenerSet, of the
//! Gateway. A Service has settings only.
//!
//! Of several policies with the same target, the older one holds, then the first by name. A policy with a restriction that
//! cannot be understood closes its targets.

mod compile;
mod fields;
mod layers;
mod verdict;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::view::TrafficPolicy;
use api::view::gateway_api::{GROUP, PolicyTarget};

use crate::cluster::objects::namespace_of;
use crate::model::{RouteId, RouteKind};

pub(crate) use compile::Compiled;
pub(crate) use layers::{Layer, OwnerLayers, RoutePolicies, effective, of_backend, of_gateway, of_route, of_set};
pub(crate) use verdict::judge;

/// A stored TrafficPolicy, with what it says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Stored {
    pub(crate) policy: Arc<TrafficPolicy>,
    pub(crate) compiled: Compiled,
}

impl Stored {
    pub(crate) fn new(key: &str, policy: Arc<TrafficPolicy>) -> Self {
        let compiled = Compiled::new(namespace_of(key), &policy.spec);
        Self { policy, compiled }
    }
}

/// An object that policies are attached to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    Gateway(Arc<str>),
    Set(Arc<str>),
    Route(RouteId),
    Service(Arc<str>),
}

impl Target {
    /// The object that a reference of a policy names; none for a kind that cannot be a target.
    pub(crate) fn of(policy: &str, reference: &PolicyTarget) -> Option<Self> {
        let key = || format!("{}/{}", namespace_of(policy), reference.name).into();
        let route = |kind| Self::Route(RouteId { kind, key: key() });
        match (&*reference.group, &*reference.kind) {
            (GROUP, "Gateway") => Some(Self::Gateway(key())),
            (GROUP, "ListenerSet") => Some(Self::Set(key())),
            (GROUP, "HTTPRoute") => Some(route(RouteKind::Http)),
            (GROUP, "GRPCRoute") => Some(route(RouteKind::Grpc)),
            ("", "Service") => Some(Self::Service(key())),
            _ => None,
        }
    }

    /// Its group and kind.
    pub(crate) const fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::Gateway(_) => (GROUP, "Gateway"),
            Self::Set(_) => (GROUP, "ListenerSet"),
            Self::Route(id) => (GROUP, id.kind.name()),
            Self::Service(_) => ("", "Service"),
        }
    }

    /// `namespace/name`.
    pub(crate) const fn key(&self) -> &Arc<str> {
        match self {
            Self::Gateway(key) | Self::Set(key) | Self::Service(key) => key,
            Self::Route(id) => &id.key,
        }
    }
}

/// The section of a target; none for the whole object.
pub(crate) fn section_of(reference: &PolicyTarget) -> Option<&str> {
    reference.section_name.as_deref().filter(|section| !section.is_empty())
}

/// The objects that a policy is attached to.
pub(crate) fn targets(key: &str, policy: &TrafficPolicy) -> BTreeSet<Target> {
    policy.spec.target_refs.iter().filter_map(|reference| Target::of(key, reference)).collect()
}
