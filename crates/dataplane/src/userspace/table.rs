//! Keeps the redirect tables in sync with a plan.
//!
//! In: a plan, and the relay ports of its Service ports. Out: one batch of changes. Chains are static, so only elements
//! change; a table that differs otherwise is replaced.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use api::ip::Family;
use kernel::nft::{Batch, Chain, Change, Dump, Key, Name, Set, Value};
use plan::{Plan, PortKey, Touched};

use crate::nft::redirect::{self, Elements, TABLE};
use crate::nft::{FAMILIES, kernel_family};

/// Tables as written.
#[derive(Debug, Default)]
pub(super) struct Tables {
    ports: HashMap<PortKey, Elements>,
    node_elements: BTreeMap<Family, Elements>,
    cluster_ips: BTreeSet<IpAddr>,
}

/// Elements before and after.
type Pairs = BTreeMap<(&'static str, Key), (Option<Value>, Option<Value>)>;

/// Elements of each Service port.
pub(super) type PortElements = HashMap<PortKey, Elements>;

impl Tables {
    /// Tables for a plan.
    pub(super) fn of(plan: &Plan, ports: PortElements) -> Self {
        let node_elements = FAMILIES.map(|family| (family, redirect::node_elements(plan, family)));
        Self { ports, node_elements: node_elements.into(), cluster_ips: plan.cluster_ips.keys().copied().collect() }
    }

    /// Changes that correct the kernel's table of a family.
    pub(super) fn reconcile(&self, plan: &Plan, family: Family, have: Option<Dump>, trusted: bool) -> Batch {
        let (chains, mut sets) = (redirect::chains(&plan.options, family), redirect::sets());
        let tag = redirect::tag(&chains);
        let ports = self.ports.iter().filter(|(key, _)| key.family == family).map(|(_, elements)| elements);
        for ((set, key), value) in ports.chain(self.node_elements.get(&family)).flatten() {
            if let Some(set) = sets.get_mut(*set) {
                set.elements.insert(key.clone(), value.clone());
            }
        }
        for ip in self.cluster_ips.iter().filter(|ip| Family::of(**ip) == family) {
            let (set, key) = redirect::cluster_ip(*ip);
            sets.entry(set.into()).or_default().elements.insert(key, Value::Nothing);
        }
        match have {
            Some(have) if trusted && fits(&have, &tag, &chains, &sets) => reconcile_elements(family, have, &sets),
            have => make(family, have.is_some(), &tag, chains, sets),
        }
    }

    /// Changes for a plan in which ports or node data changed. `now` has the elements of the changed ports.
    pub(super) fn update(&self, plan: &Plan, touched: &Touched, now: &PortElements) -> Batch {
        let mut changes = Vec::new();
        for family in FAMILIES {
            let nothing = Elements::new();
            let mut pairs: Pairs = BTreeMap::new();
            for key in touched.ports.iter().filter(|key| key.family == family) {
                for (place, value) in self.ports.get(key).unwrap_or(&nothing) {
                    pairs.entry(place.clone()).or_default().0 = Some(value.clone());
                }
                for (place, value) in now.get(key).unwrap_or(&nothing) {
                    pairs.entry(place.clone()).or_default().1 = Some(value.clone());
                }
            }
            let (before, after) =
                (self.node_elements.get(&family).unwrap_or(&nothing), redirect::node_elements(plan, family));
            let value = |is: bool| is.then_some(Value::Nothing);
            for place in before.keys().chain(after.keys()) {
                pairs.insert(place.clone(), (value(before.contains_key(place)), value(after.contains_key(place))));
            }
            for ip in touched.cluster_ips.iter().filter(|ip| Family::of(**ip) == family) {
                let used = (value(self.cluster_ips.contains(ip)), value(plan.cluster_ips.contains_key(ip)));
                pairs.insert(redirect::cluster_ip(*ip), used);
            }
            changes.extend(write(family, pairs));
        }
        Batch { changes }
    }

    /// Records that the changes were written.
    pub(super) fn commit(&mut self, plan: &Plan, touched: &Touched, mut now: PortElements) {
        for family in FAMILIES {
            self.node_elements.insert(family, redirect::node_elements(plan, family));
        }
        for ip in &touched.cluster_ips {
            if plan.cluster_ips.contains_key(ip) {
                self.cluster_ips.insert(*ip)
            } else {
                self.cluster_ips.remove(ip)
            };
        }
        for key in &touched.ports {
            match now.remove(key) {
                Some(elements) => drop(self.ports.insert(key.clone(), elements)),
                None => drop(self.ports.remove(key)),
            }
        }
    }

    /// Changes that stop all redirects and reject instead where possible.
    pub(super) fn retire(&self) -> Batch {
        let mut changes = Vec::new();
        for family in FAMILIES {
            let ours = self.ports.iter().filter(|(key, _)| key.family == family).flat_map(|(_, elements)| elements);
            let pairs = ours.filter(|((set, _), _)| redirect::REDIRECTING.contains(set));
            let pairs = pairs.map(|(place, value)| (place.clone(), (Some(value.clone()), None)));
            changes.extend(write(family, pairs.collect()));
        }
        Batch { changes }
    }
}

/// Whether only elements differ.
fn fits(have: &Dump, tag: &str, chains: &BTreeMap<Name, Chain>, sets: &BTreeMap<Name, Set>) -> bool {
    let found = |(name, chain): (&Name, &Chain)| {
        have.chains.get(name).is_some_and(|found| found.base == chain.base && found.rules == chain.rules.len())
    };
    have.tag == tag
        && have.chains.len() == chains.len()
        && chains.iter().all(found)
        && have.sets.len() == sets.len()
        && sets.iter().all(|(name, set)| have.sets.get(name).is_some_and(|there| there.bare() == set.bare()))
}

fn reconcile_elements(family: Family, have: Dump, sets: &BTreeMap<Name, Set>) -> Batch {
    let mut changes = Vec::new();
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (name, there) in have.sets {
        let Some(set) = sets.get(&name) else { continue };
        let wrong = |key: &&Key| set.elements.get(*key) != there.elements.get(*key);
        let keys: Vec<Key> = there.elements.keys().filter(wrong).cloned().collect();
        let missing = set.elements.iter().filter(|(key, _)| wrong(key));
        let missing: Vec<(Key, Value)> = missing.map(|(key, value)| (key.clone(), value.clone())).collect();
        gone.push((name.clone(), keys));
        new.push((name, missing));
    }
    changes.extend(lists(family, gone, new));
    Batch { changes }
}

fn make(family: Family, replace: bool, tag: &str, chains: BTreeMap<Name, Chain>, sets: BTreeMap<Name, Set>) -> Batch {
    let (of, table) = (kernel_family(family), || Name::from(TABLE));
    let mut changes = Vec::new();
    if replace {
        changes.push(Change::DeleteTable(of, table()));
    }
    changes.push(Change::AddTable(of, table(), tag.to_owned()));
    changes.extend(sets.iter().map(|(name, set)| Change::AddSet(of, table(), name.clone(), set.bare())));
    changes.extend(chains.iter().map(|(name, chain)| Change::AddChain(of, table(), name.clone(), chain.base)));
    changes.extend(chains.into_iter().map(|(name, chain)| Change::AddRules(of, table(), name, chain.rules)));
    let elements = sets.into_iter().map(|(name, set)| (name, set.elements.into_iter().collect()));
    changes.extend(lists(family, Vec::new(), elements.collect()));
    Batch { changes }
}

fn write(family: Family, pairs: Pairs) -> Vec<Change> {
    let mut gone: BTreeMap<Name, Vec<Key>> = BTreeMap::new();
    let mut new: BTreeMap<Name, Vec<(Key, Value)>> = BTreeMap::new();
    for ((set, key), (before, after)) in pairs.into_iter().filter(|(_, (before, after))| before != after) {
        if before.is_some() {
            gone.entry(set.into()).or_default().push(key.clone());
        }
        if let Some(value) = after {
            new.entry(set.into()).or_default().push((key, value));
        }
    }
    lists(family, gone.into_iter().collect(), new.into_iter().collect())
}

/// Deletions before additions; empty lists are skipped.
fn lists(family: Family, gone: Vec<(Name, Vec<Key>)>, new: Vec<(Name, Vec<(Key, Value)>)>) -> Vec<Change> {
    let (of, table) = (kernel_family(family), || Name::from(TABLE));
    let gone = gone.into_iter().filter(|(_, keys)| !keys.is_empty());
    let gone = gone.map(|(set, keys)| Change::DeleteElements(of, table(), set, keys));
    let new = new.into_iter().filter(|(_, elements)| !elements.is_empty());
    let new = new.map(|(set, elements)| Change::AddElements(of, table(), set, elements));
    gone.chain(new).collect()
}
