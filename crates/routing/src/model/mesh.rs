//! Services as parents of routes (mesh): what routes are attached to besides listeners, and which ports of a Service are
//! served at layer 7.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Backend, ListenerId, ListenerProtocol};

/// What routes are attached to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A listener of a Gateway or of a ListenerSet.
    Listener(ListenerId),
    /// A port of a Service.
    ServicePort(ServicePortId),
}

impl Place {
    /// The listener, if it is one.
    #[must_use]
    pub const fn listener(&self) -> Option<&ListenerId> {
        match self {
            Self::Listener(id) => Some(id),
            Self::ServicePort(_) => None,
        }
    }

    /// The port of a Service, if it is one.
    #[must_use]
    pub const fn service_port(&self) -> Option<&ServicePortId> {
        match self {
            Self::Listener(_) => None,
            Self::ServicePort(id) => Some(id),
        }
    }
}

impl From<ListenerId> for Place {
    fn from(id: ListenerId) -> Self {
        Self::Listener(id)
    }
}

impl From<ServicePortId> for Place {
    fn from(id: ServicePortId) -> Self {
        Self::ServicePort(id)
    }
}

/// A TCP port of a Service as one group of its clients sees it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServicePortId {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Its port, by number.
    pub port: u16,
    /// The clients.
    pub clients: Clients,
}

/// Clients of a Service to which the same routes apply.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Clients {
    /// All without a group of their own: the routes of the namespace of the Service (producer routes) apply to them.
    All,
    /// The Pods of this namespace, whose routes (consumer routes) replace those of the others there.
    Namespace(Arc<str>),
}

/// The ports of a Service that are served at layer 7.
#[derive(Clone, PartialEq, Debug)]
pub struct MeshConfig {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// Its cluster IPs.
    pub cluster_ips: Vec<IpAddr>,
    /// Those ports, by number; never empty.
    pub ports: Vec<Arc<MeshPort>>,
}

/// A TCP port of a Service that is served at layer 7.
#[derive(Clone, PartialEq, Debug)]
pub struct MeshPort {
    /// Its number.
    pub number: u16,
    /// Its name; empty for an unnamed port.
    pub name: Arc<str>,
    /// What connections of each group of clients are read as: [`Http`](ListenerProtocol::Http),
    /// [`TlsPassthrough`](ListenerProtocol::TlsPassthrough) or [`Tcp`](ListenerProtocol::Tcp). Never empty.
    /// [`Clients::All`] is missing where only other groups have routes: connections of all other clients are not read,
    /// because routes of one namespace must not change what others get.
    pub places: BTreeMap<Clients, ListenerProtocol>,
    /// The endpoints of the Service itself, with the settings that TrafficPolicies have for it: where requests go that are
    /// read as HTTP but for which no route is attached, and connections of clients without a place, as bytes. The protocol
    /// of its target says which of both.
    pub own: Arc<Backend>,
}

impl MeshPort {
    /// The group that clients of a namespace belong to (none: clients that are not in a Pod of a namespace), and what their
    /// connections are read as; none when these go to [`own`](Self::own) as bytes.
    #[must_use]
    pub fn place_of(&self, namespace: Option<&Arc<str>>) -> Option<(Clients, ListenerProtocol)> {
        let own = namespace.map(|namespace| Clients::Namespace(Arc::clone(namespace)));
        own.into_iter().chain([Clients::All]).find_map(|clients| {
            let protocol = *self.places.get(&clients)?;
            Some((clients, protocol))
        })
    }
}
