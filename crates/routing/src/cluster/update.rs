//! Derives values again, in the order of [`Node`], and notes what differs.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::change::Touched;
use super::graph::{Input, Node, Owner, Reader};
use super::routes::{self, RouteEntry};
use super::state::PolicyState;
use super::{Cluster, objects};
use crate::model::{Place, RouteId};
use crate::traffic::{self, Target};
use crate::{classes, policies};

impl Cluster {
    /// Marks everything that has read an input.
    pub(super) fn fire(&mut self, input: &Input) {
        self.dirty.extend(self.graph.readers(input).cloned());
    }

    /// Derives all marked values again.
    pub(super) fn propagate(&mut self) -> Touched {
        let mut touched = Touched::default();
        while let Some(node) = self.dirty.pop_first() {
            match &node {
                Node::Class(name) => self.update_class(&node, name, &mut touched),
                Node::Listeners(owner) => self.update_listeners(&node, owner),
                Node::Claim(owner) => self.update_claim(&node, owner),
                Node::Conflicts(owner) => self.update_conflicts(&node, owner),
                Node::Member(Owner::Gateway(key)) => self.update_gateway(&node, key, &mut touched),
                Node::Member(Owner::Set(key)) => self.update_set(&node, key, &mut touched),
                Node::Group(key) => self.count_sets(key, &mut touched),
                Node::Verdict(key) => self.update_verdict(&node, key),
                Node::Mesh(key) => self.update_mesh(&node, key, &mut touched),
                Node::Route(id) => self.update_route(&node, id, &mut touched),
                Node::Policy(key) => self.update_policy(&node, key, &mut touched),
                Node::TrafficPolicy(key) => self.update_traffic_policy(&node, key, &mut touched),
            }
        }
        touched
    }

    /// Computes a value and records what it has read.
    pub(super) fn compute<T>(&mut self, node: &Node, value: impl FnOnce(&Reader<'_>, &Self) -> T) -> T {
        let reader = Reader {
            objects: &self.objects,
            parents: &self.parents,
            meshes: &self.meshes,
            verdicts: &self.verdicts,
            read: Vec::new().into(),
        };
        let value = value(&reader, self);
        let read = reader.read.take();
        #[cfg(test)]
        {
            self.derived += 1;
        }
        self.graph.record(node, read);
        value
    }

    fn update_class(&mut self, node: &Node, name: &Arc<str>, touched: &mut Touched) {
        let new = self.compute(node, |reader, cluster| {
            let class = cluster.objects.classes.get(name)?;
            reader.note(Input::GatewaysOf(Arc::clone(name)));
            let is_used = cluster.objects.gateways_of.contains_key(name);
            classes::judge(class, is_used, &cluster.options.bundle_version)
        });
        let accepted = new.as_ref().map(|class| class.accepted.holds());
        let old = match new.clone() {
            Some(state) => self.classes.insert(Arc::clone(name), state),
            None => self.classes.remove(name),
        };
        if old != new {
            touched.classes.insert(Arc::clone(name));
        }
        if old.map(|class| class.accepted.holds()) != accepted {
            self.fire(&Input::Accepted(Arc::clone(name)));
        }
    }

    fn update_verdict(&mut self, node: &Node, key: &Arc<str>) {
        let new = self.compute(node, |reader, _| policies::judge(reader, key)).map(Arc::new);
        if objects::store(&mut self.verdicts, Arc::clone(key), new).is_some() {
            self.fire(&Input::Verdict(Arc::clone(key)));
        }
    }

    fn update_policy(&mut self, node: &Node, key: &Arc<str>, touched: &mut Touched) {
        let new = self.compute(node, |reader, cluster| {
            let policy = reader.policy(key)?;
            let verdict = reader.verdict(key)?;
            let mut ancestors = BTreeSet::new();
            for service in objects::target_services(key, policy) {
                ancestors.extend(cluster.reach.get(&service).into_iter().flat_map(|by| by.keys().cloned()));
                reader.note(Input::Reach(service));
            }
            Some(PolicyState {
                generation: policy.metadata.generation,
                ancestors: ancestors.into_iter().collect(),
                accepted: verdict.accepted.clone(),
                resolved_refs: verdict.resolved_refs.clone(),
            })
        });
        if objects::store(&mut self.policies, Arc::clone(key), new).is_some() {
            touched.policies.insert(Arc::clone(key));
        }
    }

    fn update_traffic_policy(&mut self, node: &Node, key: &Arc<str>, touched: &mut Touched) {
        let new = self.compute(node, |reader, cluster| {
            traffic::judge(reader, key, |target| match target {
                Target::Service(service) => {
                    reader.note(Input::Reach(Arc::clone(service)));
                    cluster.reach.get(service).into_iter().flat_map(|by| by.keys().cloned()).collect()
                }
                Target::Route(id) => {
                    reader.note(Input::Route(id.clone()));
                    cluster.routes.get(id).map(|entry| routes::ancestors(&entry.state)).unwrap_or_default()
                }
                Target::Gateway(_) | Target::Set(_) => BTreeSet::new(),
            })
        });
        if objects::store(&mut self.traffic_policies, Arc::clone(key), new).is_some() {
            touched.traffic_policies.insert(Arc::clone(key));
        }
    }

    fn update_route(&mut self, node: &Node, id: &RouteId, touched: &mut Touched) {
        let old = self.routes.remove(id);
        let new = self.compute(node, |reader, _| routes::judge(reader, id, old.as_ref()));
        if old.as_ref().map(|entry| &entry.state) != new.as_ref().map(|entry| &entry.state) {
            touched.routes.insert(id.clone());
        }
        self.reattach(id, old.as_ref(), new.as_ref(), touched);
        let reach = |entry: Option<&RouteEntry>| entry.map(|entry| entry.reach.clone()).unwrap_or_default();
        self.count_reach(&reach(old.as_ref()), &reach(new.as_ref()));
        let ancestors = |entry: &RouteEntry| routes::ancestors(&entry.state);
        if old.as_ref().map(ancestors) != new.as_ref().map(ancestors) {
            self.fire(&Input::Route(id.clone()));
        }
        if let Some(new) = new {
            self.routes.insert(id.clone(), new);
        }
    }

    /// Moves a route between the lists of places, and counts.
    fn reattach(&mut self, id: &RouteId, old: Option<&RouteEntry>, new: Option<&RouteEntry>, touched: &mut Touched) {
        let content = |entry: Option<&RouteEntry>, place: &Place| {
            let state = entry?.at(place);
            Some((state.rules.clone(), state.stream.clone(), Arc::clone(&state.created)))
        };
        let places = |entry: Option<&RouteEntry>| entry.map(|entry| entry.attached.clone()).unwrap_or_default();
        let (before, after) = (places(old), places(new));
        for place in before.keys().filter(|place| !after.contains_key(*place)) {
            if let Some(routes) = self.attached.get_mut(place) {
                routes.remove(id);
                if routes.is_empty() {
                    self.attached.remove(place);
                }
            }
            self.count_attached(place, touched);
            note_route(place, id, touched);
        }
        for (place, hostnames) in &after {
            let previous = self.attached.entry(place.clone()).or_default().insert(id.clone(), Arc::clone(hostnames));
            if previous.is_none() {
                self.count_attached(place, touched);
            }
            let policies = |entry: Option<&RouteEntry>| entry.and_then(|entry| entry.policies.get(place).cloned());
            let is_same = content(old, place) == content(new, place);
            if !is_same || previous.as_ref() != Some(hostnames) || policies(old) != policies(new) {
                note_route(place, id, touched);
            }
        }
    }

    /// The number of routes of a place.
    fn count(&self, place: &Place) -> usize {
        self.attached.get(place).map_or(0, BTreeMap::len)
    }

    /// Writes the number of attached routes of a listener into the state.
    fn count_attached(&mut self, place: &Place, touched: &mut Touched) {
        let Some(listener) = place.listener() else { return };
        let count = self.count(place);
        let states = match &listener.set {
            Some(set) => self.sets.get_mut(set).map(|set| &mut set.state.listeners),
            None => self.groups.get_mut(&listener.gateway).map(|group| &mut group.state.listeners),
        };
        let own = states.into_iter().flatten().filter(|state| state.id == *listener);
        for state in own.filter(|state| state.attached_routes != count) {
            state.attached_routes = count;
            match &listener.set {
                Some(set) => touched.sets.insert(Arc::clone(set)),
                None => touched.gateways.insert(Arc::clone(&listener.gateway)),
            };
        }
    }

    /// Counts by how many routes Services are reached, and as their own backends.
    pub(super) fn count_reach(&mut self, before: &BTreeSet<routes::Reach>, after: &BTreeSet<routes::Reach>) {
        for (service, ancestor) in before.difference(after) {
            let Some(by) = self.reach.get_mut(service) else { continue };
            let Some(count) = by.get_mut(ancestor) else { continue };
            *count -= 1;
            if *count == 0 {
                by.remove(ancestor);
                if by.is_empty() {
                    self.reach.remove(service);
                }
                self.fire(&Input::Reach(Arc::clone(service)));
            }
        }
        for (service, ancestor) in after.difference(before) {
            let count = self.reach.entry(Arc::clone(service)).or_default().entry(ancestor.clone()).or_default();
            *count += 1;
            if *count == 1 {
                self.fire(&Input::Reach(Arc::clone(service)));
            }
        }
    }
}

fn note_route(place: &Place, id: &RouteId, touched: &mut Touched) {
    touched.listeners.extend(place.listener().cloned());
    touched.route_changes.insert((place.clone(), id.clone()));
}
