//! The codes of findings of layer 7, in addition to those of Services.

/// The Gateway names a GatewayClass that does not exist.
pub const GATEWAY_CLASS_MISSING: &str = "GatewayClassMissing";
/// Another controller implements the GatewayClass.
pub const GATEWAY_CLASS_FOREIGN: &str = "GatewayClassForeign";
/// The Gateway as a whole cannot be served.
pub const GATEWAY_NOT_ACCEPTED: &str = "GatewayNotAccepted";
/// The Gateway has no address, or not the requested one.
pub const GATEWAY_NOT_PROGRAMMED: &str = "GatewayNotProgrammed";
/// The port and hostname of a listener are taken.
pub const LISTENER_CONFLICTED: &str = "ListenerConflicted";
/// A certificate of a listener is missing or not valid.
pub const CERTIFICATE_INVALID: &str = "CertificateInvalid";
/// Any other value of a listener that cannot be served.
pub const LISTENER_INVALID: &str = "ListenerInvalid";
/// The Gateway does not allow the ListenerSet.
pub const LISTENER_SET_NOT_ALLOWED: &str = "ListenerSetNotAllowed";
/// A parent of a route or of a ListenerSet does not exist.
pub const PARENT_MISSING: &str = "ParentMissing";
/// The Service cannot be a parent of routes, or not of this one.
pub const PARENT_NOT_SUPPORTED: &str = "ParentNotSupported";
/// The parent has no listener, or no port, of this name and number.
pub const NO_MATCHING_LISTENER: &str = "NoMatchingListener";
/// No listener or port takes routes of this kind.
pub const ROUTE_KIND_NOT_ALLOWED: &str = "RouteKindNotAllowed";
/// Routes of another kind have precedence at the Service.
pub const ROUTE_CONFLICTED: &str = "RouteConflicted";
/// No listener takes routes of this namespace.
pub const ROUTE_NAMESPACE_NOT_ALLOWED: &str = "RouteNamespaceNotAllowed";
/// No hostname of the route intersects with that of a listener.
pub const HOSTNAMES_DISJOINT: &str = "HostnamesDisjoint";
/// The route is attached to a listener that does not work.
pub const LISTENER_NOT_SERVED: &str = "ListenerNotServed";
/// A match or a filter of a rule cannot be used.
pub const RULE_NOT_SUPPORTED: &str = "RuleNotSupported";
/// A rule has neither a backend nor a redirect.
pub const RULE_WITHOUT_BACKEND: &str = "RuleWithoutBackend";
/// An older rule takes all requests of a match.
pub const RULE_SHADOWED: &str = "RuleShadowed";
/// A reference to another namespace lacks a ReferenceGrant.
pub const REFERENCE_NOT_PERMITTED: &str = "ReferenceNotPermitted";
/// The Service of a backend does not exist.
pub const BACKEND_MISSING: &str = "BackendMissing";
/// The Service of a backend does not have the port.
pub const BACKEND_PORT_MISSING: &str = "BackendPortMissing";
/// The kind or the protocol of a backend cannot be used.
pub const BACKEND_NOT_SUPPORTED: &str = "BackendNotSupported";
/// A backend has no ready endpoint.
pub const BACKEND_NOT_READY: &str = "BackendNotReady";
/// A BackendTLSPolicy is not valid: connections to its targets fail.
pub const TLS_POLICY_INVALID: &str = "BackendTLSPolicyInvalid";
/// An older BackendTLSPolicy has the same targets.
pub const TLS_POLICY_CONFLICTED: &str = "BackendTLSPolicyConflicted";
/// The Ingress names an IngressClass that does not exist.
pub const INGRESS_CLASS_MISSING: &str = "IngressClassMissing";
/// Another controller implements the IngressClass.
pub const INGRESS_CLASS_FOREIGN: &str = "IngressClassForeign";
/// The Ingress names no class, and there is no default class.
pub const INGRESS_WITHOUT_CLASS: &str = "IngressWithoutClass";

/// All codes. Findings of Ingresses have those of [`routing::ingress::Reason`] too.
pub const LAYER7_CODES: [&str; 29] = [
    GATEWAY_CLASS_MISSING,
    GATEWAY_CLASS_FOREIGN,
    GATEWAY_NOT_ACCEPTED,
    GATEWAY_NOT_PROGRAMMED,
    LISTENER_CONFLICTED,
    CERTIFICATE_INVALID,
    LISTENER_INVALID,
    LISTENER_SET_NOT_ALLOWED,
    PARENT_MISSING,
    PARENT_NOT_SUPPORTED,
    NO_MATCHING_LISTENER,
    ROUTE_KIND_NOT_ALLOWED,
    ROUTE_CONFLICTED,
    ROUTE_NAMESPACE_NOT_ALLOWED,
    HOSTNAMES_DISJOINT,
    LISTENER_NOT_SERVED,
    RULE_NOT_SUPPORTED,
    RULE_WITHOUT_BACKEND,
    RULE_SHADOWED,
    REFERENCE_NOT_PERMITTED,
    BACKEND_MISSING,
    BACKEND_PORT_MISSING,
    BACKEND_NOT_SUPPORTED,
    BACKEND_NOT_READY,
    TLS_POLICY_INVALID,
    TLS_POLICY_CONFLICTED,
    INGRESS_CLASS_MISSING,
    INGRESS_CLASS_FOREIGN,
    INGRESS_WITHOUT_CLASS,
];

/// Codes of objects that another controller implements: true, but no fault.
pub(super) const OF_OTHER_CONTROLLERS: [&str; 2] = [GATEWAY_CLASS_FOREIGN, INGRESS_CLASS_FOREIGN];
