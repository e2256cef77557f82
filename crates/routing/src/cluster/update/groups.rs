//! Gateways with their ListenerSets. A Gateway may have thousands of sets, so each is derived for itself, from what decides
//! about it; only counts and the list of all listeners belong to the group as a whole.

use std::sync::Arc;

use crate::cluster::change::Touched;
use crate::cluster::claim::{self, Claim, Shared};
use crate::cluster::graph::{Input, Node, Owner, Reader};
use crate::cluster::group::{self, Group, Set};
use crate::cluster::{Cluster, objects};
use crate::listeners::conflicts::Conflict;
use crate::listeners::validity;
use crate::model::{GatewayConfig, ListenerConfig, ListenerId};

impl Cluster {
    pub(super) fn update_listeners(&mut self, node: &Node, owner: &Owner) {
        let new = self.compute(node, |reader, _| validity::judge(reader, owner)).map(Arc::new);
        if objects::store(&mut self.listeners, owner.clone(), new).is_some() {
            self.dirty.insert(Node::Claim(owner.clone()));
        }
    }

    pub(super) fn update_claim(&mut self, node: &Node, owner: &Owner) {
        let read = self.compute(node, |reader, cluster| {
            let accepted = |class: &str| cluster.classes.get(class).map(|class| class.accepted.holds());
            claim::read(reader, owner, accepted, &cluster.listeners)
        });
        let (new, view) = read.map_or((None, None), |(claim, view)| (Some(claim), Some(Arc::new(view))));
        if let Some(change) = objects::store(&mut self.parents, owner.clone(), view) {
            self.fire(&Input::Parent(owner.clone()));
            if let Owner::Gateway(key) = owner
                && change.differs(|view| view.layers.clone())
            {
                self.fire(&Input::Group(Arc::clone(key)));
            }
        }
        let Some(change) = objects::store(&mut self.claims, owner.clone(), new) else { return };
        self.replace_shared((change.old.as_ref(), change.new.as_ref()), |one| &one.gateway, Shared::replace);
        self.dirty.extend([Node::Conflicts(owner.clone()), Node::Member(owner.clone())]);
    }

    pub(super) fn update_conflicts(&mut self, node: &Node, owner: &Owner) {
        let none = Shared::default();
        let new = self.compute(node, |reader, cluster| {
            let claim = cluster.claims.get(owner)?;
            Some(cluster.shared.get(&claim.gateway).unwrap_or(&none).coexistence(reader, claim))
        });
        let Some(change) = objects::store(&mut self.coexistence, owner.clone(), new) else { return };
        self.replace_shared((change.old.as_ref(), change.new.as_ref()), |one| &one.gateway, Shared::replace_hosts);
        self.dirty.insert(Node::Member(owner.clone()));
    }

    /// Replaces what an object has in its group, or moves it to another group.
    fn replace_shared<T>(
        &mut self,
        change: (Option<&T>, Option<&T>),
        gateway: fn(&T) -> &Arc<str>,
        replace: fn(&mut Shared, Option<&T>, Option<&T>) -> Vec<Input>,
    ) {
        let is_move = change.0.zip(change.1).is_some_and(|(old, new)| gateway(old) != gateway(new));
        let steps = if is_move { vec![(change.0, None), (None, change.1)] } else { vec![change] };
        for (old, new) in steps {
            let Some(key) = old.or(new).map(gateway) else { continue };
            let shared = self.shared.entry(Arc::clone(key)).or_default();
            let differing = replace(shared, old, new);
            if shared.is_empty() {
                self.shared.remove(key);
            }
            differing.iter().for_each(|input| self.fire(input));
        }
    }

    pub(super) fn update_gateway(&mut self, node: &Node, key: &Arc<str>, touched: &mut Touched) {
        let owner = Owner::Gateway(Arc::clone(key));
        let old = self.groups.remove(key);
        let new = self.compute(node, |reader, cluster| {
            let claim = cluster.claims.get(&owner)?;
            let (conflicts, overlaps) = cluster.coexistence_of(reader, &owner, claim);
            let accepted = |class: &str| cluster.classes.get(class).is_some_and(|class| class.accepted.holds());
            let facts = group::read(reader, claim, accepted)?;
            let count = |listener: &ListenerId| cluster.count(&listener.clone().into());
            Some(group::judge(&facts, (conflicts, overlaps), old.as_ref(), count))
        });
        if old.as_ref().map(|group| &group.state) != new.as_ref().map(|group| &group.state) {
            touched.gateways.insert(Arc::clone(key));
        }
        if old.as_ref().map(Group::standing) != new.as_ref().map(Group::standing) {
            self.fire(&Input::Standing(Arc::clone(key)));
        }
        let own = |group: Option<&Group>| group.and_then(|group| group.own.clone());
        let (before, after) = (own(old.as_ref()), own(new.as_ref()));
        if before != after {
            let configs =
                |own: &Option<Arc<GatewayConfig>>| own.as_ref().map_or_else(Vec::new, |own| own.listeners.clone());
            note_listeners(&configs(&before), &configs(&after), touched);
            touched.configs.insert(Arc::clone(key));
        }
        if let Some(group) = new {
            self.groups.insert(Arc::clone(key), group);
            self.dirty.insert(Node::Group(Arc::clone(key)));
        }
    }

    pub(super) fn update_set(&mut self, node: &Node, key: &Arc<str>, touched: &mut Touched) {
        let owner = Owner::Set(Arc::clone(key));
        let old = self.sets.remove(key);
        let new = self.compute(node, |reader, cluster| {
            let claim = cluster.claims.get(&owner)?;
            reader.note(Input::Standing(Arc::clone(&claim.gateway)));
            let standing = cluster.groups.get(&claim.gateway)?.standing();
            let (conflicts, overlaps) = cluster.coexistence_of(reader, &owner, claim);
            let count = |listener: &ListenerId| cluster.count(&listener.clone().into());
            Some(group::set(key, claim, (conflicts, overlaps), standing, old.as_ref(), count))
        });
        if old.as_ref().map(|set| &set.state) != new.as_ref().map(|set| &set.state) {
            touched.sets.insert(Arc::clone(key));
        }
        let configs = |set: Option<&Set>| set.map_or_else(Vec::new, |set| set.configs.clone());
        let (before, after) = (configs(old.as_ref()), configs(new.as_ref()));
        if before != after {
            note_listeners(&before, &after, touched);
            for config in before.iter().chain(&after) {
                if let Some(group) = self.groups.get_mut(&config.id.gateway) {
                    group.config.take();
                }
                touched.configs.insert(Arc::clone(&config.id.gateway));
            }
        }
        self.recount_sets(old.as_ref(), new.as_ref());
        if let Some(set) = new {
            self.sets.insert(Arc::clone(key), set);
        }
    }

    /// Counts the attached sets of Gateways again.
    fn recount_sets(&mut self, old: Option<&Set>, new: Option<&Set>) {
        let attached =
            |set: Option<&Set>| set.filter(|set| set.state.accepted.holds()).map(|set| Arc::clone(&set.state.gateway));
        let (before, after) = (attached(old), attached(new));
        if before == after {
            return;
        }
        if let Some(gateway) = before
            && let Some(count) = self.attached_sets.get_mut(&gateway)
        {
            *count -= 1;
            if *count == 0 {
                self.attached_sets.remove(&gateway);
            }
            self.dirty.insert(Node::Group(gateway));
        }
        if let Some(gateway) = after {
            *self.attached_sets.entry(Arc::clone(&gateway)).or_default() += 1;
            self.dirty.insert(Node::Group(gateway));
        }
    }

    /// Writes the number of attached sets into the state of their Gateway.
    pub(super) fn count_sets(&mut self, key: &Arc<str>, touched: &mut Touched) {
        let count = self.attached_sets.get(key).copied().unwrap_or_default();
        let state = self.groups.get_mut(key).map(|group| &mut group.state);
        if let Some(state) = state.filter(|state| state.attached_sets != count) {
            state.attached_sets = count;
            touched.gateways.insert(Arc::clone(key));
        }
    }

    /// The conflicts of the listeners of an object, and which of them overlap with others.
    fn coexistence_of(&self, reader: &Reader<'_>, owner: &Owner, claim: &Claim) -> (Vec<Option<Conflict>>, Vec<bool>) {
        let (Some(coexistence), shared) = (self.coexistence.get(owner), self.shared.get(&claim.gateway)) else {
            return (Vec::new(), Vec::new());
        };
        let none = Shared::default();
        (coexistence.conflicts.clone(), shared.unwrap_or(&none).overlaps(reader, claim, coexistence))
    }
}

/// Notes the listeners whose settings differ.
fn note_listeners(old: &[Arc<ListenerConfig>], new: &[Arc<ListenerConfig>], touched: &mut Touched) {
    let differs = |one: &&Arc<ListenerConfig>, others: &[Arc<ListenerConfig>]| !others.contains(one);
    let gone = old.iter().filter(|config| differs(config, new));
    let come = new.iter().filter(|config| differs(config, old));
    touched.listeners.extend(gone.chain(come).map(|config| config.id.clone()));
}
