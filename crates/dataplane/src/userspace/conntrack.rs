//! Conntrack without the flows of the relay.
//!
//! Stale UDP flows are detected by the endpoint that replies. Flows to a relay listener of their Service are valid, and
//! the relay itself tracks the endpoints behind it; so they are hidden. All others are shown: flows that began before
//! the rules, flows of another mode, flows to listeners of an earlier run, and flows to removed frontends.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use kernel::conntrack::{Conntrack, ConntrackError, Counted, Flow};
use parking_lot::Mutex;
use plan::{Frontend, PortKey, Protocol};

use crate::nft::kernel_family;
use crate::nft::redirect::RelayPorts;

/// Conntrack without the flows of the relay.
pub struct RelayConntrack<C> {
    all: C,
    relayed: Arc<Mutex<RelayedFrontends>>,
}

/// UDP frontends and the relay ports they are redirected to.
#[derive(Debug, Default)]
pub(super) struct RelayedFrontends {
    /// Addresses that serve node ports.
    pub(super) node_ips: BTreeSet<IpAddr>,
    frontends: HashMap<Frontend, (PortKey, RelayPorts)>,
    ports: HashMap<PortKey, Vec<Frontend>>,
}

impl RelayedFrontends {
    /// Replaces the frontends of a Service port.
    pub(super) fn set(&mut self, key: &PortKey, frontends: Vec<Frontend>, ports: RelayPorts) {
        for old in self.ports.remove(key).into_iter().flatten() {
            if self.frontends.get(&old).is_some_and(|(owner, _)| owner == key) {
                self.frontends.remove(&old);
            }
        }
        self.frontends.extend(frontends.iter().map(|frontend| (*frontend, (key.clone(), ports))));
        if !frontends.is_empty() {
            self.ports.insert(key.clone(), frontends);
        }
    }

    /// Whether a new packet would create this flow.
    fn has(&self, family: Family, flow: &Flow) -> bool {
        let asked = flow.original.destination;
        let address = Frontend::Address(asked.ip(), Protocol::Udp, asked.port());
        let node_port = Frontend::NodePort(family, Protocol::Udp, asked.port());
        let found = self
            .frontends
            .get(&address)
            .or_else(|| self.frontends.get(&node_port).filter(|_| self.node_ips.contains(&asked.ip())));
        let port = Some(flow.reply.source.port());
        found.is_some_and(|(_, ports)| port == ports.cluster || port == ports.local)
    }
}

impl<C: Conntrack> RelayConntrack<C> {
    pub(super) const fn new(all: C, relayed: Arc<Mutex<RelayedFrontends>>) -> Self {
        Self { all, relayed }
    }
}

impl<C: Conntrack> Conntrack for RelayConntrack<C> {
    fn udp_flows(&mut self, family: kernel::Family) -> Result<Vec<Flow>, ConntrackError> {
        let mut flows = self.all.udp_flows(family)?;
        let relayed = self.relayed.lock();
        let family = if family == kernel_family(Family::V4) { Family::V4 } else { Family::V6 };
        flows.retain(|flow| !relayed.has(family, flow));
        Ok(flows)
    }

    fn translated_flows(&mut self, family: kernel::Family) -> Result<Vec<Counted>, ConntrackError> {
        self.all.translated_flows(family)
    }

    fn delete(&mut self, flows: &[Flow]) -> Result<usize, ConntrackError> {
        self.all.delete(flows)
    }
}
