//! The plan of a node's proxy, and what an update changed in it.

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
    /// Command line options.
    pub options: Options,
    /// All Service ports.
    pub ports: BTreeMap<PortKey, Arc<ServicePort>>,
    /// Claims of each frontend, in order; the first one owns it.
    pub frontends: Frontends,
    /// Cluster IPs in use, and the number of Services of each.
    pub cluster_ips: BTreeMap<IpAddr, usize>,
    /// Health-check state per Service and family.
    pub health: BTreeMap<(Arc<str>, Family), Health>,
    /// Service CIDRs, aggregated.
    pub ranges: Vec<IpNet>,
    /// Addresses that serve node ports.
    pub node_port_ips: BTreeSet<IpAddr>,
    /// Addresses of the Node object.
    pub node_ips: Vec<IpAddr>,
    /// Pod CIDRs of the Node object.
    pub node_pods: Vec<IpNet>,
    /// Zone of the node.
    pub zone: Option<Box<str>>,
    /// Whether load balancers may send traffic to this node.
    pub node_eligible: bool,
}

/// Health-check state of a Service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Health-check node port.
    pub port: u16,
    /// Number of ready local endpoint addresses that are not terminating.
    pub local_ready: usize,
}

/// What an update changed in the plan. It may name a port that is unchanged; it never misses a changed one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Service ports that were added, changed or deleted, that gained or lost a frontend, or whose health changed.
    pub ports: BTreeSet<PortKey>,
    /// Addresses that became cluster IPs or stopped being one.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Whether `node_port_ips`, `node_ips`, `node_pods`, `zone` or `node_eligible` changed.
    pub node: bool,
    /// Whether `ranges` changed.
    pub ranges: bool,
    /// Whether problems appeared or disappeared.
    pub problems: bool,
}

impl Touched {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { ports, cluster_ips, node, ranges, problems } = self;
        ports.is_empty() && cluster_ips.is_empty() && !node && !ranges && !problems
    }

    /// Merges a later change.
    pub fn absorb(&mut self, later: Self) {
        self.ports.extend(later.ports);
        self.cluster_ips.extend(later.cluster_ips);
        self.node |= later.node;
        self.ranges |= later.ranges;
        self.problems |= later.problems;
    }
}

/// A problem with a Service, for its owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// `namespace/name`.
    pub service: Arc<str>,
    /// Description.
    pub what: String,
}

impl Plan {
    /// Pod ranges of this node in a family; those of all Pods where the node's own are unknown.
    #[must_use]
    pub fn own_pods(&self, family: Family) -> &[IpNet] {
        let known = self.node_pods.iter().any(|range| Family::of(range.addr()) == family);
        match &self.options.local {
            LocalDetector::Ranges(ranges) if !known => ranges,
            _ => &self.node_pods,
        }
    }

    /// Whether the address belongs to a Pod of another node.
    #[must_use]
    pub fn is_pod_elsewhere(&self, source: IpAddr) -> bool {
        let by_address = matches!(self.options.local, LocalDetector::Ranges(_));
        by_address && !self.own_pods(Family::of(source)).iter().any(|range| range.contains(&source))
    }

    /// The owner of a frontend, and its role.
    #[must_use]
    pub fn owner(&self, frontend: &Frontend) -> Option<(Role, &ServicePort)> {
        let (role, key) = self.frontends.get(frontend)?.first()?;
        Some((*role, self.ports.get(key)?))
    }
}
