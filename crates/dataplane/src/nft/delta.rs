//! Changes of a table, ordered so that nothing is referenced before it exists.

use std::collections::BTreeMap;

use api::ip::Family;
use kernel::nft::{Batch, Chain, Change, Key, Name, Set, SetValue, Value};

use super::shapes::{ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS};
use super::table_kind::TableKind;

/// Maps from a random slot number to an endpoint.
const SLOT_MAPS: [&str; 4] = [ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS];

/// Batches to apply, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Chains and sets that nothing refers to yet. A packet keeps the ruleset of the moment it arrived but looks up
    /// maps as they are now: a map element that leads to a chain of the same transaction would find it empty.
    pub(crate) prepare: Batch,
    /// The change itself, atomically.
    pub(crate) commit: Batch,
    /// Slots to delete after the commit. A packet may be between two lookups during the commit: it drew slot 2 of 3 and
    /// would find a map of 2. So the slot stays until no packet can draw it.
    pub(crate) retire: Batch,
    /// Unused objects. Kernels before 6.2 notice only after the commit that a chain is unused.
    pub(crate) cleanup: Batch,
}

impl Changes {
    /// Appends the changes of the other family.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.prepare.changes.append(&mut other.prepare.changes);
        self.commit.changes.append(&mut other.commit.changes);
        self.retire.changes.append(&mut other.retire.changes);
        self.cleanup.changes.append(&mut other.cleanup.changes);
    }
}

/// Value before and after.
pub(super) type Pair<T> = (Option<T>, Option<T>);

/// Differences of one family's table.
#[derive(Default)]
pub(super) struct Delta {
    pub(super) elements: BTreeMap<(&'static str, Key), Pair<Value>>,
    pub(super) chains: BTreeMap<Name, Pair<Chain>>,
    pub(super) sets: BTreeMap<Name, Pair<Set>>,
}

impl Delta {
    /// Appends the batches to `changes`.
    pub(super) fn write(self, kind: TableKind, family: Family, changes: &mut Changes) {
        let mut writer = Writer { is_preparing: true, ..Writer::new(kind, family, changes) };
        let (mut old_sets, mut old_chains) = (Vec::new(), Vec::new());
        let (mut fills, mut changed_sets) = (Vec::new(), Vec::new());
        for (name, pair) in self.sets {
            match pair {
                (None, Some(set)) => {
                    writer.add_set(&name, &set);
                    fills.push((name, set.elements));
                }
                (Some(set), None) => old_sets.push((name, set)),
                (Some(old), Some(set)) => changed_sets.push((name, old, set)),
                (None, None) => {}
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
        writer.is_preparing = false;
        write_elements(self.elements, &mut writer);
        for (name, old, set) in changed_sets {
            write_slots(&name, old, set, &mut writer);
        }
        writer.clean_up(&old_chains, &old_sets);
    }
}

fn write_elements(elements: BTreeMap<(&'static str, Key), Pair<Value>>, writer: &mut Writer<'_>) {
    let mut gone: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
    let mut drawn: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
    let mut new: BTreeMap<&str, Vec<(Key, Value)>> = BTreeMap::new();
    for ((set, key), (old, value)) in elements.into_iter().filter(|(_, (old, value))| old != value) {
        if old.is_some() {
            let list = if value.is_none() && SLOT_MAPS.contains(&set) { &mut drawn } else { &mut gone };
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
        writer.delete_slots(set, keys);
    }
}

/// Changes the elements of a private map. Only maps from slots to endpoints keep their name when their content changes.
fn write_slots(name: &str, mut old: Set, set: Set, writer: &mut Writer<'_>) {
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (key, value) in set.elements {
        match old.elements.remove(&key) {
            Some(before) if before == value => continue,
            Some(_) => gone.push(key.clone()),
            None => {}
        }
        new.push((key, value));
    }
    writer.delete_elements(name, gone);
    writer.add_elements(name, new);
    writer.delete_slots(name, old.elements.into_keys().collect());
}

/// Writes changes of one table.
pub(super) struct Writer<'a> {
    family: kernel::nft::Family,
    table: Name,
    /// Whether changes go to the prepare batch.
    is_preparing: bool,
    changes: &'a mut Changes,
}

impl<'a> Writer<'a> {
    pub(super) fn new(kind: TableKind, family: Family, changes: &'a mut Changes) -> Self {
        Self { family: kernel_family(family), table: kind.table().into(), is_preparing: false, changes }
    }

    fn push(&mut self, change: Change) {
        let batch = if self.is_preparing { &mut self.changes.prepare } else { &mut self.changes.commit };
        batch.changes.push(change);
    }

    /// Creates the table, replacing an existing one.
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

    /// Deletes slots that packets in flight may have drawn.
    fn delete_slots(&mut self, set: &str, keys: Vec<Key>) {
        if !keys.is_empty() {
            let change = Change::DeleteElements(self.family, self.table.clone(), set.into(), keys);
            self.changes.retire.changes.push(change);
        }
    }

    /// Deletes unused chains and sets; references go first.
    fn clean_up(&mut self, chains: &[Name], sets: &[(Name, Set)]) {
        let cleanup = &mut self.changes.cleanup.changes;
        cleanup.extend(chains.iter().map(|name| Change::FlushChain(self.family, self.table.clone(), name.clone())));
        let leads = |set: &Set| set.value == SetValue::Verdict;
        let delete = |name: &Name| Change::DeleteSet(self.family, self.table.clone(), name.clone());
        cleanup.extend(sets.iter().filter(|(_, set)| leads(set)).map(|(name, _)| delete(name)));
        cleanup.extend(chains.iter().map(|name| Change::DeleteChain(self.family, self.table.clone(), name.clone())));
        cleanup.extend(sets.iter().filter(|(_, set)| !leads(set)).map(|(name, _)| delete(name)));
    }
}

/// The kernel crate's type of a family.
pub(crate) const fn kernel_family(family: Family) -> kernel::nft::Family {
    match family {
        Family::V4 => kernel::nft::Family::Ip,
        Family::V6 => kernel::nft::Family::Ip6,
    }
}
