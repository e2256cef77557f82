//! Desired virtual servers and device addresses of all Service ports, and which of them a plan change affects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use kernel::ipvs::{Scheduler, Server};
use plan::{Plan, PortKey, Touched};

use super::servers::{self, DesiredServer, PortServers};

/// Desired state of IPVS and of the device.
#[derive(Debug, Default)]
pub(super) struct DesiredState {
    ports: HashMap<PortKey, PortServers>,
    pub(super) servers: BTreeMap<Server, DesiredServer>,
    /// Servers whose destinations are deleted at once.
    pub(super) exclusive: BTreeSet<Server>,
    /// Device addresses and the number of Service ports that use each.
    pub(super) addresses: BTreeMap<IpAddr, usize>,
}

/// Objects that may have to change.
#[derive(Debug, Default)]
pub(super) struct Affected {
    pub(super) servers: BTreeSet<Server>,
    pub(super) addresses: BTreeSet<IpAddr>,
}

impl Affected {
    fn add(&mut self, port_servers: &PortServers) {
        self.servers.extend(port_servers.servers.keys());
        self.addresses.extend(&port_servers.addresses);
    }
}

impl DesiredState {
    /// The desired state of a plan.
    pub(super) fn of(plan: &Plan, scheduler: Scheduler) -> Self {
        let mut desired = Self::default();
        for (key, port) in &plan.ports {
            desired.insert(key, servers::of(plan, port, scheduler));
        }
        desired
    }

    /// Applies changes of the plan.
    pub(super) fn update(&mut self, plan: &Plan, touched: &Touched, scheduler: Scheduler) -> Affected {
        let mut keys = touched.ports.clone();
        if touched.node {
            keys.extend(
                self.ports.iter().filter(|(_, port_servers)| port_servers.has_node_port).map(|(key, _)| key.clone()),
            );
        }
        let mut affected = Affected::default();
        for key in &keys {
            if let Some(port_servers) = self.remove(key) {
                affected.add(&port_servers);
            }
        }
        for key in &keys {
            if let Some(port) = plan.ports.get(key) {
                let port_servers = servers::of(plan, port, scheduler);
                affected.add(&port_servers);
                self.insert(key, port_servers);
            }
        }
        affected
    }

    fn insert(&mut self, key: &PortKey, port_servers: PortServers) {
        for ip in &port_servers.addresses {
            *self.addresses.entry(*ip).or_default() += 1;
        }
        self.exclusive.extend(&port_servers.exclusive);
        self.servers.extend(port_servers.servers.iter().map(|(server, wanted)| (*server, wanted.clone())));
        self.ports.insert(key.clone(), port_servers);
    }

    fn remove(&mut self, key: &PortKey) -> Option<PortServers> {
        let port_servers = self.ports.remove(key)?;
        for ip in &port_servers.addresses {
            if let Some(count) = self.addresses.get_mut(ip) {
                *count -= 1;
                if *count == 0 {
                    self.addresses.remove(ip);
                }
            }
        }
        for server in port_servers.servers.keys() {
            self.servers.remove(server);
        }
        for server in &port_servers.exclusive {
            self.exclusive.remove(server);
        }
        Some(port_servers)
    }
}
