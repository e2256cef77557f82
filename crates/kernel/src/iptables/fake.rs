//! iptables in memory, as strict as the programs of a host, which can say what would happen to a packet.
//!
//! A script goes in as the text that a program would get and is refused for the same reasons ([`tables`]); a packet goes in and
//! its [`Fate`] comes out ([`walk`]). A [`Fake`] is a handle: clones share one machine.

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
    /// When each list last saw each address.
    lists: BTreeMap<Name, BTreeMap<IpAddr, u64>>,
    restores: usize,
    failure: Option<IptablesError>,
}

impl Fake {
    /// Lets the next script fail.
    pub fn fail_next(&self, error: IptablesError) {
        self.0.lock().failure = Some(error);
    }

    /// How many scripts were run.
    #[must_use]
    pub fn restores(&self) -> usize {
        self.0.lock().restores
    }

    /// Gives the machine its addresses.
    pub fn set_local(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.0.lock().local = addresses.into_iter().collect();
    }

    /// Lets time pass.
    pub fn advance(&self, seconds: u64) {
        self.0.lock().clock += seconds;
    }

    /// Sends a packet; `chance` says whether the one in so many comes up.
    pub fn evaluate(&self, packet: &Packet, chance: &mut dyn FnMut(u32) -> bool) -> Fate {
        walk::evaluate(&mut self.0.lock(), packet, chance)
    }

    /// Somebody else runs a script, in their own words.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn foreign(&self, family: Family, script: &str) -> Result<(), IptablesError> {
        self.0.lock().tables.entry(family).or_default().restore(script)
    }

    /// Somebody else empties every table and removes its chains.
    pub fn flush(&self) {
        self.0.lock().tables.clear();
    }

    /// Everything there is, as `iptables-save` prints it.
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
