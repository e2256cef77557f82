//! The state of a route.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::view::gateway_api::ParentRef;

use super::Hostnames;
use super::graph::{Owner, Reader};
use super::objects::{RouteObject, namespace_of};
use super::state::{Ancestor, ParentState, RouteState, Verdict};
use crate::attach::{self, Attached, Candidate, ParentView};
use crate::model::{ListenerId, Place, RouteId, RouteKind, Rule, StreamRule};
use crate::references::Resolver;
use crate::rules::{self, Rules};
use crate::traffic::{self, RoutePolicies};

/// A route, with what indexes are made from.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RouteEntry {
    pub(super) state: RouteState,
    /// By all of its parents together.
    pub(super) attached: BTreeMap<Place, Hostnames>,
    /// Services that it leads to, each with where that traffic comes in.
    pub(super) reach: BTreeSet<(Arc<str>, Ancestor)>,
    /// What TrafficPolicies say about it at each place; those where nothing holds are left out.
    pub(super) policies: BTreeMap<Place, Arc<RoutePolicies>>,
}

/// Judges a route; none when it does not exist. Rules that are equal to those of `old` are shared with it.
pub(super) fn judge(reader: &Reader<'_>, id: &RouteId, old: Option<&RouteState>) -> Option<RouteEntry> {
    let object = reader.route(id)?;
    let metadata = object.metadata();
    let hostnames = hostnames(object, id);
    let candidate = Candidate { kind: id.kind, namespace: namespace_of(&id.key), hostnames: &hostnames };
    let judged = parents(reader, object, &candidate);
    let mut state = RouteState {
        generation: metadata.generation,
        created: (&*metadata.creation_timestamp).into(),
        parents: Vec::new(),
        rules: Arc::new([]),
        stream: None,
    };
    if judged.is_empty() {
        let (attached, reach, policies) = Default::default();
        return Some(RouteEntry { state, attached, reach, policies });
    }
    let mut resolver = Resolver::new(reader, id.kind, candidate.namespace, has_policies(id.kind, &judged));
    let (found, stream) = match object {
        RouteObject::Http(route) => (rules::http(id, &route.spec.rules, &mut resolver), None),
        RouteObject::Grpc(route) => (rules::grpc(id, &route.spec.rules, &mut resolver), None),
        RouteObject::Stream(route) => (Rules::default(), rules::stream(id, route, &hostnames, &mut resolver)),
    };
    let (refusal, partially_invalid) = (found.refusal(), found.partially_invalid());
    state.rules = share(found.rules, old);
    state.stream = share_stream(stream, old);
    let resolved_refs = resolver.verdict();
    let mut policies = BTreeMap::new();
    for (parent_ref, view, outcome) in judged {
        let outcome = outcome.and_then(|listeners| refusal.clone().map_or(Ok(listeners), Err));
        let (accepted, listeners) = match outcome {
            Ok(listeners) => (Verdict::good("Accepted", "The route is accepted"), listeners),
            Err(why) => (why, Vec::new()),
        };
        for (listener, _) in &listeners {
            let layer = view.layers.as_ref().and_then(|layers| layers.of_listener(&listener.name));
            let found = traffic::of_route(reader, id, &state, layer);
            policies.extend(found.map(|found| (listener.clone().into(), found)));
        }
        state.parents.push(ParentState {
            parent_ref: parent_ref.clone(),
            ancestor: Ancestor::gateway(&view.gateway),
            accepted,
            resolved_refs: resolved_refs.clone(),
            partially_invalid: partially_invalid.clone().filter(|_| refusal.is_none()),
            places: listeners.into_iter().map(|(listener, hostnames)| (listener.into(), hostnames)).collect(),
        });
    }
    Some(RouteEntry { policies, ..index(state, &resolver.services) })
}

/// Where the traffic comes in that a route takes.
pub(super) fn ancestors(state: &RouteState) -> BTreeSet<Ancestor> {
    let accepting = state.parents.iter().filter(|parent| parent.accepted.holds());
    accepting.map(|parent| parent.ancestor.clone()).collect()
}

/// The hostnames of a route, in lower case.
pub(super) fn hostnames(object: &RouteObject, id: &RouteId) -> Vec<Arc<str>> {
    object.hostnames(id.kind).iter().map(|host| host.to_ascii_lowercase().into()).collect()
}

type JudgedParent<'a> = (&'a ParentRef, &'a Arc<ParentView>, Result<Attached, Verdict>);

/// Judges the references to parents that are ours. Services are not among them: routes of a mesh are not handled yet.
fn parents<'a>(reader: &Reader<'a>, object: &'a RouteObject, candidate: &Candidate<'_>) -> Vec<JudgedParent<'a>> {
    let judge = |reference: &'a ParentRef| {
        let view = reader.parent(&owner(reference, candidate.namespace)?)?;
        let outcome = attach::judge(view, reference, candidate, |name| reader.namespace(name));
        Some((reference, view, outcome))
    };
    object.parent_refs().iter().filter_map(judge).collect()
}

/// The object that a reference to a parent names; none for kinds that are not handled.
pub(super) fn owner(reference: &ParentRef, namespace: &str) -> Option<Owner> {
    let key = || reference.key(namespace).into();
    if reference.is("Gateway") {
        Some(Owner::Gateway(key()))
    } else if reference.is("ListenerSet") {
        Some(Owner::Set(key()))
    } else {
        None
    }
}

/// Whether BackendTLSPolicies apply: not to bytes that are passed on as they are.
fn has_policies(kind: RouteKind, parents: &[JudgedParent<'_>]) -> bool {
    match kind {
        RouteKind::Http | RouteKind::Grpc | RouteKind::Ingress => true,
        RouteKind::Tcp | RouteKind::Udp => false,
        RouteKind::Tls => parents.iter().any(|(_, view, outcome)| {
            let ends_tls = |id: &ListenerId| view.listeners.iter().any(|one| one.id == *id && !one.is_passthrough);
            outcome.as_ref().is_ok_and(|listeners| listeners.iter().any(|(id, _)| ends_tls(id)))
        }),
    }
}

/// Unchanged rules keep their place in memory, so that the tables that have them need no change.
fn share(rules: Vec<Rule>, old: Option<&RouteState>) -> Arc<[Arc<Rule>]> {
    let old_rules = old.map(|old| &old.rules);
    let same = |rule: &Rule| old_rules?.iter().find(|old| ***old == *rule).cloned();
    let shared: Vec<_> = rules.into_iter().map(|rule| same(&rule).unwrap_or_else(|| Arc::new(rule))).collect();
    match old_rules {
        Some(old) if **old == *shared => Arc::clone(old),
        _ => shared.into(),
    }
}

fn share_stream(stream: Option<StreamRule>, old: Option<&RouteState>) -> Option<Arc<StreamRule>> {
    let stream = stream?;
    let same = old.and_then(|old| old.stream.clone()).filter(|old| **old == stream);
    Some(same.unwrap_or_else(|| Arc::new(stream)))
}

fn index(state: RouteState, services: &BTreeSet<Arc<str>>) -> RouteEntry {
    let mut attached: BTreeMap<Place, Hostnames> = BTreeMap::new();
    let mut reach = BTreeSet::new();
    for parent in &state.parents {
        for (place, hostnames) in &parent.places {
            attached.entry(place.clone()).or_insert_with(|| hostnames.clone().into());
        }
        if parent.accepted.holds() {
            reach.extend(services.iter().map(|service| (Arc::clone(service), parent.ancestor.clone())));
        }
    }
    RouteEntry { state, attached, reach, policies: BTreeMap::new() }
}
