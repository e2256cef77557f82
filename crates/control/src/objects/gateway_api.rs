//! The tables of the Gateway API, and their objects as the engine of layer-7 routing reads them.

use std::sync::Arc;

use api::view::TrafficPolicy;
use api::view::gateway_api::{
    BackendTlsPolicy, Gateway, GatewayClass, GrpcRoute, HttpRoute, ListenerSet, ReferenceGrant, StreamRoute,
};
use routing::cluster::{Change, service_name};
use routing::model::{RouteId, RouteKind};
use serde::de::DeserializeOwned;
use store::Table;

use super::{read, split};

/// GatewayClasses.
pub const CLASSES: &str = "gateway.networking.k8s.io/gatewayclasses";
/// Gateways.
pub const GATEWAYS: &str = "gateway.networking.k8s.io/gateways";
/// ListenerSets.
pub const LISTENER_SETS: &str = "gateway.networking.k8s.io/listenersets";
/// BackendTLSPolicies.
pub const POLICIES: &str = "gateway.networking.k8s.io/backendtlspolicies";
/// TrafficPolicies, which belong to the kinds that they are attached to.
pub const TRAFFIC_POLICIES: &str = "trafficpolicies";
/// ReferenceGrants.
const GRANTS: &str = "gateway.networking.k8s.io/referencegrants";
/// Routes, by kind.
pub const ROUTES: [(&str, RouteKind); 5] = [
    ("gateway.networking.k8s.io/httproutes", RouteKind::Http),
    ("gateway.networking.k8s.io/grpcroutes", RouteKind::Grpc),
    ("gateway.networking.k8s.io/tlsroutes", RouteKind::Tls),
    ("gateway.networking.k8s.io/tcproutes", RouteKind::Tcp),
    ("gateway.networking.k8s.io/udproutes", RouteKind::Udp),
];
/// What the names of the tables begin with.
const PREFIX: &str = "gateway.networking.k8s.io/";

/// Whether a table is one of the Gateway API, or that of TrafficPolicies.
#[must_use]
pub fn contains(table: Table) -> bool {
    table.as_str().starts_with(PREFIX) || table.as_str() == TRAFFIC_POLICIES
}

/// The table of a kind of routes.
#[must_use]
pub fn table_of(kind: RouteKind) -> Option<&'static str> {
    ROUTES.iter().find(|(_, of)| *of == kind).map(|(table, _)| *table)
}

/// The kind of routes in a table.
#[must_use]
pub fn kind_of(table: &str) -> Option<RouteKind> {
    ROUTES.iter().find(|(of, _)| *of == table).map(|(_, kind)| *kind)
}

/// The route of a table and a key.
#[must_use]
pub fn route_id(table: &str, key: &str) -> Option<RouteId> {
    kind_of(table).map(|kind| RouteId { kind, key: key.into() })
}

/// The key of the Service of a Gateway.
#[must_use]
pub fn service_key(gateway: &str) -> Arc<str> {
    let (namespace, name) = split(gateway);
    format!("{namespace}/{}", service_name(name)).into()
}

/// An object, none when it was deleted.
#[derive(Debug)]
pub enum Object {
    /// A GatewayClass.
    GatewayClass(Option<Arc<GatewayClass>>),
    /// A Gateway.
    Gateway(Option<Arc<Gateway>>),
    /// A ListenerSet.
    ListenerSet(Option<Arc<ListenerSet>>),
    /// An HTTPRoute.
    HttpRoute(Option<Arc<HttpRoute>>),
    /// A GRPCRoute.
    GrpcRoute(Option<Arc<GrpcRoute>>),
    /// A TLSRoute, a TCPRoute or a UDPRoute.
    StreamRoute(RouteKind, Option<Arc<StreamRoute>>),
    /// A ReferenceGrant.
    ReferenceGrant(Option<Arc<ReferenceGrant>>),
    /// A BackendTLSPolicy.
    BackendTlsPolicy(Option<Arc<BackendTlsPolicy>>),
    /// A TrafficPolicy.
    TrafficPolicy(Option<Arc<TrafficPolicy>>),
}

impl Object {
    /// Reads stored bytes of a table; `None` for a table that does not matter.
    #[must_use]
    pub fn read(table: Table, stored: Option<&[u8]>) -> Option<Self> {
        fn of<T: DeserializeOwned + Default>(stored: Option<&[u8]>) -> Option<Arc<T>> {
            stored.map(|bytes| Arc::new(read(bytes)))
        }
        Some(match table.as_str() {
            CLASSES => Self::GatewayClass(of(stored)),
            GATEWAYS => Self::Gateway(of(stored)),
            LISTENER_SETS => Self::ListenerSet(of(stored)),
            GRANTS => Self::ReferenceGrant(of(stored)),
            POLICIES => Self::BackendTlsPolicy(of(stored)),
            TRAFFIC_POLICIES => Self::TrafficPolicy(of(stored)),
            table => match kind_of(table)? {
                RouteKind::Http => Self::HttpRoute(of(stored)),
                RouteKind::Grpc => Self::GrpcRoute(of(stored)),
                kind => Self::StreamRoute(kind, of(stored)),
            },
        })
    }

    /// The change of the object of this key.
    #[must_use]
    pub fn into_change(self, key: Arc<str>) -> Change {
        match self {
            Self::GatewayClass(object) => Change::GatewayClass(key, object),
            Self::Gateway(object) => Change::Gateway(key, object),
            Self::ListenerSet(object) => Change::ListenerSet(key, object),
            Self::HttpRoute(object) => Change::HttpRoute(key, object),
            Self::GrpcRoute(object) => Change::GrpcRoute(key, object),
            Self::StreamRoute(RouteKind::Tls, object) => Change::TlsRoute(key, object),
            Self::StreamRoute(RouteKind::Tcp, object) => Change::TcpRoute(key, object),
            Self::StreamRoute(_, object) => Change::UdpRoute(key, object),
            Self::ReferenceGrant(object) => Change::ReferenceGrant(key, object),
            Self::BackendTlsPolicy(object) => Change::BackendTlsPolicy(key, object),
            Self::TrafficPolicy(object) => Change::TrafficPolicy(key, object),
        }
    }
}
