//! nftables in memory, as strict as the kernel, with packet evaluation.
//!
//! Batches are refused for the same reasons and with the same error numbers as in the kernel ([`state`]); a packet
//! yields its [`Fate`] ([`walk`]). A [`Fake`] is a handle: clones share one kernel, so that a test can keep one to
//! inspect.

mod jhash;
mod packet;
mod state;
mod walk;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use self::state::State;
use super::{Batch, Change, Counter, Dump, Monitor, Nft, NftError, Table, Touch};
use crate::Family;

pub use packet::{End, Fate, Packet};

/// A kernel in memory.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    state: State,
    batches: usize,
    changes: usize,
    generation: u32,
    failure: Option<Errno>,
    listeners: Vec<(String, Sender<Touch>)>,
}

impl Fake {
    /// Makes the next batch fail.
    pub fn fail_next(&self, errno: Errno) {
        self.0.lock().failure = Some(errno);
    }

    /// Number of non-empty batches applied.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.0.lock().batches
    }

    /// Number of changes applied: elements and rules count one each.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.0.lock().changes
    }

    /// A table with its rules, without dynamic elements.
    #[must_use]
    pub fn table(&self, family: Family, name: &str) -> Option<Table> {
        self.0.lock().state.table(family, name).map(state::Held::table)
    }

    /// Sets the addresses of the machine.
    pub fn set_local(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.0.lock().state.local = addresses.into_iter().collect();
    }

    /// Advances the clock of dynamic sets.
    pub fn advance(&self, seconds: u64) {
        self.0.lock().state.clock += seconds;
    }

    /// Evaluates a packet; `random` returns a number below its argument.
    pub fn evaluate(&self, packet: &Packet, random: &mut dyn FnMut(u32) -> u32) -> Fate {
        self.evaluate_balanced(packet, random, &mut |_| None)
    }

    /// Evaluates a packet with a balancer such as IPVS, which may take packets at input and output and returns their
    /// destination.
    pub fn evaluate_balanced(
        &self,
        packet: &Packet,
        random: &mut dyn FnMut(u32) -> u32,
        balance: &mut dyn FnMut(&Packet) -> Option<(IpAddr, u16)>,
    ) -> Fate {
        walk::evaluate(&mut self.0.lock().state, packet, random, balance)
    }

    /// Applies changes of another program.
    ///
    /// # Errors
    /// Why they were not made.
    pub fn foreign(&self, batch: &Batch) -> Result<(), NftError> {
        let mut inner = self.0.lock();
        inner.state.apply(batch)?;
        inner.generation += 1;
        for change in &batch.changes {
            let (family, table) = change.table();
            let deleted = matches!(change, Change::DeleteTable(..));
            inner.tell(table, if deleted { Touch::Deleted(family) } else { Touch::Changed(family) });
        }
        Ok(())
    }

    /// Deletes all tables as another program.
    pub fn flush_ruleset(&self) {
        let mut inner = self.0.lock();
        inner.generation += 1;
        for (family, table) in inner.state.clear() {
            inner.tell(&table, Touch::Deleted(family));
        }
    }

    /// Monitors changes by other programs.
    #[must_use]
    pub fn listen(&self, table: &str) -> Watcher {
        let (sender, receiver) = channel();
        self.0.lock().listeners.push((table.to_owned(), sender));
        Watcher(receiver)
    }

    /// Whether a table is monitored.
    #[must_use]
    pub fn is_watched(&self, table: &str) -> bool {
        self.0.lock().listeners.iter().any(|(name, _)| name == table)
    }

    /// Lets listeners lose messages.
    pub fn lose_messages(&self) {
        let mut inner = self.0.lock();
        inner.listeners.retain(|(_, sender)| sender.send(Touch::Unknown).is_ok());
    }
}

impl Inner {
    fn tell(&mut self, table: &str, touch: Touch) {
        self.listeners.retain(|(name, sender)| name != table || sender.send(touch).is_ok());
    }
}

impl Nft for Fake {
    fn apply(&mut self, batch: &Batch) -> Result<(), NftError> {
        let mut inner = self.0.lock();
        if let Some(errno) = inner.failure.take() {
            return Err(NftError::new("applying a batch", errno));
        }
        inner.state.apply(batch)?;
        let changes = batch.changes.iter().map(Change::weight).sum::<usize>();
        inner.changes += changes;
        inner.batches += usize::from(changes > 0);
        inner.generation += u32::from(changes > 0);
        Ok(())
    }

    fn dump(&mut self, family: Family, table: &str) -> Result<Option<Dump>, NftError> {
        Ok(self.0.lock().state.table(family, table).map(state::Held::dump))
    }

    fn counters(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Counter>, NftError> {
        let inner = self.0.lock();
        let counters = inner.state.table(family, table).and_then(|held| held.counters(set));
        counters.ok_or(NftError::new("reading counters", Errno::NOENT))
    }

    fn generation(&mut self) -> Result<u32, NftError> {
        Ok(self.0.lock().generation)
    }

    fn monitor(&mut self, table: &str) -> Result<Box<dyn Monitor>, NftError> {
        Ok(Box::new(self.listen(table)))
    }
}

/// Monitors a table of a [`Fake`].
pub struct Watcher(Receiver<Touch>);

impl Monitor for Watcher {
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Touch>, NftError> {
        let heard = match timeout {
            Some(timeout) => self.0.recv_timeout(timeout),
            None => self.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match heard {
            Ok(touch) => Ok(Some(touch)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(NftError::new("listening for changes", Errno::PIPE)),
        }
    }
}

#[cfg(test)]
mod tests;
