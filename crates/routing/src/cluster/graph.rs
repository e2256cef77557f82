//! What depends on what. Each derived value (a [`Node`]) is computed by a function that reads through a [`Reader`]; the
//! reader records what was read ([`Input`]). When an input differs, the nodes that have read it are computed again, in the
//! order of [`Node`], so that each is computed at most once for a change. Nothing has to declare its dependencies, so none
//! can be forgotten. Only the object of a node itself is not recorded: its change marks the node directly (`ingest`).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::view::gateway_api::{BackendTlsPolicy, Gateway, ListenerSet};
use api::view::{Service, StringMap};

use super::change::{CaState, SecretState};
use super::objects::{Map, Objects, RouteObject, namespace_of};
use crate::attach::ParentView;
use crate::listeners::conflicts::Decision;
use crate::listeners::overlap::Host;
use crate::mesh::{self, Mesh};
use crate::model::{Clients, RouteId};
use crate::policies::PolicyVerdict;
use crate::traffic::{self, Target};

/// An object with listeners.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Owner {
    /// A Gateway.
    Gateway(Arc<str>),
    /// A ListenerSet.
    Set(Arc<str>),
}

impl Owner {
    pub(crate) fn key(&self) -> &Arc<str> {
        match self {
            Self::Gateway(key) | Self::Set(key) => key,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Gateway(_) => "Gateway",
            Self::Set(_) => "ListenerSet",
        }
    }
}

/// A value that is derived. Values depend on inputs and on values of earlier variants only.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Node {
    /// The state of a GatewayClass.
    Class(Arc<str>),
    /// What the listeners of a Gateway or of a ListenerSet are, each for itself.
    Listeners(Owner),
    /// What a Gateway or a ListenerSet brings into its group, and what routes see of it.
    Claim(Owner),
    /// Which of its listeners are in conflict with others of the group.
    Conflicts(Owner),
    /// The state of a Gateway or of a ListenerSet, and its listeners that are served.
    Member(Owner),
    /// How many ListenerSets are attached to a Gateway.
    Group(Arc<str>),
    /// Whether a policy holds.
    Verdict(Arc<str>),
    /// A Service as a parent of routes: the kinds of routes at its ports, configuration.
    Mesh(Arc<str>),
    /// The state of a route.
    Route(RouteId),
    /// The state of a policy, with its ancestors.
    Policy(Arc<str>),
    /// The state of a TrafficPolicy, with its ancestors.
    TrafficPolicy(Arc<str>),
}

/// Something that derived values read.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Input {
    /// Whether a GatewayClass is ours, and accepted.
    Accepted(Arc<str>),
    /// Which Gateways name a class.
    GatewaysOf(Arc<str>),
    /// How a Gateway verifies clients.
    Frontend(Arc<str>),
    /// Whether a Gateway is ours, which ListenerSets it allows, and its TrafficPolicies.
    Group(Arc<str>),
    /// What decides conflicts of listeners of a Gateway and of its ListenerSets.
    Decision(Arc<str>, Decision),
    /// Whether an HTTPS listener of a Gateway or of its ListenerSets overlaps with another.
    Overlap(Arc<str>, Host),
    /// Whether a Gateway is accepted, and programmed.
    Standing(Arc<str>),
    /// What routes see of a parent.
    Parent(Owner),
    /// What routes see of a Service that is their parent.
    ServiceParent(Arc<str>),
    /// The kinds of routes at the ports of a Service for one group of clients.
    Kinds(Arc<str>, Clients),
    /// The Services of other namespaces that routes of a namespace have as parents.
    Consumed(Arc<str>),
    /// The labels of a Namespace.
    Namespace(Arc<str>),
    /// The ReferenceGrants of a namespace.
    Grants(Arc<str>),
    /// A Service as a backend.
    Service(Arc<str>),
    /// The addresses of a Service.
    Addresses(Arc<str>),
    /// A Secret.
    Secret(Arc<str>),
    /// A ConfigMap.
    ConfigMap(Arc<str>),
    /// The policies of a Service, TrafficPolicies too.
    PoliciesOf(Arc<str>),
    /// Whether a policy holds.
    Verdict(Arc<str>),
    /// Where the traffic comes in that routes lead to a Service.
    Reach(Arc<str>),
    /// Whether a route exists, its rules, and the Gateways that accept it.
    Route(RouteId),
    /// The TrafficPolicies of an object, for their states.
    TrafficOf(Target),
}

/// Who has read what, in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    readers: Map<Input, BTreeSet<Node>>,
    inputs: Map<Node, Vec<Input>>,
}

impl Graph {
    /// Records what a value was computed from.
    pub(super) fn record(&mut self, node: &Node, mut inputs: Vec<Input>) {
        inputs.sort_unstable();
        inputs.dedup();
        let old = if inputs.is_empty() {
            self.inputs.remove(node).unwrap_or_default()
        } else {
            self.inputs.insert(node.clone(), inputs.clone()).unwrap_or_default()
        };
        for gone in old.iter().filter(|input| inputs.binary_search(input).is_err()) {
            if let Some(readers) = self.readers.get_mut(gone) {
                readers.remove(node);
                if readers.is_empty() {
                    self.readers.remove(gone);
                }
            }
        }
        for come in inputs.into_iter().filter(|input| old.binary_search(input).is_err()) {
            self.readers.entry(come).or_default().insert(node.clone());
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.inputs.is_empty()
    }

    /// The values that have read an input.
    pub(super) fn readers(&self, input: &Input) -> impl Iterator<Item = &Node> {
        self.readers.get(input).into_iter().flatten()
    }
}

/// Reads objects and derived values, and records what was read.
pub(crate) struct Reader<'a> {
    pub(super) objects: &'a Objects,
    pub(super) parents: &'a Map<Owner, Arc<ParentView>>,
    pub(super) meshes: &'a BTreeMap<Arc<str>, Mesh>,
    pub(super) verdicts: &'a Map<Arc<str>, Arc<PolicyVerdict>>,
    pub(super) read: RefCell<Vec<Input>>,
}

impl<'a> Reader<'a> {
    pub(super) fn note(&self, input: Input) {
        self.read.borrow_mut().push(input);
    }

    /// A Gateway, for its own nodes.
    pub(crate) fn gateway(&self, key: &Arc<str>) -> Option<&'a Arc<Gateway>> {
        self.objects.gateways.get(key)
    }

    /// A Gateway, of which only `spec.tls.frontend` may be read.
    pub(crate) fn gateway_for_frontend(&self, key: &Arc<str>) -> Option<&'a Arc<Gateway>> {
        self.note(Input::Frontend(Arc::clone(key)));
        self.objects.gateways.get(key)
    }

    /// A Gateway that is ours, of which only `spec.allowedListeners` may be read, and what routes see of it, of which only
    /// the layers: for its ListenerSets.
    pub(crate) fn gateway_for_sets(&self, key: &Arc<str>) -> Option<(&'a Gateway, &'a ParentView)> {
        self.note(Input::Group(Arc::clone(key)));
        Some((self.objects.gateways.get(key)?, self.parents.get(&Owner::Gateway(Arc::clone(key)))?))
    }

    /// A ListenerSet, for its own nodes.
    pub(crate) fn set(&self, key: &Arc<str>) -> Option<&'a Arc<ListenerSet>> {
        self.objects.sets.get(key)
    }

    /// A route, for its own node.
    pub(crate) fn route(&self, id: &RouteId) -> Option<&'a RouteObject> {
        self.objects.routes.get(id)
    }

    /// What routes see of a parent; none unless it is ours.
    pub(crate) fn parent(&self, owner: &Owner) -> Option<&'a Arc<ParentView>> {
        self.note(Input::Parent(owner.clone()));
        self.parents.get(owner)
    }

    /// A Service as the parent of a route, of which only the kinds for the clients of that route may be read.
    pub(crate) fn service_parent(&self, service: &Arc<str>, route: &RouteId) -> Option<&'a Mesh> {
        self.note(Input::ServiceParent(Arc::clone(service)));
        self.note(Input::Kinds(Arc::clone(service), mesh::clients_of(service, route)));
        self.meshes.get(service)
    }

    /// A Service, for its own node.
    pub(crate) fn service_of_mesh(&self, key: &Arc<str>) -> Option<&'a Arc<Service>> {
        self.objects.services.get(key)
    }

    /// The Services of other namespaces that routes of a namespace name as parents, by name.
    pub(crate) fn consumed(&self, namespace: &Arc<str>) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        self.note(Input::Consumed(Arc::clone(namespace)));
        self.objects.consumed.get(namespace).into_iter().flat_map(|services| services.keys())
    }

    /// The labels of a namespace; none when it does not exist.
    pub(crate) fn namespace(&self, name: &str) -> Option<&'a StringMap> {
        self.note(Input::Namespace(name.into()));
        self.objects.namespaces.get(name)
    }

    /// Whether an object (group, kind, namespace) may refer to another (group, kind, `namespace/name`).
    pub(crate) fn permits(&self, from: (&str, &str, &str), to: (&str, &str, &str)) -> bool {
        let namespace = namespace_of(to.2);
        if from.2 == namespace {
            return true;
        }
        self.note(Input::Grants(namespace.into()));
        let name = super::objects::name_of(to.2);
        let grants = self.objects.grants_of.get(namespace).into_iter().flatten();
        let mut grants = grants.filter_map(|key| self.objects.grants.get(key));
        grants.any(|grant| grant.permits(from, (to.0, to.1, name)))
    }

    /// A Service, of which only the type and the ports may be read.
    pub(crate) fn service(&self, key: &str) -> Option<&'a Arc<Service>> {
        self.note(Input::Service(key.into()));
        self.objects.services.get(key)
    }

    /// A Service, of which only the addresses may be read.
    pub(crate) fn service_for_addresses(&self, key: &str) -> Option<&'a Arc<Service>> {
        self.note(Input::Addresses(key.into()));
        self.objects.services.get(key)
    }

    pub(crate) fn secret(&self, key: &str) -> Option<&'a SecretState> {
        self.note(Input::Secret(key.into()));
        self.objects.secrets.get(key)
    }

    pub(crate) fn config_map(&self, key: &str) -> Option<&'a CaState> {
        self.note(Input::ConfigMap(key.into()));
        self.objects.config_maps.get(key)
    }

    /// A policy, for its own nodes.
    pub(crate) fn policy(&self, key: &Arc<str>) -> Option<&'a Arc<BackendTlsPolicy>> {
        self.objects.policies.get(key)
    }

    /// The policies that name a Service as a target.
    pub(crate) fn policies_of(&self, service: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<BackendTlsPolicy>)> {
        self.note(Input::PoliciesOf(service.into()));
        let objects = self.objects;
        let keys = objects.policies_of.get(service).into_iter().flatten();
        keys.filter_map(|key| Some((key, objects.policies.get(key)?)))
    }

    /// Whether there are TrafficPolicies at all. Whoever depends on it is marked when a policy changes.
    pub(crate) fn has_traffic_policies(&self) -> bool {
        !self.objects.traffic.is_empty()
    }

    /// A TrafficPolicy, for its own node.
    pub(crate) fn traffic_policy(&self, key: &Arc<str>) -> Option<&'a traffic::Stored> {
        self.objects.traffic.get(key).map(|stored| &**stored)
    }

    /// The TrafficPolicy that holds for exactly this target: the oldest, then the first by name. A change of those of a Gateway, a
    /// ListenerSet or a route marks its node directly, so only a Service is recorded.
    pub(crate) fn traffic_for(
        &self,
        target: &Target,
        section: Option<&str>,
    ) -> Option<(&'a Arc<str>, &'a traffic::Stored)> {
        if let Target::Service(key) = target {
            self.note(Input::PoliciesOf(Arc::clone(key)));
        }
        let objects = self.objects;
        let (_, key) = objects.traffic_of.get(target)?.get(section.unwrap_or_default())?.first()?;
        Some((key, &**objects.traffic.get(key)?))
    }

    /// The same for the node of another TrafficPolicy with this target.
    pub(crate) fn traffic_winner(&self, target: &Target, section: Option<&str>) -> Option<&'a Arc<str>> {
        self.note(Input::TrafficOf(target.clone()));
        self.traffic_for(target, section).map(|(key, _)| key)
    }

    /// A route, for the node of a policy that names it.
    pub(crate) fn route_of_policy(&self, id: &RouteId) -> Option<&'a RouteObject> {
        self.note(Input::Route(id.clone()));
        self.objects.routes.get(id)
    }

    /// Whether a policy holds, and what it says.
    pub(crate) fn verdict(&self, policy: &Arc<str>) -> Option<&'a Arc<PolicyVerdict>> {
        self.note(Input::Verdict(Arc::clone(policy)));
        self.verdicts.get(policy)
    }
}
