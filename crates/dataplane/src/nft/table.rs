//! A complete table: its desired content, and the changes that turn the kernel's table into it.
//!
//! Used at start and for repair, when the kernel state is unknown. There may be some hundred thousand elements, so they
//! are moved, not copied, and the dump is consumed by the comparison.

use std::collections::BTreeMap;

use api::hash::fnv1a64;
use api::ip::Family;
use kernel::nft::{Chain, Dump, Key, Name, Set, Value};
use plan::Plan;

use super::delta::{Changes, Delta, Writer};
use super::elements::address_key;
use super::ruleset::{self, CLUSTER_IPS};
use super::shapes::Shape;
use super::table_kind::TableKind;

/// Increment when chains or sets change their meaning.
const VERSION: u32 = 2;

/// Desired content of a table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    kind: TableKind,
    pub(super) tag: String,
    pub(super) chains: BTreeMap<Name, Chain>,
    /// All sets. Only those private to one Service port include elements.
    pub(super) sets: BTreeMap<Name, Set>,
    /// Elements of the sets that always exist, each once.
    pub(super) elements: BTreeMap<&'static str, Vec<(Key, Value)>>,
}

/// How far existing rules are trusted; rules cannot be read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// A chain is correct if it has the expected number of rules.
    RuleCount,
    /// Rewrite all rules.
    None,
}

impl Table {
    /// The table without Services.
    pub(super) fn bare(kind: TableKind, plan: &Plan, family: Family) -> Self {
        let mut chains = kind.chains(&plan.options, family);
        let detector = ruleset::detector(&plan.options, family);
        chains.extend(kind.prepared().map(|shape| (shape.name(), shape.chain(detector))));
        let mut table = Self { kind, tag: tag(&chains), chains, sets: kind.sets(), elements: BTreeMap::new() };
        let used = plan.cluster_ips.keys().filter(|ip| Family::of(**ip) == family);
        let used = used.map(|ip| (CLUSTER_IPS, address_key(*ip)));
        for (set, key) in ruleset::node_elements(plan, family).into_iter().chain(used) {
            table.put(set, key, Value::Nothing);
        }
        table
    }

    /// Adds an element of a set that always exists.
    pub(crate) fn put(&mut self, set: &'static str, key: Key, value: Value) {
        self.elements.entry(set).or_default().push((key, value));
    }

    /// The changes that turn the kernel's table into this one, and unused chains that may stay. A table of another
    /// version, or with a chain or set of another type, is replaced.
    pub(crate) fn reconcile(self, family: Family, have: Option<Dump>, trust: Trust) -> (Changes, Vec<Shape>) {
        let mut changes = Changes::default();
        let replace = have.is_some();
        let Some(mut have) = have.filter(|have| self.fits(have)) else {
            self.make(family, replace, &mut changes);
            return (changes, Vec::new());
        };
        let left: Vec<Shape> = if trust == Trust::RuleCount { self.left(&have) } else { Vec::new() };
        for shape in &left {
            have.chains.remove(&shape.name());
        }
        let mut delta = Delta::default();
        for (name, found) in &have.chains {
            delta.chains.entry(name.clone()).or_default().0 = Some(Chain { base: found.base, rules: Vec::new() });
        }
        for (name, set) in &have.sets {
            delta.sets.entry(name.clone()).or_default().0 = Some(set.bare());
        }
        for (name, chain) in &self.chains {
            delta.chains.entry(name.clone()).or_default().1 = Some(chain.clone());
        }
        for (name, set) in &self.sets {
            let pair = delta.sets.entry(name.clone()).or_default();
            // The elements of sets that exist are compared below.
            pair.1 = Some(if pair.0.is_some() { set.bare() } else { set.clone() });
        }
        delta.write(self.kind, family, &mut changes);
        let mut writer = Writer::new(self.kind, family, &mut changes);
        for (name, chain) in self.chains {
            let found = have.chains.get(&name);
            if found.is_some_and(|found| trust == Trust::None || found.rules != chain.rules.len()) {
                writer.flush_chain(&name);
                writer.add_rules(&name, chain.rules);
            }
        }
        let mut elements = self.elements;
        for (name, set) in self.sets.into_iter().filter(|(_, set)| set.timeout.is_none()) {
            if let Some(there) = have.sets.remove(&name) {
                let mut wanted: Vec<(Key, Value)> = set.elements.into_iter().collect();
                wanted.append(&mut elements.remove(&*name).unwrap_or_default());
                reconcile_elements(&name, there, wanted, &mut writer);
            }
        }
        // Missing sets were created empty.
        for (name, wanted) in elements {
            writer.add_elements(name, wanted);
        }
        (changes, left)
    }

    /// Unused chains that may stay.
    fn left(&self, have: &Dump) -> Vec<Shape> {
        let unneeded = have.chains.iter().filter(|(name, _)| !self.chains.contains_key(*name));
        // Chains of kept shapes have one rule.
        unneeded
            .filter(|(_, found)| found.base.is_none() && found.rules == 1)
            .filter_map(|(name, _)| Shape::kept_from_name(name))
            .collect()
    }

    /// Creates everything, replacing an existing table.
    fn make(self, family: Family, replace: bool, changes: &mut Changes) {
        Writer::new(self.kind, family, changes).make_table(&self.tag, replace);
        let mut delta = Delta::default();
        delta.chains.extend(self.chains.into_iter().map(|(name, chain)| (name, (None, Some(chain)))));
        delta.sets.extend(self.sets.into_iter().map(|(name, set)| (name, (None, Some(set)))));
        delta.write(self.kind, family, changes);
        // A table that is replaced has no earlier state: everything goes into one transaction.
        changes.commit.changes.append(&mut changes.prepare.changes);
        let mut writer = Writer::new(self.kind, family, changes);
        for (name, elements) in self.elements {
            writer.add_elements(name, elements);
        }
    }

    /// Whether the table can be corrected in place.
    fn fits(&self, have: &Dump) -> bool {
        let chain = |(name, found): (&Name, &kernel::nft::ChainState)| {
            self.chains.get(name).is_none_or(|chain| chain.base == found.base)
        };
        let set = |(name, set): (&Name, &Set)| self.sets.get(name).is_none_or(|wanted| wanted.bare() == set.bare());
        have.tag == self.tag && have.chains.iter().all(chain) && have.sets.iter().all(set)
    }
}

/// Deletes surplus elements and adds missing ones; a changed value is both.
fn reconcile_elements(name: &str, mut have: Set, wanted: Vec<(Key, Value)>, writer: &mut Writer<'_>) {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (key, value) in wanted {
        match have.elements.remove(&key) {
            Some(there) if there == value => continue,
            Some(_) => gone.push(key.clone()),
            None => {}
        }
        new.push((key, value));
    }
    gone.extend(have.elements.into_keys());
    writer.delete_elements(name, gone);
    writer.add_elements(name, new);
}

/// Identifies the version and the options that are part of the rules.
fn tag(chains: &BTreeMap<Name, Chain>) -> String {
    let sum = fnv1a64(format!("{chains:?}").as_bytes());
    format!("waypost {VERSION} {sum:016x}")
}
