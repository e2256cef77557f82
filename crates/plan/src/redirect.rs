//! Redirects: the load-balancer addresses of a Service port lead to a listener of this node, such as the gateway's, or to
//! the endpoints of another Service port, instead of to the endpoints of the Service.
//!
//! In: [`Redirect`]s. Out: the listener of a redirected port as an endpoint, the Service port that serves it directly, and
//! which Services depend on the endpoints of another. A redirected port is an ordinary Service port with the load-balancer
//! addresses as its only frontends, so no backend needs rules for it. Without a redirect it has no endpoint, and
//! connections are rejected.
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

/// Where the load-balancer addresses of a port lead on this node, in the family of the listener.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Redirect {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Port name, possibly empty.
    pub port: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Where the listener is on this node. It serves whatever `direct` does not.
    pub listener: SocketAddr,
    /// The Service port whose endpoints get new connections in place of the listener, while one of them can serve in this
    /// family. Clients are masqueraded, as with `externalTrafficPolicy: Cluster`.
    pub direct: Option<ServicePortName>,
    /// The Service ports that are served here, directly or by the listener: UDP flows to their serving endpoints stay when
    /// `direct` changes.
    pub backends: BTreeSet<ServicePortName>,
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
        self.ports.get(key).filter(|_| key.redirected)
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
        PortKey { service, port, protocol: self.protocol, family: Family::of(self.listener.ip()), redirected: true }
    }

    /// A Service port, by the protocol and in the family of this redirect.
    fn key_of(&self, ServicePortName { service, port }: &ServicePortName) -> PortKey {
        PortKey { service: Arc::clone(service), port: Arc::clone(port), redirected: false, ..self.key() }
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
        port.external_local = redirected.and_then(|redirected| self.direct(redirected)).is_none();
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
