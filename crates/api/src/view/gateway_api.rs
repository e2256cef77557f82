//! The kinds of the Gateway API (`gateway.networking.k8s.io`), as far as the routing of traffic depends on them. Their
//! status is not part of these types: whoever writes a status merges it into the stored object.
//!
//! All versions of a kind have the same shape, so one type reads each of them. Values of later versions of the API are
//! kept as text, or as `Unknown`.

mod filters;
mod gateway;
mod grpc_route;
mod http_route;
mod material;
mod policy;
mod references;
mod stream_routes;

pub use filters::{
    Cors, ExternalAuth, ExternalAuthBackend, Filter, FilterKind, Fraction, Header, HeaderModifier, PathModifier,
    PathModifierKind, RequestMirror, RequestRedirect, UrlRewrite,
};
pub use gateway::{
    AllowedListeners, AllowedRoutes, BackendTls, CertificateValidation, FrontendTls, Gateway, GatewayAddress,
    GatewayClass, GatewayClassSpec, GatewaySpec, GatewayTls, Infrastructure, LabelSelector, LabelSelectorRequirement,
    Listener, ListenerNamespaces, ListenerSet, ListenerSetSpec, ListenerTls, ParametersRef, PortTls, RouteGroupKind,
    RouteNamespaces, TlsConfig, TlsMode,
};
pub use grpc_route::{GrpcMethodMatch, GrpcRoute, GrpcRouteMatch, GrpcRouteRule, GrpcRouteSpec};
pub use http_route::{
    HttpRoute, HttpRouteMatch, HttpRouteRule, HttpRouteSpec, MatchKind, NamedMatch, PathMatch, PathMatchKind, Retry,
    SessionCookie, SessionHeader, SessionPersistence, SessionPersistenceKind, Timeouts,
};
pub use material::Material;
pub use policy::{
    BackendTlsPolicy, BackendTlsPolicySpec, BackendTlsValidation, PolicyTarget, ReferenceGrant, ReferenceGrantFrom,
    ReferenceGrantSpec, ReferenceGrantTo, SubjectAltName,
};
pub use references::{BackendRef, ObjectRef, ParentRef};
pub use stream_routes::{StreamRoute, StreamRouteRule, StreamRouteSpec};

/// The group of the kinds.
pub const GROUP: &str = "gateway.networking.k8s.io";
/// `spec.controllerName` of the GatewayClasses that are implemented here.
pub const CONTROLLER: &str = "waypost.dev/gateway-controller";

#[cfg(test)]
mod tests;
