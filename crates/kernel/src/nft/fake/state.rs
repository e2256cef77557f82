//! Tables in memory and changes to them.
//!
//! A batch is applied to a copy that shares unchanged parts and replaces the original only if every change succeeds.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use rustix::io::Errno;

use crate::Family;
use crate::nft::{Base, Batch, Chain, ChainState, Change, Counter, Dump, Key, Name, NftError, Set, Table, Value};

/// A table.
#[derive(Clone, Default)]
pub(crate) struct Held {
    tag: String,
    pub(super) chains: BTreeMap<Name, Arc<Chain>>,
    pub(super) sets: BTreeMap<Name, Arc<Set>>,
    /// Dynamic elements and their expiry.
    pub(super) remembered: BTreeMap<Name, BTreeMap<Key, u64>>,
    /// The last number that the rule with a lookup in this map counted.
    pub(super) counted: BTreeMap<Name, u32>,
    /// Match counters.
    pub(super) found: BTreeMap<Name, BTreeMap<Key, u64>>,
}

/// Complete state.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(super) tables: Tables,
    /// Addresses of the machine.
    pub(super) local: BTreeSet<IpAddr>,
    /// Seconds since the start.
    pub(super) clock: u64,
}

impl State {
    pub(super) fn table(&self, family: Family, name: &str) -> Option<&Held> {
        self.tables.get(&(family, Name::from(name))).map(|held| &**held)
    }

    pub(super) fn clear(&mut self) -> Vec<(Family, Name)> {
        std::mem::take(&mut self.tables).into_keys().collect()
    }

    /// Applies all changes, or none.
    pub(super) fn apply(&mut self, batch: &Batch) -> Result<(), NftError> {
        // Reachability is checked at the end. If the check fails, the batch is repeated with a check after each step to
        // find the failing change, as in the kernel.
        self.tables = match self.changed(batch, false) {
            Ok(tables) if tables.values().any(|held| check::walkable(held).is_err()) => self.changed(batch, true)?,
            changed => changed?,
        };
        Ok(())
    }

    /// Tables after a batch.
    fn changed(&self, batch: &Batch, careful: bool) -> Result<Tables, NftError> {
        let mut tables = self.tables.clone();
        for (index, change) in batch.changes.iter().enumerate().filter(|(_, change)| change.weight() > 0) {
            let mut made = make(&mut tables, change);
            if careful && matches!(change, Change::AddRules(..) | Change::AddElements(..)) {
                made = made.and_then(|()| tables.values().try_for_each(|held| check::walkable(held)));
            }
            made.map_err(|errno| NftError { errno, change: Some(index), doing: "applying a batch" })?;
        }
        Ok(tables)
    }
}

/// Tables by family and name.
type Tables = BTreeMap<(Family, Name), Arc<Held>>;

/// Applies one change.
fn make(tables: &mut Tables, change: &Change) -> Result<(), Errno> {
    let (family, name) = change.table();
    let name = (family, name.clone());
    match change {
        Change::AddTable(_, _, tag) => {
            tables.entry(name).or_insert_with(|| Arc::new(Held { tag: tag.clone(), ..Held::default() }));
            return Ok(());
        }
        Change::DeleteTable(..) => return tables.remove(&name).map(|_| ()).ok_or(Errno::NOENT),
        _ => {}
    }
    let held = Arc::make_mut(tables.get_mut(&name).ok_or(Errno::NOENT)?);
    match change {
        Change::AddTable(..) | Change::DeleteTable(..) => Ok(()),
        Change::AddChain(_, _, chain, base) => held.add_chain(chain, *base),
        Change::DeleteChain(_, _, chain) => held.delete_chain(chain),
        Change::FlushChain(_, _, chain) => {
            held.chain(chain)?.rules.clear();
            Ok(())
        }
        Change::AddRules(_, _, chain, rules) => {
            held.chain(chain)?;
            rules.iter().flatten().try_for_each(|statement| check::statement(held, statement))?;
            held.chain(chain)?.rules.extend(rules.iter().cloned());
            Ok(())
        }
        Change::AddSet(_, _, set, content) => held.add_set(family, set, content),
        Change::DeleteSet(_, _, set) => held.delete_set(set),
        Change::AddElements(_, _, set, elements) => {
            elements.iter().try_for_each(|(key, value)| held.add_element(family, set, key, value))
        }
        Change::DeleteElements(_, _, set, keys) => keys.iter().try_for_each(|key| held.delete_element(set, key)),
    }
}

impl Held {
    /// As a table of the model.
    pub(super) fn table(&self) -> Table {
        Table {
            tag: self.tag.clone(),
            chains: self.chains.iter().map(|(name, chain)| (name.clone(), (**chain).clone())).collect(),
            sets: self.sets.iter().map(|(name, set)| (name.clone(), (**set).clone())).collect(),
        }
    }

    /// As a dump.
    pub(super) fn dump(&self) -> Dump {
        let found = |chain: &Chain| ChainState { base: chain.base, rules: chain.rules.len() };
        let told = |set: &Set| if set.timeout.is_some() { set.bare() } else { set.clone() };
        Dump {
            tag: self.tag.clone(),
            chains: self.chains.iter().map(|(name, chain)| (name.clone(), found(chain))).collect(),
            sets: self.sets.iter().map(|(name, set)| (name.clone(), told(set))).collect(),
        }
    }

    /// Match counters. Packets have no length here.
    pub(super) fn counters(&self, set: &str) -> Option<Vec<Counter>> {
        let found = self.found.get(set);
        let packets = |key: &Key| found.and_then(|found| found.get(key)).copied().unwrap_or_default();
        let keys = self.sets.get(set)?.elements.keys();
        Some(keys.map(|key| Counter { key: key.clone(), packets: packets(key), bytes: 0 }).collect())
    }

    fn chain(&mut self, name: &Name) -> Result<&mut Chain, Errno> {
        self.chains.get_mut(name).map(Arc::make_mut).ok_or(Errno::NOENT)
    }

    fn set(&mut self, name: &Name) -> Result<&mut Set, Errno> {
        self.sets.get_mut(name).map(Arc::make_mut).ok_or(Errno::NOENT)
    }

    fn add_chain(&mut self, name: &Name, base: Option<Base>) -> Result<(), Errno> {
        check::base(base)?;
        match self.chains.get(name) {
            Some(there) if base.is_some() && there.base != base => Err(Errno::EXIST),
            Some(_) => Ok(()),
            None => {
                self.chains.insert(name.clone(), Arc::new(Chain { base, rules: Vec::new() }));
                Ok(())
            }
        }
    }

    fn delete_chain(&mut self, name: &Name) -> Result<(), Errno> {
        if !self.chains.contains_key(name) {
            return Err(Errno::NOENT);
        }
        if check::leads_to(self, name) {
            return Err(Errno::BUSY);
        }
        self.chains.remove(name);
        Ok(())
    }

    fn add_set(&mut self, family: Family, name: &Name, content: &Set) -> Result<(), Errno> {
        check::set(content, family)?;
        match self.sets.get(name) {
            Some(there) if there.bare() != content.bare() => Err(Errno::EXIST),
            Some(_) => Ok(()),
            None => {
                self.sets.insert(name.clone(), Arc::new(content.bare()));
                Ok(())
            }
        }
    }

    fn delete_set(&mut self, name: &Name) -> Result<(), Errno> {
        let statements = || self.chains.values().flat_map(|chain| chain.rules.iter().flatten());
        let used = statements().filter_map(|statement| statement.lookup()).any(|(set, _)| set == name);
        if !self.sets.contains_key(name) {
            return Err(Errno::NOENT);
        }
        if used {
            return Err(Errno::BUSY);
        }
        self.sets.remove(name);
        self.remembered.remove(name);
        self.found.remove(name);
        Ok(())
    }

    fn add_element(&mut self, family: Family, name: &Name, key: &Key, value: &Value) -> Result<(), Errno> {
        let set = self.sets.get(name).ok_or(Errno::NOENT)?;
        check::element(self, set, family, key, value)?;
        match set.elements.get(key) {
            Some(there) if there == value => return Ok(()),
            Some(_) => return Err(Errno::EXIST),
            None => {}
        }
        if set.interval && set.elements.keys().any(|other| other.meets(key, &set.key, family)) {
            return Err(Errno::EXIST);
        }
        self.set(name)?.elements.insert(key.clone(), value.clone());
        Ok(())
    }

    fn delete_element(&mut self, name: &Name, key: &Key) -> Result<(), Errno> {
        let by_packet = self.remembered.get_mut(name).and_then(|keys| keys.remove(key)).is_some();
        let by_us = self.set(name)?.elements.remove(key).is_some();
        self.found.get_mut(name).and_then(|keys| keys.remove(key));
        if by_packet || by_us { Ok(()) } else { Err(Errno::NOENT) }
    }
}
