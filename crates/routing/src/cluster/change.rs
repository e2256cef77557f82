//! What flows into a cluster, and what a change may have altered.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::view::gateway_api::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, ListenerSet, ReferenceGrant, StreamRoute,
};
use api::view::{Service, StringMap, TrafficPolicy};

use crate::model::{ListenerId, Place, RouteId};

/// An object that was created or changed, or deleted (`None`). The key is `namespace/name`, or the name of an object
/// without namespace. The key counts, not the metadata of the object.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A GatewayClass, of any controller.
    GatewayClass(Arc<str>, Option<Arc<GatewayClass>>),
    /// A Gateway, of any class.
    Gateway(Arc<str>, Option<Arc<Gateway>>),
    /// A ListenerSet.
    ListenerSet(Arc<str>, Option<Arc<ListenerSet>>),
    /// An HTTPRoute.
    HttpRoute(Arc<str>, Option<Arc<HttpRoute>>),
    /// A GRPCRoute.
    GrpcRoute(Arc<str>, Option<Arc<GrpcRoute>>),
    /// A TLSRoute.
    TlsRoute(Arc<str>, Option<Arc<StreamRoute>>),
    /// A TCPRoute.
    TcpRoute(Arc<str>, Option<Arc<StreamRoute>>),
    /// A UDPRoute.
    UdpRoute(Arc<str>, Option<Arc<StreamRoute>>),
    /// A ReferenceGrant.
    ReferenceGrant(Arc<str>, Option<Arc<ReferenceGrant>>),
    /// A BackendTLSPolicy.
    BackendTlsPolicy(Arc<str>, Option<Arc<BackendTlsPolicy>>),
    /// A TrafficPolicy.
    TrafficPolicy(Arc<str>, Option<Arc<TrafficPolicy>>),
    /// A Service: a backend, or the one that carries the addresses of a Gateway.
    Service(Arc<str>, Option<Arc<Service>>),
    /// The labels of a Namespace.
    Namespace(Arc<str>, Option<StringMap>),
    /// A Secret.
    Secret(Arc<str>, Option<SecretState>),
    /// A ConfigMap.
    ConfigMap(Arc<str>, Option<CaState>),
}

/// A Secret, as a certificate or as passwords. Whoever feeds the cluster parses it; here is no cryptography.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretState {
    /// A certificate with its key.
    Certificate,
    /// No certificate, but user names and passwords under [`PASSWORDS`](api::view::traffic_policy::PASSWORDS).
    Passwords,
    /// Neither; no certificate for this reason.
    Invalid(String),
}

/// A ConfigMap, as a bundle of CA certificates. Whoever feeds the cluster parses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaState {
    /// CA certificates under `ca.crt`.
    Bundle,
    /// None, for this reason.
    Invalid(String),
}

/// What one or several changes have altered. Everything that differs is in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// GatewayClasses whose state differs.
    pub classes: BTreeSet<Arc<str>>,
    /// Gateways whose state differs.
    pub gateways: BTreeSet<Arc<str>>,
    /// Gateways whose configuration differs.
    pub configs: BTreeSet<Arc<str>>,
    /// ListenerSets whose state differs.
    pub sets: BTreeSet<Arc<str>>,
    /// BackendTLSPolicies whose state differs.
    pub policies: BTreeSet<Arc<str>>,
    /// TrafficPolicies whose state differs.
    pub traffic_policies: BTreeSet<Arc<str>>,
    /// Routes whose state differs.
    pub routes: BTreeSet<RouteId>,
    /// Listeners whose settings or routes differ: tables to change.
    pub listeners: BTreeSet<ListenerId>,
    /// Routes that were attached to a place, detached from it, or changed there: hostnames, rules or policies.
    pub route_changes: BTreeSet<(Place, RouteId)>,
    /// Services whose ports at layer 7 differ.
    pub mesh: BTreeSet<Arc<str>>,
}

impl Touched {
    /// Adds what another change has altered.
    pub fn extend(&mut self, other: Self) {
        self.classes.extend(other.classes);
        self.gateways.extend(other.gateways);
        self.configs.extend(other.configs);
        self.sets.extend(other.sets);
        self.policies.extend(other.policies);
        self.traffic_policies.extend(other.traffic_policies);
        self.routes.extend(other.routes);
        self.listeners.extend(other.listeners);
        self.route_changes.extend(other.route_changes);
        self.mesh.extend(other.mesh);
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
