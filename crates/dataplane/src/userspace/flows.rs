//! Flows as the rest of the program should see them while the relay serves Services.
//!
//! Stale UDP flows are found by the endpoint that answers them. A flow to the door of its Service is answered by the door, and is
//! as it should be; the relay itself looks after the endpoints behind it. So these are not shown, and all others are: flows that
//! began while no rule was there, flows of another mode, flows to doors of an earlier run, and flows by ways that are no more.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use kernel::conntrack::{Conntrack, ConntrackError, Counted, Flow};
use parking_lot::Mutex;
use plan::{Frontend, PortKey, Protocol};

use crate::nft::kernel_family;
use crate::nft::relayed::Doors;

/// Connection tracking without the flows of the relay.
pub struct Flows<C> {
    all: C,
    ways: Arc<Mutex<Ways>>,
}

/// By which ways UDP comes to which doors.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Addresses at which node ports are served.
    pub(super) node_ips: BTreeSet<IpAddr>,
    frontends: HashMap<Frontend, (PortKey, Doors)>,
    ports: HashMap<PortKey, Vec<Frontend>>,
}

impl Ways {
    /// A Service port is reached by these frontends, or by none any more.
    pub(super) fn set(&mut self, key: &PortKey, frontends: Vec<Frontend>, doors: Doors) {
        for old in self.ports.remove(key).into_iter().flatten() {
            if self.frontends.get(&old).is_some_and(|(owner, _)| owner == key) {
                self.frontends.remove(&old);
            }
        }
        self.frontends.extend(frontends.iter().map(|frontend| (*frontend, (key.clone(), doors))));
        if !frontends.is_empty() {
            self.ports.insert(key.clone(), frontends);
        }
    }

    /// Whether a flow leads where a new packet would be sent.
    fn has(&self, family: Family, flow: &Flow) -> bool {
        let asked = flow.original.destination;
        let address = Frontend::Address(asked.ip(), Protocol::Udp, asked.port());
        let node_port = Frontend::NodePort(family, Protocol::Udp, asked.port());
        let found = self
            .frontends
            .get(&address)
            .or_else(|| self.frontends.get(&node_port).filter(|_| self.node_ips.contains(&asked.ip())));
        let door = Some(flow.reply.source.port());
        found.is_some_and(|(_, doors)| door == doors.anywhere || door == doors.here)
    }
}

impl<C: Conntrack> Flows<C> {
    pub(super) const fn new(all: C, ways: Arc<Mutex<Ways>>) -> Self {
        Self { all, ways }
    }
}

impl<C: Conntrack> Conntrack for Flows<C> {
    fn udp_flows(&mut self, family: kernel::Family) -> Result<Vec<Flow>, ConntrackError> {
        let mut flows = self.all.udp_flows(family)?;
        let ways = self.ways.lock();
        let family = if family == kernel_family(Family::V4) { Family::V4 } else { Family::V6 };
        flows.retain(|flow| !ways.has(family, flow));
        Ok(flows)
    }

    fn led_flows(&mut self, family: kernel::Family) -> Result<Vec<Counted>, ConntrackError> {
        self.all.led_flows(family)
    }

    fn delete(&mut self, flows: &[Flow]) -> Result<usize, ConntrackError> {
        self.all.delete(flows)
    }
}
