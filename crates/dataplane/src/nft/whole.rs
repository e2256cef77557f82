//! A whole table: what it should hold, and what to change in one that is there so that it does.
//!
//! This is the way of a start and of a repair, when nothing is known of the kernel. There may be some hundred thousand
//! elements, so they are moved, not copied, and what was read from the kernel is used up by the comparison.

use std::collections::BTreeMap;

use api::ip::Family;
use kernel::nft::{Chain, Dump, Key, Name, Set, Value};
use plan::Plan;

use super::delta::{Changes, Delta, Writer};
use super::elements::address_key;
use super::ruleset::{self, CLUSTER_IPS};
use super::shapes::Shape;
use super::style::Style;

/// Raised whenever chains or sets change their meaning.
const VERSION: u32 = 2;

/// What a table should hold.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    style: Style,
    pub(super) tag: String,
    pub(super) chains: BTreeMap<Name, Chain>,
    /// All sets; with elements only those that one Service port has for itself.
    pub(super) sets: BTreeMap<Name, Set>,
    /// The elements of the sets that are always there, each once.
    pub(super) elements: BTreeMap<&'static str, Vec<(Key, Value)>>,
}

/// How far rules are trusted that cannot be read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// They are what they should be if there are as many as there should be.
    Counted,
    /// All are written anew.
    Nothing,
}

impl Whole {
    /// The table without any Service.
    pub(super) fn bare(style: Style, plan: &Plan, family: Family) -> Self {
        let mut chains = style.chains(&plan.options, family);
        let detector = ruleset::detector(&plan.options, family);
        chains.extend(style.prepared().map(|shape| (shape.name(), shape.chain(detector))));
        let mut whole = Self { style, tag: tag(&chains), chains, sets: style.sets(), elements: BTreeMap::new() };
        let used = plan.cluster_ips.keys().filter(|ip| Family::of(**ip) == family);
        let used = used.map(|ip| (CLUSTER_IPS, address_key(*ip)));
        for (set, key) in ruleset::surroundings(plan, family).into_iter().chain(used) {
            whole.put(set, key, Value::Nothing);
        }
        whole
    }

    /// Adds an element of a set that is always there.
    pub(crate) fn put(&mut self, set: &'static str, key: Key, value: Value) {
        self.elements.entry(set).or_default().push((key, value));
    }

    /// The changes that make the kernel's table this one, and the chains that are there without need and may stay. A table of
    /// another version is replaced in one piece, and so is one whose chains or sets somebody made anew in another form.
    pub(crate) fn correct(self, family: Family, have: Option<Dump>, trust: Trust) -> (Changes, Vec<Shape>) {
        let mut changes = Changes::default();
        let replace = have.is_some();
        let Some(mut have) = have.filter(|have| self.fits(have)) else {
            self.make(family, replace, &mut changes);
            return (changes, Vec::new());
        };
        let left: Vec<Shape> = if trust == Trust::Counted { self.left(&have) } else { Vec::new() };
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
            delta.sets.entry(name.clone()).or_default().1 = Some(set.clone());
        }
        delta.write(self.style, family, &mut changes);
        let mut writer = Writer::new(self.style, family, &mut changes);
        for (name, chain) in self.chains {
            let found = have.chains.get(&name);
            if found.is_some_and(|found| trust == Trust::Nothing || found.rules != chain.rules.len()) {
                writer.flush_chain(&name);
                writer.add_rules(&name, chain.rules);
            }
        }
        let mut elements = self.elements;
        for (name, set) in self.sets.into_iter().filter(|(_, set)| set.timeout.is_none()) {
            if let Some(there) = have.sets.remove(&name) {
                let mut wanted: Vec<(Key, Value)> = set.elements.into_iter().collect();
                wanted.append(&mut elements.remove(&*name).unwrap_or_default());
                correct_elements(&name, there, wanted, &mut writer);
            }
        }
        // Sets that were missing have been made empty.
        for (name, wanted) in elements {
            writer.add_elements(name, wanted);
        }
        (changes, left)
    }

    /// Chains that nobody needs and that may stay.
    fn left(&self, have: &Dump) -> Vec<Shape> {
        let unneeded = have.chains.iter().filter(|(name, _)| !self.chains.contains_key(*name));
        // All of these have one rule.
        unneeded
            .filter(|(_, found)| found.base.is_none() && found.rules == 1)
            .filter_map(|(name, _)| Shape::staying(name))
            .collect()
    }

    /// Makes everything, in the place of what is there.
    fn make(self, family: Family, replace: bool, changes: &mut Changes) {
        Writer::new(self.style, family, changes).make_table(&self.tag, replace);
        let mut delta = Delta::default();
        delta.chains.extend(self.chains.into_iter().map(|(name, chain)| (name, (None, Some(chain)))));
        delta.sets.extend(self.sets.into_iter().map(|(name, set)| (name, (None, Some(set)))));
        delta.write(self.style, family, changes);
        // In a table that is made in one piece nothing can be there before.
        changes.now.changes.append(&mut changes.first.changes);
        let mut writer = Writer::new(self.style, family, changes);
        for (name, elements) in self.elements {
            writer.add_elements(name, elements);
        }
    }

    /// Whether a table can be made what it should be without beginning anew.
    fn fits(&self, have: &Dump) -> bool {
        let chain = |(name, found): (&Name, &kernel::nft::ChainFound)| {
            self.chains.get(name).is_none_or(|chain| chain.base == found.base)
        };
        let set = |(name, set): (&Name, &Set)| self.sets.get(name).is_none_or(|wanted| wanted.bare() == set.bare());
        have.tag == self.tag && have.chains.iter().all(chain) && have.sets.iter().all(set)
    }
}

/// Deletes what is too much and adds what is missing; one with another value is both.
fn correct_elements(name: &str, mut have: Set, wanted: Vec<(Key, Value)>, writer: &mut Writer<'_>) {
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

/// Tells rulesets apart whose shared parts differ: by version, and by the options that are in their rules.
fn tag(chains: &BTreeMap<Name, Chain>) -> String {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in format!("{chains:?}").bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("waypost {VERSION} {sum:016x}")
}
