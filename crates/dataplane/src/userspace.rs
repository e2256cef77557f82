//! The userspace mode: this process relays every connection.
//!
//! ```text
//! packet to a Service ─▶ our table redirects it ─▶ a listener of the relay ─▶ an endpoint; on failure the next one
//! ```
//! Endpoints are chosen round-robin, and an unreachable endpoint costs a retry instead of the connection. On the other
//! hand endpoints see the node's address, SCTP is not supported, and Services stop when this process does.
//!
//! [`relay`] moves data and knows no rules; [`Userspace`] keeps rules and listeners in sync with the plan. The relay
//! also serves node ports on loopback in other modes ([`loopback`]), and Services without any rules ([`rootless`]).

mod conntrack;
mod fixed_listeners;
mod listeners;
pub mod loopback;
pub mod relay;
pub mod rootless;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernel::conntrack::Conntrack;
use kernel::nft::{Batch, Change, Nft, NftError};
use parking_lot::Mutex;
use plan::{Plan, PortKey, Problem, Protocol, Touched};

pub use crate::nft::redirect::TABLE;
pub use conntrack::RelayConntrack;

use self::conntrack::RelayedFrontends;
use self::listeners::RelayListeners;
use self::relay::Relay;
use self::table::{PortElements, Tables};
use crate::frontends::owned;
use crate::nft::{FAMILIES, kernel_family, redirect, tamper};
use crate::{Backend, BackendError, SyncScope, SyncStats, TamperCallback};

/// Backend of the userspace mode.
pub struct Userspace<N: Nft> {
    nft: N,
    listeners: RelayListeners,
    tables: Tables,
    /// Service ports that are not served, and why.
    unserved: BTreeMap<PortKey, String>,
    /// UDP frontends of the relay, for the reconciliation of stale flows.
    relayed: Arc<Mutex<RelayedFrontends>>,
    /// Kernel generation number after our last write.
    generation: u32,
}

impl<N: Nft> Userspace<N> {
    /// No rules are written and no listener is open yet.
    pub fn new(nft: N, relay: &Relay) -> Self {
        let (tables, unserved) = (Tables::default(), BTreeMap::new());
        let listeners = RelayListeners::new(relay.marked(redirect::RELAY_MARK));
        Self { nft, listeners, tables, unserved, relayed: Arc::default(), generation: 0 }
    }

    /// Conntrack for the reconciliation of stale flows while this backend is active.
    pub fn conntrack<C: Conntrack>(&self, all: C) -> RelayConntrack<C> {
        RelayConntrack::new(all, Arc::clone(&self.relayed))
    }

    /// Opens the listeners of Service ports and returns their table elements. A port whose listener cannot be opened is
    /// not served; the others are.
    fn prepare<'a>(&mut self, plan: &Plan, keys: impl Iterator<Item = &'a PortKey>) -> PortElements {
        let mut elements = PortElements::new();
        for key in keys {
            self.unserved.remove(key);
            let Some(port) = plan.ports.get(key) else { continue };
            let owned = owned(plan, port);
            let opened = self.listeners.prepare(plan, port, redirect::needs(port, &owned));
            let why = match &opened {
                Err(error) => Some(format!("no listener can be opened for it: {error}; raise the limit of open files")),
                Ok(_) if key.protocol == Protocol::Sctp => Some(NO_SCTP.to_owned()),
                Ok(_) => None,
            };
            self.unserved.extend(why.map(|why| (key.clone(), why)));
            elements.insert(key.clone(), redirect::elements(port, &owned, opened.unwrap_or_default()));
        }
        elements
    }

    /// Reads the kernel state and corrects the differences. The listeners of this process are new, so after a start
    /// there is always something to write.
    fn full_sync(&mut self, plan: &Plan, trusted: bool) -> Result<SyncStats, BackendError> {
        self.unserved.clear();
        let tables = Tables::of(plan, self.prepare(plan, plan.ports.keys()));
        let mut batch = Batch::default();
        for family in FAMILIES {
            let have = self.nft.dump(kernel_family(family), TABLE)?;
            batch.changes.extend(tables.reconcile(plan, family, have, trusted).changes);
        }
        let stats = self.write(&batch)?;
        self.tables = tables;
        self.generation = self.nft.generation()?;
        let keys = self.listeners.keys().chain(plan.ports.keys()).cloned().collect();
        self.finish(plan, &keys);
        Ok(stats)
    }

    fn incremental_sync(&mut self, plan: &Plan, touched: &Touched) -> Result<SyncStats, BackendError> {
        // Retry ports whose listener could not be opened.
        let keys: BTreeSet<PortKey> = touched.ports.iter().chain(self.unserved.keys()).cloned().collect();
        let touched = &Touched { ports: keys, ..touched.clone() };
        let now = self.prepare(plan, touched.ports.iter());
        let batch = self.tables.update(plan, touched, &now);
        let stats = self.write(&batch)?;
        self.tables.commit(plan, touched, now);
        self.finish(plan, &touched.ports);
        Ok(stats)
    }

    fn write(&mut self, batch: &Batch) -> Result<SyncStats, NftError> {
        if !batch.changes.is_empty() {
            self.nft.apply(batch)?;
        }
        Ok(SyncStats { changes: batch.changes.len(), cleanup_failures: 0 })
    }

    /// Closes listeners that no rule refers to and records the UDP frontends of the others.
    fn finish(&mut self, plan: &Plan, keys: &BTreeSet<PortKey>) {
        let mut relayed = self.relayed.lock();
        relayed.node_ips.clone_from(&plan.node_port_ips);
        for key in keys {
            let port = plan.ports.get(key);
            let ports = self.listeners.commit(key, port.map(|port| &**port));
            if key.protocol == Protocol::Udp {
                let owned = port.map(|port| owned(plan, port)).unwrap_or_default();
                relayed.set(key, owned.into_iter().map(|(frontend, _)| frontend).collect(), ports);
            }
        }
    }
}

const NO_SCTP: &str = "the userspace mode cannot carry SCTP; use --proxy-mode nftables, iptables or ipvs";

impl<N: Nft> Backend for Userspace<N> {
    fn mode(&self) -> &'static str {
        "userspace"
    }

    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError> {
        match scope {
            SyncScope::FullResync => self.full_sync(plan, true),
            SyncScope::Tampered => self.full_sync(plan, false),
            SyncScope::Changed(touched) => self.incremental_sync(plan, touched),
        }
    }

    fn watch_tampering(&mut self, on_tampering: TamperCallback) -> Result<(), BackendError> {
        tamper::watch(&mut self.nft, TABLE, self.generation, on_tampering)
    }

    fn problems(&self) -> Vec<Problem> {
        let problem = |(key, why): (&PortKey, &String)| Problem {
            service: key.service.clone(),
            what: format!("its port {key} is not served: {why}"),
        };
        self.unserved.iter().map(problem).collect()
    }
}

impl<N: Nft> Drop for Userspace<N> {
    /// Removes the redirects: another program may open the same ports next.
    fn drop(&mut self) {
        if let Err(error) = self.nft.apply(&self.tables.retire()) {
            tracing::debug!(%error, "cannot remove redirects to the relay");
        }
    }
}

/// Removes our tables; returns whether there were any.
///
/// # Errors
/// When the kernel refuses.
pub fn cleanup(nft: &mut dyn Nft) -> Result<bool, NftError> {
    let mut batch = Batch::default();
    for family in FAMILIES {
        if nft.dump(kernel_family(family), TABLE)?.is_some() {
            batch.changes.push(Change::DeleteTable(kernel_family(family), TABLE.into()));
        }
    }
    let found = !batch.changes.is_empty();
    if found {
        nft.apply(&batch)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
