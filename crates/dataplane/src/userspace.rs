//! The userspace mode: this program carries every connection itself.
//!
//! ```text
//! packet to a Service ─▶ our table redirects it ─▶ a door of the relay ─▶ an endpoint, and another if that does not answer
//! ```
//! What is gained: endpoints take turns, and one that does not answer costs a moment instead of a connection. What is lost:
//! endpoints see this node instead of the client, SCTP is not served, and Services stop when this program does.
//!
//! [`relay`] carries and knows no rules; [`Userspace`] keeps rules and doors in step with the plan. The relay also serves node
//! ports on loopback beside any other mode ([`loopback`]), and Services where there are no rules at all ([`rootless`]).

mod doors;
mod fixed;
mod flows;
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

pub use crate::nft::relayed::TABLE;
pub use flows::Flows;

use self::doors::Doors;
use self::flows::Ways;
use self::relay::Relay;
use self::table::{Added, Tables};
use crate::frontends::owned;
use crate::nft::{FAMILIES, guard, kernel_family, relayed};
use crate::{Backend, BackendError, Brought, Since, Tampered};

/// The mode's backend.
pub struct Userspace<N: Nft> {
    nft: N,
    doors: Doors,
    tables: Tables,
    /// Service ports that cannot be served, and why.
    unserved: BTreeMap<PortKey, String>,
    /// By which ways UDP comes to the relay, for those who look for stale flows.
    ways: Arc<Mutex<Ways>>,
    /// How the kernel numbered what we wrote last.
    generation: u32,
}

impl<N: Nft> Userspace<N> {
    /// Nothing is written yet, and no door is open.
    pub fn new(nft: N, relay: &Relay) -> Self {
        let (tables, unserved) = (Tables::default(), BTreeMap::new());
        let doors = Doors::new(relay.marked(relayed::OWN));
        Self { nft, doors, tables, unserved, ways: Arc::default(), generation: 0 }
    }

    /// Connection tracking for whoever looks for stale flows while this serves.
    pub fn flows<C: Conntrack>(&self, all: C) -> Flows<C> {
        Flows::new(all, Arc::clone(&self.ways))
    }

    /// Opens the doors of Service ports; answers what these add to the tables. One that cannot have a door is not served; all
    /// others are.
    fn prepare<'a>(&mut self, plan: &Plan, keys: impl Iterator<Item = &'a PortKey>) -> Added {
        let mut added = Added::new();
        for key in keys {
            self.unserved.remove(key);
            let Some(port) = plan.ports.get(key) else { continue };
            let owned = owned(plan, port);
            let opened = self.doors.prepare(plan, port, relayed::needs(port, &owned));
            let why = match &opened {
                Err(error) => Some(format!("no listener can be opened for it: {error}; raise the limit of open files")),
                Ok(_) if key.protocol == Protocol::Sctp => Some(NO_SCTP.to_owned()),
                Ok(_) => None,
            };
            self.unserved.extend(why.map(|why| (key.clone(), why)));
            added.insert(key.clone(), relayed::elements(port, &owned, opened.unwrap_or_default()));
        }
        added
    }

    /// Reads what the kernel has and makes it what it should be. The doors of this process are new, so after a start there is
    /// always something to write.
    fn bring_all(&mut self, plan: &Plan, trusted: bool) -> Result<Brought, BackendError> {
        self.unserved.clear();
        let tables = Tables::of(plan, self.prepare(plan, plan.ports.keys()));
        let mut batch = Batch::default();
        for family in FAMILIES {
            let have = self.nft.dump(kernel_family(family), TABLE)?;
            batch.changes.extend(tables.correct(plan, family, have, trusted).changes);
        }
        let brought = self.write(&batch)?;
        self.tables = tables;
        self.generation = self.nft.generation()?;
        let keys = self.doors.keys().chain(plan.ports.keys()).cloned().collect();
        self.settle(plan, &keys);
        Ok(brought)
    }

    fn follow(&mut self, plan: &Plan, touched: &Touched) -> Result<Brought, BackendError> {
        // Those that had no door may have one now.
        let keys: BTreeSet<PortKey> = touched.ports.iter().chain(self.unserved.keys()).cloned().collect();
        let touched = &Touched { ports: keys, ..touched.clone() };
        let now = self.prepare(plan, touched.ports.iter());
        let batch = self.tables.follow(plan, touched, &now);
        let brought = self.write(&batch)?;
        self.tables.followed(plan, touched, now);
        self.settle(plan, &touched.ports);
        Ok(brought)
    }

    fn write(&mut self, batch: &Batch) -> Result<Brought, NftError> {
        if !batch.changes.is_empty() {
            self.nft.apply(batch)?;
        }
        Ok(Brought { changes: batch.changes.len(), untidy: 0 })
    }

    /// Closes doors to which no rule leads any more, and notes by which ways flows come to the others.
    fn settle(&mut self, plan: &Plan, keys: &BTreeSet<PortKey>) {
        let mut ways = self.ways.lock();
        ways.node_ips.clone_from(&plan.node_port_ips);
        for key in keys {
            let port = plan.ports.get(key);
            let doors = self.doors.settle(key, port.map(|port| &**port));
            if key.protocol == Protocol::Udp {
                let owned = port.map(|port| owned(plan, port)).unwrap_or_default();
                ways.set(key, owned.into_iter().map(|(frontend, _)| frontend).collect(), doors);
            }
        }
    }
}

const NO_SCTP: &str = "the userspace mode cannot carry SCTP; use --proxy-mode nftables, iptables or ipvs";

impl<N: Nft> Backend for Userspace<N> {
    fn mode(&self) -> &'static str {
        "userspace"
    }

    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError> {
        match since {
            Since::Ever => self.bring_all(plan, true),
            Since::Tampered => self.bring_all(plan, false),
            Since::Last(touched) => self.follow(plan, touched),
        }
    }

    fn guard(&mut self, tampered: Tampered) -> Result<(), BackendError> {
        guard::watch(&mut self.nft, TABLE, self.generation, tampered)
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
    /// The doors close with us, and whoever opens the same port next must not get what is for Services.
    fn drop(&mut self) {
        if let Err(error) = self.nft.apply(&self.tables.retire()) {
            tracing::debug!(%error, "rules that lead to this program could not be taken back");
        }
    }
}

/// Removes our tables; answers whether there were some.
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
