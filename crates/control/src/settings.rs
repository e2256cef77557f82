//! What the command line says to controllers.

use std::time::Duration;

use ipnet::IpNet;
use store::allocation::Ranges;

/// Settings of the controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Addresses and ports for Services.
    pub ranges: Ranges,
    /// How many endpoints a slice holds at most.
    pub max_endpoints_per_slice: usize,
    /// Whether Services say in their status what they have and what they lack.
    pub service_conditions: bool,
    /// Addresses for Pods, cut into a piece for each Node; none leaves Nodes alone.
    pub cluster_cidrs: Vec<IpNet>,
    /// How long the prefix of a Node's piece is, for IPv4 and IPv6.
    pub node_masks: (u8, u8),
    /// How long a Node may be silent before it counts as lost.
    pub node_grace: Duration,
}

impl Settings {
    /// What a bare server does: no more than Kubernetes would.
    #[must_use]
    pub const fn plain(ranges: Ranges) -> Self {
        Self {
            ranges,
            max_endpoints_per_slice: 100,
            service_conditions: false,
            cluster_cidrs: Vec::new(),
            node_masks: (24, 64),
            node_grace: Duration::from_secs(50),
        }
    }
}
