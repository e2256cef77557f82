//! Redirects: the load-balancer addresses of a Service port lead to a listener of this node, such as the gateway's,
//! instead of to the endpoints of the Service.
//!
//! In: the listeners, as [`Redirect`]s. Out: the endpoint of a redirected port, by its key. A redirected port is an
//! ordinary Service port with the load-balancer addresses as its only frontends and `externalTrafficPolicy: Local`, so
//! no backend needs rules for it. Without a listener it has no endpoint, and connections are rejected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use api::ip::Family;
use api::view::Protocol;

use crate::address::endpoint_error;
use crate::endpoints::{Endpoint, Location, PortEndpoint};
use crate::options::Options;
use crate::service_port::{Backend, PortKey};

/// A listener for the load-balancer addresses of a port, in the family of its own address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Redirect {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Port name, possibly empty.
    pub port: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Where it listens on this node.
    pub listener: SocketAddr,
}

/// The listener of each redirected port, as an endpoint of this node.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Redirects(BTreeMap<PortKey, (Backend, Endpoint)>);

impl Redirects {
    pub(crate) fn of(redirects: &BTreeSet<Redirect>, options: &Options) -> Self {
        let usable = |redirect: &&Redirect| endpoint_error(redirect.listener.ip(), options.rootless).is_none();
        let here = Arc::new(Location { node: Some(options.node_name.as_str().into()), ..Location::default() });
        Self(redirects.iter().filter(usable).map(|redirect| (redirect.key(), redirect.endpoint(&here))).collect())
    }

    /// The endpoint of a redirected port.
    pub(crate) fn endpoint(&self, key: &PortKey) -> Option<PortEndpoint<'_>> {
        self.0.get(key).map(|(backend, endpoint)| PortEndpoint { backend: *backend, endpoint })
    }

    /// Services whose redirects differ.
    pub(crate) fn changed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<str>> {
        let differs = |key: &&PortKey| self.0.get(*key) != other.0.get(*key);
        self.0.keys().chain(other.0.keys()).filter(differs).map(|key| &key.service)
    }
}

impl Redirect {
    fn key(&self) -> PortKey {
        let (service, port) = (Arc::clone(&self.service), Arc::clone(&self.port));
        PortKey { service, port, protocol: self.protocol, family: Family::of(self.listener.ip()), redirected: true }
    }

    fn endpoint(&self, here: &Arc<Location>) -> (Backend, Endpoint) {
        let (ip, location) = (self.listener.ip(), Arc::clone(here));
        let endpoint = Endpoint { ip, ready: true, serving: true, terminating: false, local: true, location };
        (Backend { ip, port: self.listener.port() }, endpoint)
    }
}
