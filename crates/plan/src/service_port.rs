//! One port of one Service in one family: everything a backend needs.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::Protocol;
use ipnet::IpNet;

use crate::balancing::Balancing;
use crate::claims::{Frontend, Role};
use crate::redirect::{Redirect, RedirectedFrontends, ServicePortName};

/// Identifies one port of one Service in one family.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PortKey {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Port name, possibly empty.
    pub port: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Family.
    pub family: Family,
    /// The frontends of this part of the port, if they are redirected ([`Redirect`]). All others are in a part without.
    pub redirected: Option<RedirectedFrontends>,
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, port, protocol, .. } = self;
        if port.is_empty() { write!(f, "{service}/{protocol}") } else { write!(f, "{service}:{port}/{protocol}") }?;
        f.write_str(self.redirected.map_or("", RedirectedFrontends::suffix))
    }
}

/// Address and port of an endpoint.
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
    /// Its key.
    pub key: PortKey,
    /// Cluster IP; none where a redirect has it, and for redirected load-balancer addresses.
    pub cluster_ip: Option<IpAddr>,
    /// Where a redirected port leads; none while nothing serves it, and for all other ports.
    pub redirect: Option<Arc<Redirect>>,
    /// Port on cluster, external and load balancer IPs.
    pub port: u16,
    /// Node port.
    pub node_port: Option<u16>,
    /// External IPs.
    pub external_ips: Vec<IpAddr>,
    /// Load balancer IPs in VIP mode.
    pub lb_ips: Vec<IpAddr>,
    /// Allowed sources of the load balancer IPs, aggregated; none means everyone, an empty list no one.
    pub source_ranges: Option<Vec<IpNet>>,
    /// Whether load balancer IPs are allowed as sources: a node that has such an address may use it as its source, and
    /// this node is in the ranges.
    pub own_vips_allowed: bool,
    /// How a connection selects an endpoint, unless session affinity does.
    pub balancing: Balancing,
    /// Session affinity timeout in seconds.
    pub affinity: Option<u32>,
    /// Whether internalTrafficPolicy is Local. Of a redirected cluster IP: whether the listener serves it.
    pub internal_local: bool,
    /// Whether externalTrafficPolicy is Local. Of redirected load-balancer addresses: whether the listener serves them.
    pub external_local: bool,
    /// Health-check node port.
    pub health_port: Option<u16>,
    /// Endpoints for the policy Cluster, sorted and deduplicated, as all lists.
    pub cluster: Vec<Backend>,
    /// Endpoints on this node.
    pub local: Vec<Backend>,
    /// Endpoints on this node that get traffic and may connect to themselves.
    pub hairpin: Vec<Backend>,
    /// Whether any endpoint in the cluster can serve.
    pub has_any: bool,
    /// Number of ready local endpoint addresses that are not terminating.
    pub local_ready: usize,
    /// All serving endpoints: their flows are not stale.
    pub serving: Vec<Backend>,
}

impl ServicePort {
    /// A port without frontends and endpoints.
    pub(crate) const fn new(key: PortKey, port: u16) -> Self {
        Self {
            key,
            cluster_ip: None,
            redirect: None,
            port,
            node_port: None,
            external_ips: Vec::new(),
            lb_ips: Vec::new(),
            source_ranges: None,
            own_vips_allowed: false,
            balancing: Balancing::Random,
            affinity: None,
            internal_local: false,
            external_local: false,
            health_port: None,
            cluster: Vec::new(),
            local: Vec::new(),
            hairpin: Vec::new(),
            has_any: false,
            local_ready: 0,
            serving: Vec::new(),
        }
    }

    /// The port without its endpoints and its redirect.
    pub(crate) fn bare(&self) -> Self {
        Self {
            cluster_ip: self.cluster_ip,
            node_port: self.node_port,
            external_ips: self.external_ips.clone(),
            lb_ips: self.lb_ips.clone(),
            source_ranges: self.source_ranges.clone(),
            affinity: self.affinity,
            internal_local: self.internal_local,
            external_local: self.external_local,
            health_port: self.health_port,
            ..Self::new(self.key.clone(), self.port)
        }
    }

    /// The Service port whose endpoints serve this redirected port in place of the listener.
    #[must_use]
    pub fn served_by(&self) -> Option<&ServicePortName> {
        self.redirect.as_ref()?.direct.as_ref().filter(|_| !self.is_at_listener())
    }

    /// Whether this is a redirected port that its listener serves, if anything does.
    #[must_use]
    pub const fn is_at_listener(&self) -> bool {
        match self.key.redirected {
            Some(RedirectedFrontends::LoadBalancer) => self.external_local,
            Some(RedirectedFrontends::ClusterIp) => self.internal_local,
            None => false,
        }
    }

    /// Its frontends.
    #[must_use]
    pub fn frontends(&self) -> Vec<(Frontend, Role)> {
        let at = |ip: IpAddr| Frontend::Address(ip, self.key.protocol, self.port);
        let mut found = Vec::with_capacity(2 + self.lb_ips.len() + self.external_ips.len());
        found.extend(self.cluster_ip.map(|ip| (at(ip), Role::Cluster)));
        found.extend(self.lb_ips.iter().map(|ip| (at(*ip), Role::LoadBalancer)));
        found.extend(self.external_ips.iter().map(|ip| (at(*ip), Role::External)));
        if let Some(number) = self.node_port {
            found.push((Frontend::NodePort(self.key.family, self.key.protocol, number), Role::NodePort));
        }
        found
    }

    /// Whether it has external frontends.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.node_port.is_some() || !self.lb_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Whether it uses endpoints of the whole cluster.
    #[must_use]
    pub fn uses_cluster(&self) -> bool {
        !self.internal_local || self.is_external()
    }

    /// Whether it uses endpoints of this node only.
    #[must_use]
    pub fn uses_local(&self) -> bool {
        self.internal_local || (self.external_local && self.is_external())
    }
}
