//! The incremental engine: objects flow in one by one, states and configurations are derived, and every change says what
//! it has altered. A change costs what depends on it, not the size of the cluster.

mod change;
mod claim;
mod graph;
mod group;
mod ingest;
mod mesh;
pub(crate) mod objects;
mod routes;
mod state;
mod update;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::view::gateway_api::ParentRef;

pub use crate::attach::{NotAttached, Placement};
pub use crate::references::not_permitted;
pub use change::{CaState, Change, SecretState, Touched};
pub use state::{
    Address, Ancestor, ClassState, GatewayState, ListenerSetState, ListenerState, ParentState, PolicyState, RouteState,
    TrafficPolicyState, Tri, Verdict,
};

pub(crate) use graph::{Owner, Reader};

use crate::attach::{Candidate, ParentView};
use crate::listeners::validity::Listeners;
use crate::mesh::{Mesh, PortPlacement};
use crate::model::{GatewayConfig, MeshConfig, Place, RouteId};
use crate::policies::PolicyVerdict;
use crate::traffic;
use claim::{Claim, Coexistence, Shared};
use graph::{Graph, Node};
use group::{Group, Set};
use objects::{Map, Objects};
use routes::RouteEntry;

/// Settings of a [`Cluster`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The version of the installed definitions: annotation `gateway.networking.k8s.io/bundle-version`.
    pub bundle_version: Box<str>,
}

impl Default for Options {
    fn default() -> Self {
        Self { bundle_version: BUNDLE_VERSION.into() }
    }
}

/// The version of the API that is implemented.
pub const BUNDLE_VERSION: &str = "v1.7.0";

/// Hostnames of a route that intersect with that of a listener.
type Hostnames = Arc<[Arc<str>]>;

/// Objects, and everything that is derived from them.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    options: Options,
    objects: Objects,
    graph: Graph,
    /// What has to be derived again.
    dirty: BTreeSet<Node>,
    classes: BTreeMap<Arc<str>, ClassState>,
    listeners: Map<Owner, Arc<Listeners>>,
    claims: Map<Owner, Claim>,
    coexistence: Map<Owner, Coexistence>,
    /// What the listeners of a Gateway and of its ListenerSets share, by Gateway.
    shared: Map<Arc<str>, Shared>,
    groups: BTreeMap<Arc<str>, Group>,
    sets: Map<Arc<str>, Set>,
    /// How many ListenerSets are attached to each Gateway.
    attached_sets: Map<Arc<str>, usize>,
    parents: Map<Owner, Arc<ParentView>>,
    verdicts: Map<Arc<str>, Arc<PolicyVerdict>>,
    routes: Map<RouteId, RouteEntry>,
    /// Services that are named as parents, or that opt in to layer 7.
    meshes: BTreeMap<Arc<str>, Mesh>,
    /// The routes of each place, with the hostnames that intersect.
    attached: Map<Place, BTreeMap<RouteId, Hostnames>>,
    /// Where the traffic comes in that routes lead to a Service, each with the number of routes that do.
    reach: Map<Arc<str>, BTreeMap<Ancestor, usize>>,
    policies: Map<Arc<str>, PolicyState>,
    traffic_policies: Map<Arc<str>, TrafficPolicyState>,
    /// How many values were derived: the cost of changes.
    #[cfg(test)]
    derived: usize,
}

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Applies a change. What differs afterwards is returned.
    pub fn apply(&mut self, change: Change) -> Touched {
        self.ingest(change);
        self.propagate()
    }

    /// Applies changes as one: states in between are never derived. Faster than one by one for a first list.
    pub fn apply_all(&mut self, changes: impl IntoIterator<Item = Change>) -> Touched {
        for change in changes {
            self.ingest(change);
        }
        self.propagate()
    }

    /// Whether nothing is kept, in any index.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let Self { options: _, objects, graph, dirty, classes, listeners, groups, sets, parents, .. } = self;
        let derived = classes.is_empty() && listeners.is_empty() && groups.is_empty() && sets.is_empty();
        let shared = self.claims.is_empty() && self.coexistence.is_empty() && self.shared.is_empty();
        let routes =
            self.routes.is_empty() && self.meshes.is_empty() && self.attached.is_empty() && self.reach.is_empty();
        let policies = self.verdicts.is_empty() && self.policies.is_empty() && self.traffic_policies.is_empty();
        objects.is_empty()
            && graph.is_empty()
            && dirty.is_empty()
            && parents.is_empty()
            && derived
            && shared
            && self.attached_sets.is_empty()
            && routes
            && policies
    }

    /// The state of a GatewayClass; none unless it is ours.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&ClassState> {
        self.classes.get(name)
    }

    /// The state of a Gateway; none unless its class is ours.
    #[must_use]
    pub fn gateway(&self, key: &str) -> Option<&GatewayState> {
        self.groups.get(key).map(|group| &group.state)
    }

    /// The state of a ListenerSet; none unless its Gateway is ours.
    #[must_use]
    pub fn listener_set(&self, key: &str) -> Option<&ListenerSetState> {
        self.sets.get(key).map(|set| &set.state)
    }

    /// The state of a route; every route that exists has one.
    #[must_use]
    pub fn route(&self, id: &RouteId) -> Option<&RouteState> {
        self.routes.get(id).map(|entry| &entry.state)
    }

    /// What becomes of a route at each listener of a parent, for diagnosis; nothing where the parent is not ours.
    #[must_use]
    pub fn placements(&self, id: &RouteId, reference: &ParentRef) -> Vec<Placement> {
        let find = || {
            let object = self.objects.routes.get(id)?;
            let namespace = objects::namespace_of(&id.key);
            let view = self.parents.get(&routes::owner(reference, namespace)?)?;
            let hostnames = routes::hostnames(object, id);
            let candidate = Candidate { kind: id.kind, namespace, hostnames: &hostnames };
            let labels = |namespace: &str| self.objects.namespaces.get(namespace);
            Some(crate::attach::placements(view, reference, &candidate, labels))
        };
        find().unwrap_or_default()
    }

    /// What becomes of a route at each TCP port of a Service that is its parent, for diagnosis; nothing where the Service cannot
    /// be one.
    #[must_use]
    pub fn port_placements(&self, id: &RouteId, reference: &ParentRef) -> Vec<PortPlacement> {
        let find = || {
            let service: Arc<str> = reference.key(objects::namespace_of(&id.key)).into();
            let contender = self.objects.contenders.get(&service)?.get(id)?;
            let mesh = self.meshes.get(&service)?;
            Some(crate::mesh::placements(mesh, &service, reference, id, contender.is_refused))
        };
        find().filter(|_| reference.is_service()).unwrap_or_default()
    }

    /// The state of a BackendTLSPolicy; every policy that exists has one.
    #[must_use]
    pub fn policy(&self, key: &str) -> Option<&PolicyState> {
        self.policies.get(key)
    }

    /// The state of a TrafficPolicy; every policy that exists has one.
    #[must_use]
    pub fn traffic_policy(&self, key: &str) -> Option<&TrafficPolicyState> {
        self.traffic_policies.get(key)
    }

    /// The state of a route as it is at a place, where that differs from its own state: with what TrafficPolicies say about it
    /// there (`policy` of its rules, of their backends and of its stream rule), and at Services with references that need no
    /// ReferenceGrant. None when there is no such route, or no difference.
    #[must_use]
    pub fn with_policies(&self, place: &Place, route: &RouteId) -> Option<RouteState> {
        let entry = self.routes.get(route)?;
        let state = entry.at(place);
        match entry.policies.get(place) {
            Some(policies) => Some(traffic::effective(state, policies)),
            None => (!std::ptr::eq(state, &raw const entry.state)).then(|| state.clone()),
        }
    }

    /// The programmed listeners of a Gateway; none unless it is ours and accepted.
    #[must_use]
    pub fn config(&self, gateway: &str) -> Option<Arc<GatewayConfig>> {
        let (key, group) = self.groups.get_key_value(gateway)?;
        self.config_of(key, group).cloned()
    }

    /// The configurations of all Gateways.
    pub fn configs(&self) -> impl Iterator<Item = &Arc<GatewayConfig>> {
        self.groups.iter().filter_map(|(key, group)| self.config_of(key, group))
    }

    fn config_of<'a>(&'a self, key: &Arc<str>, group: &'a Group) -> Option<&'a Arc<GatewayConfig>> {
        let sets = self.objects.sets_of.get(key).into_iter().flatten().filter_map(|set| self.sets.get(set));
        group.config(sets.filter(|set| set.state.gateway == *key).flat_map(|set| &set.configs))
    }

    /// The ports of a Service that are served at layer 7; none if none is.
    #[must_use]
    pub fn mesh(&self, service: &str) -> Option<Arc<MeshConfig>> {
        self.meshes.get(service)?.config.clone()
    }

    /// All Services with ports that are served at layer 7.
    pub fn mesh_configs(&self) -> impl Iterator<Item = &Arc<MeshConfig>> {
        self.meshes.values().filter_map(|mesh| mesh.config.as_ref())
    }

    /// The routes that are attached to a place, each with its rules as they are there, but without policies, and with those of its
    /// hostnames that intersect with that of the listener (none: all hosts), whatever the state of the listener is.
    pub fn attached<'a>(
        &'a self,
        place: &Place,
    ) -> impl Iterator<Item = (&'a RouteId, &'a RouteState, &'a [Arc<str>])> + use<'a> {
        let routes = self.attached.get(place).into_iter().flatten();
        let is_service = place.service_port().is_some();
        routes.filter_map(move |(id, hostnames)| {
            let entry = self.routes.get(id)?;
            Some((id, if is_service { entry.in_mesh() } else { &entry.state }, &**hostnames))
        })
    }
}

/// Name of the Service of a Gateway: `NAME-waypost`, with a hash where the name of the Gateway is too long for a Service,
/// or has a dot or a digit at its start.
#[must_use]
pub fn service_name(gateway: &str) -> String {
    const SUFFIX: &str = "-waypost";
    const LONGEST: usize = 63;
    let starts_with_letter = gateway.starts_with(|first: char| first.is_ascii_lowercase());
    if gateway.len() + SUFFIX.len() <= LONGEST && starts_with_letter && !gateway.contains('.') {
        return format!("{gateway}{SUFFIX}");
    }
    let hash = format!("{:08x}", api::hash::fnv1a32(gateway.as_bytes()));
    let prefix = if starts_with_letter { "" } else { "gateway-" };
    let kept = format!("{prefix}{}", gateway.replace('.', "-"));
    let kept = kept.get(..LONGEST - SUFFIX.len() - hash.len() - 1).unwrap_or(&kept);
    format!("{}-{hash}{SUFFIX}", kept.trim_end_matches('-'))
}
