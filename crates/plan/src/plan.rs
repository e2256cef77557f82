//! What the proxy of a node must do, and what an update changed of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use ipnet::IpNet;

use crate::claims::{Frontend, Frontends, Role};
use crate::options::{LocalDetector, Options};
use crate::service_port::{PortKey, ServicePort};

/// What the proxy must do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// What the command line says.
    pub options: Options,
    /// Every Service port.
    pub ports: BTreeMap<PortKey, Arc<ServicePort>>,
    /// Who claims each frontend, in order; the first has it.
    pub frontends: Frontends,
    /// Cluster IPs that are in use, and by how many Services.
    pub cluster_ips: BTreeMap<IpAddr, usize>,
    /// What load balancers are told when they ask for this node's health, per Service and family.
    pub health: BTreeMap<(Arc<str>, Family), Health>,
    /// The ranges of Service addresses, as few as possible: none touches another.
    pub ranges: Vec<IpNet>,
    /// The addresses on which node ports are served.
    pub node_port_ips: BTreeSet<IpAddr>,
    /// The addresses the Node object names.
    pub node_ips: Vec<IpAddr>,
    /// The addresses of Pods of this node, as the Node object names them.
    pub node_pods: Vec<IpNet>,
    /// The zone of the node.
    pub zone: Option<Box<str>>,
    /// Whether load balancers may send traffic to this node.
    pub node_eligible: bool,
}

/// What load balancers are told about a Service when they ask for the health of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Where they ask.
    pub port: u16,
    /// How many addresses of endpoints of this node are ready and there to stay.
    pub local_ready: usize,
}

/// What an update changed in the plan. It may name a port that is as before; it never misses one that is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Service ports that are new, changed or gone, that got or lost a frontend, or whose health changed.
    pub ports: BTreeSet<PortKey>,
    /// Addresses that became cluster IPs, or are none any more.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Whether `node_port_ips`, `node_ips`, `node_pods`, `zone` or `node_eligible` changed.
    pub node: bool,
    /// Whether `ranges` changed.
    pub ranges: bool,
    /// Whether there is something new to know, or something that is so no more.
    pub problems: bool,
}

impl Touched {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { ports, cluster_ips, node, ranges, problems } = self;
        ports.is_empty() && cluster_ips.is_empty() && !node && !ranges && !problems
    }

    /// Adds what a later update changed.
    pub fn absorb(&mut self, later: Self) {
        self.ports.extend(later.ports);
        self.cluster_ips.extend(later.cluster_ips);
        self.node |= later.node;
        self.ranges |= later.ranges;
        self.problems |= later.problems;
    }
}

/// Something a person should know about a Service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// `namespace/name`.
    pub service: Arc<str>,
    /// A sentence.
    pub what: String,
}

impl Plan {
    /// The addresses of Pods of this node in a family: all addresses of Pods where nobody says which are here.
    #[must_use]
    pub fn own_pods(&self, family: Family) -> &[IpNet] {
        let known = self.node_pods.iter().any(|range| Family::of(range.addr()) == family);
        match &self.options.local {
            LocalDetector::Ranges(ranges) if !known => ranges,
            _ => &self.node_pods,
        }
    }

    /// Whether a packet from a Pod comes from one of another node.
    #[must_use]
    pub fn is_pod_elsewhere(&self, source: IpAddr) -> bool {
        let by_address = matches!(self.options.local, LocalDetector::Ranges(_));
        by_address && !self.own_pods(Family::of(source)).iter().any(|range| range.contains(&source))
    }

    /// Who has a frontend, and as what.
    #[must_use]
    pub fn owner(&self, frontend: &Frontend) -> Option<(Role, &ServicePort)> {
        let (role, key) = self.frontends.get(frontend)?.first()?;
        Some((*role, self.ports.get(key)?))
    }
}
