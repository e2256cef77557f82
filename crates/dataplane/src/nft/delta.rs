//! What becomes of a table, and the changes that make it so, in an order in which nothing is used before it is there.

use std::collections::BTreeMap;

use api::ip::Family;
use kernel::nft::{Batch, Chain, Change, Key, Name, Set, SetValue, Value};

use super::shapes::{ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS};
use super::style::Style;

/// The maps in which a packet looks for the endpoint whose number it has drawn.
const DRAWN: [&str; 4] = [ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS];

/// What to tell the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// What must be there before: chains and sets that nothing leads to yet. A packet keeps the rules of the moment at which it came, but
    /// looks into maps as they are: led to a chain that is as new as the lead, it would find the chain empty.
    pub(crate) first: Batch,
    /// What must happen, all at once.
    pub(crate) now: Batch,
    /// What must happen next. A transaction shows all of itself at one moment, but a packet may be halfway through our maps at that
    /// moment: it has drawn one of three endpoints and finds a map of two. So the third stays until nobody draws it any more.
    pub(crate) next: Batch,
    /// What may be tidied up after that: kernels before 6.2 notice only then that a chain is no longer used.
    pub(crate) later: Batch,
}

impl Changes {
    /// Adds what is to happen in the other family.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.first.changes.append(&mut other.first.changes);
        self.now.changes.append(&mut other.now.changes);
        self.next.changes.append(&mut other.next.changes);
        self.later.changes.append(&mut other.later.changes);
    }
}

/// Something before and after.
pub(super) type Pair<T> = (Option<T>, Option<T>);

/// What becomes of one family.
#[derive(Default)]
pub(super) struct Delta {
    pub(super) elements: BTreeMap<(&'static str, Key), Pair<Value>>,
    pub(super) chains: BTreeMap<Name, Pair<Chain>>,
    pub(super) sets: BTreeMap<Name, Pair<Set>>,
}

impl Delta {
    /// Writes it down.
    pub(super) fn write(self, style: Style, family: Family, changes: &mut Changes) {
        let mut writer = Writer { preparing: true, ..Writer::new(style, family, changes) };
        let (mut old_sets, mut old_chains) = (Vec::new(), Vec::new());
        let mut fills = Vec::new();
        for (name, pair) in self.sets {
            match pair {
                (None, Some(set)) => {
                    writer.add_set(&name, &set);
                    fills.push((name, set.elements));
                }
                (Some(set), None) => old_sets.push((name, set)),
                // Named after its content, or filled by packets: the same name is the same set.
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        let mut rules = Vec::new();
        for (name, pair) in self.chains {
            match pair {
                (None, Some(chain)) => {
                    writer.add_chain(&name, &chain);
                    rules.push((name, chain.rules));
                }
                (Some(_), None) => old_chains.push(name),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        for (name, rules) in rules {
            writer.add_rules(&name, rules);
        }
        for (name, elements) in fills {
            writer.add_elements(&name, elements.into_iter().collect());
        }
        writer.preparing = false;
        write_elements(self.elements, &mut writer);
        writer.tidy(&old_chains, &old_sets);
    }
}

fn write_elements(elements: BTreeMap<(&'static str, Key), Pair<Value>>, writer: &mut Writer<'_>) {
    let mut gone: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
    let mut drawn: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
    let mut new: BTreeMap<&str, Vec<(Key, Value)>> = BTreeMap::new();
    for ((set, key), (old, value)) in elements.into_iter().filter(|(_, (old, value))| old != value) {
        if old.is_some() {
            let list = if value.is_none() && DRAWN.contains(&set) { &mut drawn } else { &mut gone };
            list.entry(set).or_default().push(key.clone());
        }
        if let Some(value) = value {
            new.entry(set).or_default().push((key, value));
        }
    }
    for (set, keys) in gone {
        writer.delete_elements(set, keys);
    }
    for (set, elements) in new {
        writer.add_elements(set, elements);
    }
    for (set, keys) in drawn {
        writer.delete_drawn(set, keys);
    }
}

/// Writes changes of one of our tables.
pub(super) struct Writer<'a> {
    family: kernel::nft::Family,
    table: Name,
    /// Whether what is written must be there before all else.
    preparing: bool,
    changes: &'a mut Changes,
}

impl<'a> Writer<'a> {
    pub(super) fn new(style: Style, family: Family, changes: &'a mut Changes) -> Self {
        Self { family: kernel_family(family), table: style.table().into(), preparing: false, changes }
    }

    fn push(&mut self, change: Change) {
        let batch = if self.preparing { &mut self.changes.first } else { &mut self.changes.now };
        batch.changes.push(change);
    }

    /// Makes the table, in the place of one that is there.
    pub(super) fn make_table(&mut self, tag: &str, replace: bool) {
        if replace {
            self.push(Change::DeleteTable(self.family, self.table.clone()));
        }
        self.push(Change::AddTable(self.family, self.table.clone(), tag.to_owned()));
    }

    fn add_set(&mut self, name: &str, set: &Set) {
        self.push(Change::AddSet(self.family, self.table.clone(), name.into(), set.bare()));
    }

    fn add_chain(&mut self, name: &str, chain: &Chain) {
        self.push(Change::AddChain(self.family, self.table.clone(), name.into(), chain.base));
    }

    pub(super) fn flush_chain(&mut self, chain: &str) {
        self.push(Change::FlushChain(self.family, self.table.clone(), chain.into()));
    }

    pub(super) fn add_rules(&mut self, chain: &str, rules: Vec<kernel::nft::Rule>) {
        if !rules.is_empty() {
            self.push(Change::AddRules(self.family, self.table.clone(), chain.into(), rules));
        }
    }

    pub(super) fn add_elements(&mut self, set: &str, elements: Vec<(Key, Value)>) {
        if !elements.is_empty() {
            self.push(Change::AddElements(self.family, self.table.clone(), set.into(), elements));
        }
    }

    pub(super) fn delete_elements(&mut self, set: &str, keys: Vec<Key>) {
        if !keys.is_empty() {
            self.push(Change::DeleteElements(self.family, self.table.clone(), set.into(), keys));
        }
    }

    /// Deletes what packets on their way may have drawn.
    fn delete_drawn(&mut self, set: &str, keys: Vec<Key>) {
        let change = Change::DeleteElements(self.family, self.table.clone(), set.into(), keys);
        self.changes.next.changes.push(change);
    }

    /// Deletes chains and sets that nothing uses any more, in an order in which nothing is deleted while it is used.
    fn tidy(&mut self, chains: &[Name], sets: &[(Name, Set)]) {
        let later = &mut self.changes.later.changes;
        later.extend(chains.iter().map(|name| Change::FlushChain(self.family, self.table.clone(), name.clone())));
        let leads = |set: &Set| set.value == SetValue::Verdict;
        let delete = |name: &Name| Change::DeleteSet(self.family, self.table.clone(), name.clone());
        later.extend(sets.iter().filter(|(_, set)| leads(set)).map(|(name, _)| delete(name)));
        later.extend(chains.iter().map(|name| Change::DeleteChain(self.family, self.table.clone(), name.clone())));
        later.extend(sets.iter().filter(|(_, set)| !leads(set)).map(|(name, _)| delete(name)));
    }
}

/// The kernel's word for a family.
pub(crate) const fn kernel_family(family: Family) -> kernel::nft::Family {
    match family {
        Family::V4 => kernel::nft::Family::Ip,
        Family::V6 => kernel::nft::Family::Ip6,
    }
}
