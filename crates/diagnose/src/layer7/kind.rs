//! The kinds of objects that layer 7 depends on, with the names of their lists.

use routing::model::{RouteId, RouteKind};

use super::Subject;

/// A kind of objects that layer 7 depends on, besides Services, EndpointSlices, Secrets and ConfigMaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// GatewayClass.
    GatewayClass,
    /// Gateway.
    Gateway,
    /// ListenerSet.
    ListenerSet,
    /// HTTPRoute.
    HttpRoute,
    /// GRPCRoute.
    GrpcRoute,
    /// TLSRoute.
    TlsRoute,
    /// TCPRoute.
    TcpRoute,
    /// UDPRoute.
    UdpRoute,
    /// ReferenceGrant.
    ReferenceGrant,
    /// BackendTLSPolicy.
    BackendTlsPolicy,
    /// TrafficPolicy.
    TrafficPolicy,
    /// Namespace.
    Namespace,
    /// IngressClass.
    IngressClass,
    /// Ingress.
    Ingress,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::ListenerSet,
        Self::HttpRoute,
        Self::GrpcRoute,
        Self::TlsRoute,
        Self::TcpRoute,
        Self::UdpRoute,
        Self::ReferenceGrant,
        Self::BackendTlsPolicy,
        Self::TrafficPolicy,
        Self::Namespace,
        Self::IngressClass,
        Self::Ingress,
    ];

    /// Its name, as in `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GatewayClass => "GatewayClass",
            Self::Gateway => "Gateway",
            Self::ListenerSet => "ListenerSet",
            Self::HttpRoute => "HTTPRoute",
            Self::GrpcRoute => "GRPCRoute",
            Self::TlsRoute => "TLSRoute",
            Self::TcpRoute => "TCPRoute",
            Self::UdpRoute => "UDPRoute",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::BackendTlsPolicy => "BackendTLSPolicy",
            Self::TrafficPolicy => "TrafficPolicy",
            Self::Namespace => "Namespace",
            Self::IngressClass => "IngressClass",
            Self::Ingress => "Ingress",
        }
    }

    /// The path of the list of all its objects.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::GatewayClass => "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
            Self::Gateway => "/apis/gateway.networking.k8s.io/v1/gateways",
            Self::ListenerSet => "/apis/gateway.networking.k8s.io/v1/listenersets",
            Self::HttpRoute => "/apis/gateway.networking.k8s.io/v1/httproutes",
            Self::GrpcRoute => "/apis/gateway.networking.k8s.io/v1/grpcroutes",
            Self::TlsRoute => "/apis/gateway.networking.k8s.io/v1/tlsroutes",
            Self::TcpRoute => "/apis/gateway.networking.k8s.io/v1/tcproutes",
            Self::UdpRoute => "/apis/gateway.networking.k8s.io/v1/udproutes",
            // In the version that every release serves.
            Self::ReferenceGrant => "/apis/gateway.networking.k8s.io/v1beta1/referencegrants",
            Self::BackendTlsPolicy => "/apis/gateway.networking.k8s.io/v1/backendtlspolicies",
            Self::TrafficPolicy => "/apis/waypost.dev/v1/trafficpolicies",
            Self::Namespace => "/api/v1/namespaces",
            Self::IngressClass => "/apis/networking.k8s.io/v1/ingressclasses",
            Self::Ingress => "/apis/networking.k8s.io/v1/ingresses",
        }
    }

    /// Group, version and plural of the list.
    #[must_use]
    pub fn resource(self) -> (&'static str, &'static str, &'static str) {
        let mut parts = self.path().rsplit('/');
        let (plural, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        // The core group is at `/api`, without a name.
        let group = parts.next().filter(|group| *group != "api").unwrap_or_default();
        (group, version, plural)
    }

    /// The plural, as in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        self.resource().2
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of a route.
    #[must_use]
    pub const fn of_route(kind: RouteKind) -> Self {
        match kind {
            RouteKind::Http => Self::HttpRoute,
            RouteKind::Grpc => Self::GrpcRoute,
            RouteKind::Tls => Self::TlsRoute,
            RouteKind::Tcp => Self::TcpRoute,
            RouteKind::Udp => Self::UdpRoute,
            RouteKind::Ingress => Self::Ingress,
        }
    }

    /// The route of this kind and key, where the kind is one of routes of the Gateway API.
    #[must_use]
    pub fn route(self, key: &str) -> Option<RouteId> {
        RouteKind::named(self.name()).map(|kind| RouteId { kind, key: key.into() })
    }

    /// An object of this kind.
    #[must_use]
    pub fn subject(self, key: &str) -> Subject {
        Subject { kind: self.name(), key: key.into() }
    }
}
