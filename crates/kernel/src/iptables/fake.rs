//! iptables in memory, as strict as the programs of a host, with packet evaluation.
//!
//! Scripts are refused for the same reasons as by the programs ([`tables`]); a packet yields its [`Fate`] ([`walk`]). A
//! [`Fake`] is a handle: clones share one machine.

mod tables;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use self::tables::Tables;
use super::{Family, Iptables, IptablesError, Name, Rule, Saved, Script, Table};

pub use crate::nft::fake::{End, Fate, Packet};

/// A machine in memory.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    tables: BTreeMap<Family, Tables>,
    local: BTreeSet<IpAddr>,
    clock: u64,
    /// Last time of each address in each `recent` list.
    lists: BTreeMap<Name, BTreeMap<IpAddr, u64>>,
    /// Packets that each rule has counted, by its chain and its text.
    counted: BTreeMap<String, u32>,
    restores: usize,
    failure: Option<IptablesError>,
}

impl Fake {
    /// Makes the next script fail.
    pub fn fail_next(&self, error: IptablesError) {
        self.0.lock().failure = Some(error);
    }

    /// Number of scripts run.
    #[must_use]
    pub fn restores(&self) -> usize {
        self.0.lock().restores
    }

    /// Sets the addresses of the machine.
    pub fn set_local(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.0.lock().local = addresses.into_iter().collect();
    }

    /// Advances the clock.
    pub fn advance(&self, seconds: u64) {
        self.0.lock().clock += seconds;
    }

    /// Evaluates a packet; `chance` decides a random match with this probability.
    pub fn evaluate(&self, packet: &Packet, chance: &mut dyn FnMut(f64) -> bool) -> Fate {
        walk::evaluate(&mut self.0.lock(), packet, chance)
    }

    /// Runs a script of another program.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn foreign(&self, family: Family, script: &str) -> Result<(), IptablesError> {
        self.0.lock().tables.entry(family).or_default().restore(script)
    }

    /// Flushes all tables as another program.
    pub fn flush(&self) {
        self.0.lock().tables.clear();
    }

    /// All tables as `iptables-save` prints them.
    #[must_use]
    pub fn listing(&self, family: Family) -> String {
        self.0.lock().tables.get(&family).map(Tables::to_string).unwrap_or_default()
    }
}

impl Iptables for Fake {
    fn families(&self) -> Vec<Family> {
        Family::ALL.to_vec()
    }

    fn save(&mut self, family: Family) -> Result<Saved, IptablesError> {
        Ok(Saved::parse(self.listing(family)))
    }

    fn restore(&mut self, family: Family, script: &Script) -> Result<(), IptablesError> {
        let mut inner = self.0.lock();
        if let Some(error) = inner.failure.take() {
            return Err(error);
        }
        inner.restores += 1;
        inner.tables.entry(family).or_default().restore(&script.to_string())
    }

    fn has(&mut self, family: Family, table: Table, chain: &str, rule: &Rule) -> Result<bool, IptablesError> {
        let inner = self.0.lock();
        let chain = inner.tables.get(&family).and_then(|tables| tables.chain(table, chain));
        Ok(chain.is_some_and(|rules| rules.contains(rule)))
    }

    fn tidy(&mut self, family: Family) -> Result<(), IptablesError> {
        let saved = self.save(family)?;
        if let Some(tables) = self.0.lock().tables.get_mut(&family) {
            tables.retain(|table| !saved.is_bare(table));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
