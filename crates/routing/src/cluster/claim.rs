//! What a Gateway or a ListenerSet brings into its group: which listeners count, and in which order of precedence. And
//! which of these listeners can live together.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::graph::{Input, Owner, Reader};
use super::objects::{Map, gateway_of_set, namespace_of};
use crate::attach::{ParentView, allows_set};
use crate::listeners::conflicts::{Conflict, Needs, Ports, Precedence, Slot};
use crate::listeners::overlap::{Host, Overlaps};
use crate::listeners::validity::{Listeners, Validity};
use crate::model::ListenerProtocol;
use crate::traffic;

/// What an object brings into its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    /// `namespace/name` of the Gateway.
    pub(super) gateway: Arc<str>,
    pub(super) precedence: Precedence,
    pub(super) generation: i64,
    /// Whether the Gateway allows it: otherwise none of its listeners count.
    pub(super) is_allowed: bool,
    pub(super) listeners: Arc<Listeners>,
}

impl Claim {
    /// The listeners that count.
    pub(super) fn list(&self) -> &[Validity] {
        if self.is_allowed { &self.listeners.list } else { &[] }
    }

    fn slots(&self) -> Vec<Slot> {
        self.list().iter().filter_map(slot).collect()
    }
}

fn slot(listener: &Validity) -> Option<Slot> {
    let protocol = listener.protocol?;
    Some(Slot { protocol, port: listener.port, hostname: listener.hostname.clone() })
}

/// Reads what an object brings into its group, and what routes see of it; none unless its Gateway exists and is ours.
pub(super) fn read(
    reader: &Reader<'_>,
    owner: &Owner,
    class_accepted: impl Fn(&str) -> Option<bool>,
    listeners: &Map<Owner, Arc<Listeners>>,
) -> Option<(Claim, ParentView)> {
    let listeners = Arc::clone(listeners.get(owner)?);
    let (claim, layers) = match owner {
        Owner::Gateway(key) => {
            let gateway = reader.gateway(key)?;
            let class = &gateway.spec.gateway_class_name;
            reader.note(Input::Accepted((&**class).into()));
            class_accepted(class)?;
            let layers = traffic::of_gateway(reader, key, &listeners.views);
            let generation = gateway.metadata.generation;
            let (gateway, precedence) = (Arc::clone(key), Precedence::Gateway);
            (Claim { gateway, precedence, generation, is_allowed: true, listeners }, layers)
        }
        Owner::Set(key) => {
            let set = reader.set(key)?;
            let gateway = gateway_of_set(key, set)?;
            let (object, around) = reader.gateway_for_sets(&gateway)?;
            let labels = |namespace: &str| reader.namespace(namespace);
            let allowed = &object.spec.allowed_listeners;
            let is_allowed = allows_set(allowed, namespace_of(&gateway), namespace_of(key), labels);
            let layers = traffic::of_set(reader, key, &listeners.views, around.layers.as_deref());
            let created = (&*set.metadata.creation_timestamp).into();
            let precedence = Precedence::Set { created, key: Arc::clone(key) };
            (Claim { gateway, precedence, generation: set.metadata.generation, is_allowed, listeners }, layers)
        }
    };
    let view = ParentView {
        gateway: Arc::clone(&claim.gateway),
        is_allowed: claim.is_allowed,
        listeners: Arc::clone(&claim.listeners.views),
        layers,
    };
    Some((claim, view))
}

/// How the listeners of an object coexist with others of its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Coexistence {
    pub(super) gateway: Arc<str>,
    /// In the order of the listeners that count.
    pub(super) conflicts: Vec<Option<Conflict>>,
    /// Its HTTPS listeners that are not in conflict.
    hosts: BTreeSet<Host>,
}

/// What listeners of a group share.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    ports: Ports,
    overlaps: Overlaps,
}

impl Shared {
    pub(super) fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.overlaps.is_empty()
    }

    /// Replaces what an object brings into this group; what decides about others and differs.
    pub(super) fn replace(&mut self, old: Option<&Claim>, new: Option<&Claim>) -> Vec<Input> {
        let Some(gateway) = old.or(new).map(|claim| &claim.gateway) else { return Vec::new() };
        let (before, after) = (old.map(Claim::slots), new.map(Claim::slots));
        let decisions = self.ports.replace(needs(old, before.as_deref()), needs(new, after.as_deref()));
        decisions.into_iter().map(|decision| Input::Decision(Arc::clone(gateway), decision)).collect()
    }

    /// The same with its HTTPS listeners that are not in conflict.
    pub(super) fn replace_hosts(&mut self, old: Option<&Coexistence>, new: Option<&Coexistence>) -> Vec<Input> {
        let Some(gateway) = old.or(new).map(|one| &one.gateway) else { return Vec::new() };
        let none = BTreeSet::new();
        let hosts = |one: Option<&'_ Coexistence>| one.map_or(&none, |one| &one.hosts).clone();
        let (old, new) = (hosts(old), hosts(new));
        let gone: Vec<Host> = old.difference(&new).flat_map(|host| self.overlaps.remove(host)).collect();
        let come = new.difference(&old).flat_map(|host| self.overlaps.insert(host));
        gone.into_iter().chain(come).map(|host| Input::Overlap(Arc::clone(gateway), host)).collect()
    }

    /// How the listeners of an object of this group coexist with the others.
    pub(super) fn coexistence(&self, reader: &Reader<'_>, claim: &Claim) -> Coexistence {
        let note = |decision| reader.note(Input::Decision(Arc::clone(&claim.gateway), decision));
        let conflict = |listener| self.ports.conflict(&claim.precedence, &slot(listener)?, note);
        let conflicts: Vec<_> = claim.list().iter().map(conflict).collect();
        let hosts = claim.list().iter().zip(&conflicts).filter_map(host).collect();
        Coexistence { gateway: Arc::clone(&claim.gateway), conflicts, hosts }
    }

    /// Which listeners of an object of this group overlap with another one.
    pub(super) fn overlaps(&self, reader: &Reader<'_>, claim: &Claim, coexistence: &Coexistence) -> Vec<bool> {
        let is_overlapping = |host: Host| {
            reader.note(Input::Overlap(Arc::clone(&claim.gateway), host.clone()));
            self.overlaps.is_overlapping(&host)
        };
        let listeners = claim.list().iter().zip(&coexistence.conflicts);
        listeners.map(|listener| host(listener).is_some_and(is_overlapping)).collect()
    }
}

fn needs<'a>(claim: Option<&'a Claim>, slots: Option<&'a [Slot]>) -> Option<Needs<'a>> {
    Some((&claim?.precedence, slots?))
}

/// The port and hostname of an HTTPS listener that is not in conflict.
fn host((listener, conflict): (&Validity, &Option<Conflict>)) -> Option<Host> {
    let is_https = listener.protocol == Some(ListenerProtocol::Https) && conflict.is_none();
    is_https.then(|| (listener.port, listener.hostname.clone()))
}
