//! The state of a route.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::view::gateway_api::ParentRef;

use super::Hostnames;
use super::graph::{Owner, Reader};
use super::objects::{RouteObject, namespace_of};
use super::state::{Ancestor, ParentState, RouteState, Verdict};
use crate::attach::{self, Attached, Candidate, ParentView};
use crate::mesh::{self, Mesh};
use crate::model::{ListenerId, Place, RouteId, RouteKind, Rule, StreamRule};
use crate::references::{Resolver, Terms};
use crate::rules::{self, Rules};
use crate::traffic::{self, RoutePolicies};

/// A route, with what indexes are made from.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RouteEntry {
    pub(super) state: RouteState,
    /// The state with the rules as Services apply them, where a route has both sorts of parents and the rules differ.
    mesh: Option<RouteState>,
    /// By all of its parents together.
    pub(super) attached: BTreeMap<Place, Hostnames>,
    /// Services that it leads to, each with where that traffic comes in.
    pub(super) reach: BTreeSet<Reach>,
    /// What TrafficPolicies say about it at each place; those where nothing holds are left out.
    pub(super) policies: BTreeMap<Place, Arc<RoutePolicies>>,
}

/// A Service that is reached, and where that traffic comes in.
pub(super) type Reach = (Arc<str>, Ancestor);

impl RouteEntry {
    /// The state with the rules as Services apply them.
    pub(super) fn in_mesh(&self) -> &RouteState {
        self.mesh.as_ref().unwrap_or(&self.state)
    }

    /// The state with the rules as they are at a place.
    pub(super) fn at(&self, place: &Place) -> &RouteState {
        if place.service_port().is_some() { self.in_mesh() } else { &self.state }
    }
}

/// Judges a route; none when it does not exist. Rules that are equal to those of `old` are shared with it.
pub(super) fn judge(reader: &Reader<'_>, id: &RouteId, old: Option<&RouteEntry>) -> Option<RouteEntry> {
    let object = reader.route(id)?;
    let hostnames = hostnames(object, id);
    let candidate = Candidate { kind: id.kind, namespace: namespace_of(&id.key), hostnames: &hostnames };
    let parents = parents(reader, id, object, &candidate);
    let mut entry = RouteEntry {
        state: RouteState {
            generation: object.metadata().generation,
            created: (&*object.metadata().creation_timestamp).into(),
            parents: Vec::new(),
            rules: Arc::new([]),
            stream: None,
        },
        mesh: None,
        attached: BTreeMap::new(),
        reach: BTreeSet::new(),
        policies: BTreeMap::new(),
    };
    if parents.is_empty() {
        return Some(entry);
    }
    let resolve = |hostnames: &[Arc<str>], terms| {
        resolve(id, object, hostnames, Resolver::new(reader, id.kind, candidate.namespace, terms))
    };
    let has = |is_service| parents.iter().any(|(_, parent)| matches!(parent, Parent::Service { .. }) == is_service);
    let at_gateways =
        has(false).then(|| resolve(&hostnames, Terms { tls_policies: has_policies(id.kind, &parents), grants: true }));
    // There, hostnames do not choose a route, and references need no grants.
    let in_mesh = has(true).then(|| resolve(&[], Terms { tls_policies: reads_http(id.kind), grants: false }));
    let known: Vec<&RouteState> = old.iter().flat_map(|old| [&old.state, old.in_mesh()]).collect();
    let first = at_gateways.as_ref().or(in_mesh.as_ref())?;
    first.put_into(&mut entry.state, &known);
    let mut services = entry.state.clone();
    if let Some(resolved) = &in_mesh {
        let known: Vec<&RouteState> = std::iter::once(&entry.state).chain(known).collect();
        resolved.put_into(&mut services, &known);
    }
    for (reference, parent) in &parents {
        let (resolved, state) = match parent {
            Parent::Gateway { .. } => (at_gateways.as_ref()?, &entry.state),
            Parent::Service { .. } => (in_mesh.as_ref()?, &services),
        };
        let parent_state = parent.state(id, reference, resolved);
        for (place, _) in &parent_state.places {
            let found = traffic::of_route(reader, id, state, parent.layer(place));
            entry.policies.extend(found.map(|found| (place.clone(), found)));
        }
        if parent_state.accepted.holds() {
            let reach = resolved.services.iter().map(|service| (Arc::clone(service), parent_state.ancestor.clone()));
            entry.reach.extend(reach);
        }
        entry.state.parents.push(parent_state);
    }
    for (place, hostnames) in entry.state.parents.iter().flat_map(|parent| &parent.places) {
        entry.attached.entry(place.clone()).or_insert_with(|| hostnames.clone().into());
    }
    if (&services.rules, &services.stream) != (&entry.state.rules, &entry.state.stream) {
        entry.mesh = Some(RouteState { parents: entry.state.parents.clone(), ..services });
    }
    Some(entry)
}

/// The rules of a route, with references resolved as one sort of parents applies them.
struct Resolved {
    /// Those of an HTTPRoute or a GRPCRoute.
    rules: Rules,
    stream: Option<StreamRule>,
    /// The Services that permitted references name.
    services: BTreeSet<Arc<str>>,
    /// Condition `ResolvedRefs`.
    resolved_refs: Verdict,
}

fn resolve(id: &RouteId, object: &RouteObject, hostnames: &[Arc<str>], mut resolver: Resolver<'_, '_>) -> Resolved {
    let (rules, stream) = match object {
        RouteObject::Http(route) => (rules::http(id, &route.spec.rules, &mut resolver), None),
        RouteObject::Grpc(route) => (rules::grpc(id, &route.spec.rules, &mut resolver), None),
        RouteObject::Stream(route) => (Rules::default(), rules::stream(id, route, hostnames, &mut resolver)),
    };
    let resolved_refs = resolver.verdict();
    Resolved { rules, stream, services: resolver.services, resolved_refs }
}

impl Resolved {
    /// Puts the rules into a state. Those that are equal to known ones keep their place in memory, so that the tables that
    /// have them need no change.
    fn put_into(&self, state: &mut RouteState, known: &[&RouteState]) {
        let same = |rule: &Rule| known.iter().flat_map(|known| known.rules.iter()).find(|known| ***known == *rule);
        let share = |rule: &Rule| same(rule).cloned().unwrap_or_else(|| Arc::new(rule.clone()));
        let rules: Vec<_> = self.rules.rules.iter().map(share).collect();
        let all = known.iter().map(|known| &known.rules).find(|known| ***known == *rules);
        state.rules = all.cloned().unwrap_or_else(|| rules.into());
        let mut streams = known.iter().filter_map(|known| known.stream.as_ref());
        state.stream = self.stream.as_ref().map(|rule| {
            let same = streams.find(|known| ***known == *rule);
            same.cloned().unwrap_or_else(|| Arc::new(rule.clone()))
        });
    }
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

/// A parent of a route that is ours.
enum Parent<'a> {
    /// A Gateway or a ListenerSet, and the listeners that the reference leads to.
    Gateway { view: &'a ParentView, outcome: Result<Attached, Verdict> },
    /// A Service.
    Service { key: Arc<str>, mesh: &'a Mesh },
}

impl Parent<'_> {
    /// The state of a route at this parent.
    fn state(&self, id: &RouteId, reference: &ParentRef, resolved: &Resolved) -> ParentState {
        let refusal = resolved.rules.refusal();
        let (ancestor, outcome) = match self {
            Self::Gateway { view, outcome } => {
                let listeners = outcome.clone().and_then(|all| refusal.clone().map_or(Ok(all), Err));
                let place = |(listener, hostnames): (ListenerId, Vec<Arc<str>>)| (Place::from(listener), hostnames);
                (Ancestor::gateway(&view.gateway), listeners.map(|all| all.into_iter().map(place).collect()))
            }
            Self::Service { key, mesh } => {
                let ports = mesh::judge(mesh, key, reference, id, refusal.as_ref());
                let places = ports.map(|all| all.into_iter().map(|port| (port.into(), Vec::new())).collect());
                (Ancestor::service(key), places)
            }
        };
        let (accepted, places) = match outcome {
            Ok(places) => (Verdict::good("Accepted", "The route is accepted"), places),
            Err(why) => (why, Vec::new()),
        };
        ParentState {
            parent_ref: reference.clone(),
            ancestor,
            accepted,
            resolved_refs: resolved.resolved_refs.clone(),
            partially_invalid: resolved.rules.partially_invalid().filter(|_| refusal.is_none()),
            places,
        }
    }

    /// The TrafficPolicies that hold at a place for all of its routes.
    fn layer(&self, place: &Place) -> Option<&Arc<traffic::Layer>> {
        match (self, place) {
            (Self::Gateway { view, .. }, Place::Listener(listener)) => {
                view.layers.as_ref()?.of_listener(&listener.name)
            }
            _ => None,
        }
    }
}

/// The references to parents that are ours: Gateways and ListenerSets of our classes, and Services.
fn parents<'a>(
    reader: &Reader<'a>,
    id: &RouteId,
    object: &'a RouteObject,
    candidate: &Candidate<'_>,
) -> Vec<(&'a ParentRef, Parent<'a>)> {
    let parent = |reference: &'a ParentRef| {
        if reference.is_service() {
            let key = reference.key(candidate.namespace).into();
            let mesh = reader.service_parent(&key, id)?;
            return Some((reference, Parent::Service { key, mesh }));
        }
        let view = reader.parent(&owner(reference, candidate.namespace)?)?;
        let outcome = attach::judge(view, reference, candidate, |name| reader.namespace(name));
        Some((reference, Parent::Gateway { view, outcome }))
    };
    object.parent_refs().iter().filter_map(parent).collect()
}

/// The object with listeners that a reference to a parent names; none for other kinds.
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

const fn reads_http(kind: RouteKind) -> bool {
    matches!(kind, RouteKind::Http | RouteKind::Grpc | RouteKind::Ingress)
}

/// Whether BackendTLSPolicies apply at Gateways: not to bytes that are passed on as they are.
fn has_policies(kind: RouteKind, parents: &[(&ParentRef, Parent<'_>)]) -> bool {
    let ends_tls = |parent: &Parent<'_>| {
        let Parent::Gateway { view, outcome: Ok(listeners) } = parent else { return false };
        let ends_tls = |id: &ListenerId| view.listeners.iter().any(|one| one.id == *id && !one.is_passthrough);
        listeners.iter().any(|(id, _)| ends_tls(id))
    };
    reads_http(kind) || kind == RouteKind::Tls && parents.iter().any(|(_, parent)| ends_tls(parent))
}
