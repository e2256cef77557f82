//! Redirects: the load-balancer addresses or the cluster IP of a Service port lead to a listener of this node, such as the
//! gateway's, or to the endpoints of another Service port, instead of to the endpoints of the Service.
//!
//! In: [`Redirect`]s. Out: the listener of a redirected port as an endpoint, the Service port that serves it directly, and
//! which Services depend on the endpoints of another. A redirected port is an ordinary Service port with the redirected
//! addresses as its only frontends, so no backend needs rules for it.
//!
//! Load-balancer addresses are redirected because the Service says so: without a redirect they have no endpoint, and
//! connections are rejected. A cluster IP is redirected as long as there is a redirect: the port is split, and whole again, in
//! the update in which the redirect comes and goes, and no connection finds neither.
//!
//! The planner decides between listener and endpoints, from the same slices as everything else: the listener takes over in
//! the same update in which the last endpoint vanishes, and no connection finds neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::Protocol;

use crate::address::endpoint_error;
use crate::endpoints::{Endpoint, Location, PortEndpoint};
use crate::options::Options;
use crate::planner::Planner;
use crate::service_port::{Backend, PortKey, ServicePort};

/// Where frontends of a port lead on this node, in the family of the listener.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Redirect {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Port name, possibly empty.
    pub port: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Which frontends. All others lead to the endpoints of the Service.
    pub frontends: RedirectedFrontends,
    /// Where the listener is on this node. It serves whatever `direct` does not.
    pub listener: SocketAddr,
    /// The Service port whose endpoints get new connections in place of the listener, while one of them can serve in this
    /// family. Clients are masqueraded, as with `externalTrafficPolicy: Cluster`.
    pub direct: Option<ServicePortName>,
    /// The Service ports that are served here, directly or by the listener: UDP flows to their serving endpoints stay when
    /// `direct` changes.
    pub backends: BTreeSet<ServicePortName>,
}

/// The frontends of a port that a redirect takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RedirectedFrontends {
    /// The load-balancer addresses, of a port that uses the gateway.
    LoadBalancer,
    /// The cluster IP, of any port. The traffic policies and the session affinity of the Service do not apply to it then.
    ClusterIp,
}

impl RedirectedFrontends {
    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "LoadBalancer",
            Self::ClusterIp => "ClusterIP",
        }
    }

    /// What a port is called in addition to its name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::LoadBalancer => " at the gateway",
            Self::ClusterIp => " at layer 7",
        }
    }
}

/// A port of a Service by its names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServicePortName {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Port name, possibly empty.
    pub port: Arc<str>,
}

impl fmt::Display for ServicePortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, port } = self;
        if port.is_empty() { f.write_str(service) } else { write!(f, "{service}:{port}") }
    }
}

/// All redirects that can be used.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    ports: BTreeMap<PortKey, Redirected>,
    /// For each Service, the Services with redirects that depend on its endpoints.
    dependents: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

/// A redirected port.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Redirected {
    redirect: Arc<Redirect>,
    /// The listener, as an endpoint of this node.
    listener: (Backend, Endpoint),
    /// Keys of `direct` and of `backends`.
    direct: Option<PortKey>,
    backends: Box<[PortKey]>,
}

impl Redirects {
    pub(crate) fn of(redirects: &BTreeSet<Redirect>, options: &Options) -> Self {
        let usable = |redirect: &&Redirect| endpoint_error(redirect.listener.ip(), options.rootless).is_none();
        let here = Arc::new(Location { node: Some(options.node_name.as_str().into()), ..Location::default() });
        let mut all = Self::default();
        for redirect in redirects.iter().filter(usable) {
            for target in redirect.direct.iter().chain(&redirect.backends) {
                let dependents = all.dependents.entry(Arc::clone(&target.service)).or_default();
                dependents.insert(Arc::clone(&redirect.service));
            }
            all.ports.insert(redirect.key(), Redirected::new(redirect, &here));
        }
        all
    }

    /// The redirect of a port.
    pub(crate) fn get(&self, key: &PortKey) -> Option<&Redirected> {
        self.ports.get(key)
    }

    /// Number of redirects of cluster IPs.
    pub(crate) fn of_cluster_ips(&self) -> usize {
        self.ports.keys().filter(|key| key.redirected == Some(RedirectedFrontends::ClusterIp)).count()
    }

    /// Splits the ports whose cluster IP is redirected: it moves to a part of its own. Other frontends stay, also if there
    /// are none.
    pub(crate) fn split(&self, ports: &mut Vec<ServicePort>) {
        for index in 0..ports.len() {
            let port = &mut ports[index];
            let key = PortKey { redirected: Some(RedirectedFrontends::ClusterIp), ..port.key.clone() };
            if port.key.redirected.is_some() || !self.ports.contains_key(&key) {
                continue;
            }
            let cluster_ip = port.cluster_ip.take();
            let part = ServicePort { cluster_ip, ..ServicePort::new(key, port.port) };
            ports.push(part);
        }
    }

    /// Services whose plan depends on the endpoints of this one.
    pub(crate) fn dependents(&self, service: &str) -> impl Iterator<Item = &Arc<str>> {
        self.dependents.get(service).into_iter().flatten()
    }

    /// Services whose redirects differ.
    pub(crate) fn changed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<str>> {
        let differs = |key: &&PortKey| self.ports.get(*key) != other.ports.get(*key);
        self.ports.keys().chain(other.ports.keys()).filter(differs).map(|key| &key.service)
    }
}

/// Ports without their endpoints and redirects, before they were split.
pub(crate) fn unsplit(ports: &[Arc<ServicePort>]) -> Vec<ServicePort> {
    let is_split_off = |port: &ServicePort| port.key.redirected == Some(RedirectedFrontends::ClusterIp);
    let mut whole: Vec<ServicePort> = ports.iter().filter(|port| !is_split_off(port)).map(|port| port.bare()).collect();
    for part in ports.iter().filter(|port| is_split_off(port)) {
        let key = PortKey { redirected: None, ..part.key.clone() };
        if let Some(port) = whole.iter_mut().find(|port| port.key == key) {
            port.cluster_ip = part.cluster_ip;
        }
    }
    whole
}

impl Redirected {
    fn new(redirect: &Redirect, here: &Arc<Location>) -> Self {
        Self {
            redirect: Arc::new(redirect.clone()),
            listener: redirect.endpoint(here),
            direct: redirect.direct.as_ref().map(|target| redirect.key_of(target)),
            backends: redirect.backends.iter().map(|target| redirect.key_of(target)).collect(),
        }
    }

    /// The listener.
    pub(crate) const fn listener(&self) -> PortEndpoint<'_> {
        PortEndpoint { backend: self.listener.0, endpoint: &self.listener.1 }
    }
}

impl Redirect {
    fn key(&self) -> PortKey {
        let (service, port) = (Arc::clone(&self.service), Arc::clone(&self.port));
        let (family, redirected) = (Family::of(self.listener.ip()), Some(self.frontends));
        PortKey { service, port, protocol: self.protocol, family, redirected }
    }

    /// A Service port, by the protocol and in the family of this redirect.
    fn key_of(&self, ServicePortName { service, port }: &ServicePortName) -> PortKey {
        PortKey { service: Arc::clone(service), port: Arc::clone(port), redirected: None, ..self.key() }
    }

    fn endpoint(&self, here: &Arc<Location>) -> (Backend, Endpoint) {
        let (ip, location) = (self.listener.ip(), Arc::clone(here));
        let endpoint =
            Endpoint { ip, ready: true, serving: true, terminating: false, local: true, location, pod: None };
        (Backend { ip, port: self.listener.port() }, endpoint)
    }
}

impl Planner {
    /// Sets where a redirected port leads. A listener of this node sees clients with their addresses.
    pub(crate) fn set_redirect(&self, port: &mut ServicePort) {
        let redirected = self.redirects.get(&port.key);
        port.redirect = redirected.map(|redirected| Arc::clone(&redirected.redirect));
        let is_at_listener = redirected.and_then(|redirected| self.direct(redirected)).is_none();
        match port.key.redirected {
            Some(RedirectedFrontends::LoadBalancer) => port.external_local = is_at_listener,
            Some(RedirectedFrontends::ClusterIp) => port.internal_local = is_at_listener,
            None => {}
        }
    }

    /// The endpoints that serve a redirected port in place of its listener, if one of them can serve.
    pub(crate) fn direct<'a>(&'a self, redirected: &'a Redirected) -> Option<Vec<PortEndpoint<'a>>> {
        let found = self.of_service_port(redirected.direct.as_ref()?);
        let can_serve = |seen: &PortEndpoint<'_>| seen.endpoint.can_serve() && !self.is_cluster_ip(seen.backend.ip);
        found.iter().any(can_serve).then_some(found)
    }

    /// Adds what keeps the flows of a redirected port beside its endpoints: a change of the redirect moves no flow whose
    /// listener or endpoint is still there.
    pub(crate) fn keep_flows(&self, port: &mut ServicePort) {
        let Some(redirected) = self.redirects.get(&port.key) else { return };
        let of_backends = redirected.backends.iter().flat_map(|key| self.of_service_port(key));
        let keeps = |seen: &PortEndpoint<'_>| seen.endpoint.serving && !self.is_cluster_ip(seen.backend.ip);
        let keeping = of_backends.chain([redirected.listener()]).filter(keeps);
        port.serving.extend(keeping.map(|seen| seen.backend));
        port.serving.sort_unstable();
        port.serving.dedup();
    }

    /// Endpoints in the slices of a Service port, whether the Service is planned or not.
    fn of_service_port<'a>(&'a self, key: &'a PortKey) -> Vec<PortEndpoint<'a>> {
        self.services.get(&key.service).map(|state| self.of_slices(state, key)).unwrap_or_default()
    }
}
