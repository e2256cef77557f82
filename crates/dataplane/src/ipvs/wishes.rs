//! What all Service ports together want of IPVS and of our device, and what of that a change of the plan affects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use kernel::ipvs::{Scheduler, Server};
use plan::{Plan, PortKey, Touched};

use super::servers::{self, Reach, Wanted};

/// What is wanted.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    ports: HashMap<PortKey, Reach>,
    pub(super) servers: BTreeMap<Server, Wanted>,
    /// Addresses on our device, and by how many Service ports they are wanted.
    pub(super) addresses: BTreeMap<IpAddr, usize>,
}

/// What may have to be changed.
#[derive(Debug, Default)]
pub(super) struct Affected {
    pub(super) servers: BTreeSet<Server>,
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Affected {
    fn add(&mut self, reach: &Reach) {
        self.servers.extend(reach.servers.keys());
        self.addresses.extend(&reach.addresses);
    }
}

impl Wishes {
    /// What a plan wants.
    pub(super) fn of(plan: &Plan, scheduler: Scheduler) -> Self {
        let mut wishes = Self::default();
        for (key, port) in &plan.ports {
            wishes.give(key, servers::of(plan, port, scheduler));
        }
        wishes
    }

    /// Follows a plan in which something changed.
    pub(super) fn follow(&mut self, plan: &Plan, touched: &Touched, scheduler: Scheduler) -> Affected {
        let mut keys = touched.ports.clone();
        if touched.node {
            keys.extend(self.ports.iter().filter(|(_, reach)| reach.has_node_port).map(|(key, _)| key.clone()));
        }
        let mut affected = Affected::default();
        for key in &keys {
            if let Some(reach) = self.take(key) {
                affected.add(&reach);
            }
        }
        for key in &keys {
            if let Some(port) = plan.ports.get(key) {
                let reach = servers::of(plan, port, scheduler);
                affected.add(&reach);
                self.give(key, reach);
            }
        }
        affected
    }

    fn give(&mut self, key: &PortKey, reach: Reach) {
        for ip in &reach.addresses {
            *self.addresses.entry(*ip).or_default() += 1;
        }
        self.servers.extend(reach.servers.iter().map(|(server, wanted)| (*server, wanted.clone())));
        self.ports.insert(key.clone(), reach);
    }

    fn take(&mut self, key: &PortKey) -> Option<Reach> {
        let reach = self.ports.remove(key)?;
        for ip in &reach.addresses {
            if let Some(count) = self.addresses.get_mut(ip) {
                *count -= 1;
                if *count == 0 {
                    self.addresses.remove(ip);
                }
            }
        }
        for server in reach.servers.keys() {
            self.servers.remove(server);
        }
        Some(reach)
    }
}
