//! One port of one Service in one family: everything a backend needs to know about it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::Protocol;
use ipnet::IpNet;

use crate::claims::{Frontend, Role};

/// Names one port of one Service in one family.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PortKey {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// The name of the port, empty if it has none.
    pub port: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The family.
    pub family: Family,
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, port, protocol, .. } = self;
        if port.is_empty() { write!(f, "{service}/{protocol}") } else { write!(f, "{service}:{port}/{protocol}") }
    }
}

/// Where a connection can go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Backend {
    /// The address.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
}

/// One port of one Service in one family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServicePort {
    /// Its name.
    pub key: PortKey,
    /// Its cluster IP.
    pub cluster_ip: IpAddr,
    /// Its number there, and on external and load-balancer addresses.
    pub port: u16,
    /// Its number on nodes.
    pub node_port: Option<u16>,
    /// External addresses.
    pub external_ips: Vec<IpAddr>,
    /// Load-balancer addresses that packets arrive with.
    pub lb_ips: Vec<IpAddr>,
    /// Who may use the load-balancer addresses, as ranges that do not overlap; none leaves them open to everybody, an
    /// empty list to nobody.
    pub source_ranges: Option<Vec<IpNet>>,
    /// Whether the load-balancer addresses may use themselves: a node that has such an address may send with it, and
    /// this node is in the ranges.
    pub own_vips_allowed: bool,
    /// How long clients stay with an endpoint, in seconds.
    pub affinity: Option<u32>,
    /// Whether traffic from inside stays on its node.
    pub internal_local: bool,
    /// Whether traffic from outside stays on its node.
    pub external_local: bool,
    /// Where load balancers ask for the node's health.
    pub health_port: Option<u16>,
    /// Endpoints for traffic that may go anywhere; like all lists of them in order, each once.
    pub cluster: Vec<Backend>,
    /// Endpoints of this node.
    pub local: Vec<Backend>,
    /// Endpoints of this node that get traffic: they may meet themselves.
    pub hairpin: Vec<Backend>,
    /// Whether there is an endpoint anywhere that could answer.
    pub has_any: bool,
    /// How many addresses of endpoints of this node are ready and there to stay.
    pub local_ready: usize,
    /// Every endpoint that still answers, wanted or not: their flows are left alone.
    pub serving: Vec<Backend>,
}

impl ServicePort {
    /// What its Service says of it, without its endpoints.
    pub(crate) fn bare(&self) -> Self {
        Self {
            key: self.key.clone(),
            cluster_ip: self.cluster_ip,
            port: self.port,
            node_port: self.node_port,
            external_ips: self.external_ips.clone(),
            lb_ips: self.lb_ips.clone(),
            source_ranges: self.source_ranges.clone(),
            own_vips_allowed: false,
            affinity: self.affinity,
            internal_local: self.internal_local,
            external_local: self.external_local,
            health_port: self.health_port,
            cluster: Vec::new(),
            local: Vec::new(),
            hairpin: Vec::new(),
            has_any: false,
            local_ready: 0,
            serving: Vec::new(),
        }
    }

    /// Where packets to it arrive.
    #[must_use]
    pub fn frontends(&self) -> Vec<(Frontend, Role)> {
        let at = |ip: IpAddr| Frontend::Address(ip, self.key.protocol, self.port);
        let mut found = Vec::with_capacity(2 + self.lb_ips.len() + self.external_ips.len());
        found.push((at(self.cluster_ip), Role::Cluster));
        found.extend(self.lb_ips.iter().map(|ip| (at(*ip), Role::LoadBalancer)));
        found.extend(self.external_ips.iter().map(|ip| (at(*ip), Role::External)));
        if let Some(number) = self.node_port {
            found.push((Frontend::NodePort(self.key.family, self.key.protocol, number), Role::NodePort));
        }
        found
    }

    /// Whether traffic from outside can reach it.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.node_port.is_some() || !self.lb_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Whether endpoints of the whole cluster are used.
    #[must_use]
    pub fn uses_cluster(&self) -> bool {
        !self.internal_local || self.is_external()
    }

    /// Whether endpoints of this node alone are used.
    #[must_use]
    pub fn uses_local(&self) -> bool {
        self.internal_local || (self.external_local && self.is_external())
    }
}
