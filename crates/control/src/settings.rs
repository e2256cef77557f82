//! What the command line says to controllers.

use std::time::Duration;

use ipnet::IpNet;
use store::allocation::Ranges;

use crate::certificates::Signer;

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
    /// What machines that join must know of the cluster: a kubeconfig without a user.
    pub cluster_info: Option<String>,
    /// Who signs certificates for nodes, if somebody does.
    pub signer: Option<Signer>,
    /// How long such certificates are good, unless a shorter time is asked for.
    pub certificate_lifetime: Duration,
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
            cluster_info: None,
            signer: None,
            certificate_lifetime: Duration::from_secs(365 * 86_400),
        }
    }
}
