//! The vocabulary of the crate: identities, rules and backends after all references have been resolved.
//!
//! Values are immutable and shared: the gateway reads them for each request, without locks.

mod mesh;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::view::gateway_api::{Filter, GrpcRouteMatch, HttpRouteMatch, SessionPersistence};

pub use mesh::{Clients, MeshConfig, MeshPort, Place, ServicePortId};

use crate::policy::Policy;

/// Kind of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RouteKind {
    /// HTTPRoute.
    Http,
    /// GRPCRoute.
    Grpc,
    /// TLSRoute.
    Tls,
    /// TCPRoute.
    Tcp,
    /// UDPRoute.
    Udp,
    /// Ingress.
    Ingress,
}

impl RouteKind {
    /// The kinds of the Gateway API.
    pub const ALL: [Self; 5] = [Self::Http, Self::Grpc, Self::Tls, Self::Tcp, Self::Udp];

    /// Its name, as in `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTPRoute",
            Self::Grpc => "GRPCRoute",
            Self::Tls => "TLSRoute",
            Self::Tcp => "TCPRoute",
            Self::Udp => "UDPRoute",
            Self::Ingress => "Ingress",
        }
    }

    /// The kind of the Gateway API with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A route.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RouteId {
    /// Its kind.
    pub kind: RouteKind,
    /// `namespace/name`.
    pub key: Arc<str>,
}

/// A listener: of a Gateway, or of a ListenerSet of it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerId {
    /// `namespace/name` of the Gateway.
    pub gateway: Arc<str>,
    /// `namespace/name` of the ListenerSet, for a listener of one.
    pub set: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

/// Transport protocol of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The name of a port of the Service by which a gateway is reached: controllers write it, gateways redirect by it.
    #[must_use]
    pub fn port_name(self, number: u16) -> String {
        match self {
            Self::Tcp => format!("tcp-{number}"),
            Self::Udp => format!("udp-{number}"),
        }
    }
}

/// What a listener does with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ListenerProtocol {
    /// Reads HTTP.
    Http,
    /// Ends TLS, then reads HTTP.
    Https,
    /// Ends TLS, then copies bytes.
    TlsTerminate,
    /// Copies bytes to the backend that the server name (SNI) selects.
    TlsPassthrough,
    /// Copies bytes.
    Tcp,
    /// Forwards datagrams.
    Udp,
}

impl ListenerProtocol {
    /// Its transport protocol.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Udp => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// Whether TLS connections end at the listener.
    #[must_use]
    pub const fn ends_tls(self) -> bool {
        matches!(self, Self::Https | Self::TlsTerminate)
    }
}

/// A listener that is programmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerConfig {
    /// Its identity.
    pub id: ListenerId,
    /// Its port.
    pub port: u16,
    /// What it does with a connection.
    pub protocol: ListenerProtocol,
    /// The host that it serves, in lower case, possibly with `*.` at its start; none for all.
    pub hostname: Option<Arc<str>>,
    /// `namespace/name` of the Secrets with its certificates; empty where TLS does not end here.
    pub certificates: Vec<Arc<str>>,
    /// How certificates of clients are verified.
    pub client_validation: Option<ClientValidation>,
}

/// How certificates of clients are verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientValidation {
    /// `namespace/name` of the ConfigMaps with CA certificates (key `ca.crt`).
    pub authorities: Vec<Arc<str>>,
    /// Whether clients without a valid certificate are accepted.
    pub insecure_fallback: bool,
}

/// The ports of a Gateway, and the Service whose load-balancer addresses lead to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayConfig {
    /// `namespace/name` of the Gateway.
    pub key: Arc<str>,
    /// `namespace/name` of its Service.
    pub service: Arc<str>,
    /// Its programmed listeners: its own, then those of its ListenerSets by their keys.
    pub listeners: Vec<Arc<ListenerConfig>>,
    /// `namespace/name` of the Secret with the certificate that TLS backends are shown.
    pub client_certificate: Option<Arc<str>>,
    /// Proxies whose connections begin with a PROXY protocol header, as CIDRs with commas between them.
    pub proxies: Option<Arc<str>>,
}

/// A rule of an HTTPRoute, a GRPCRoute or an Ingress.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Its route.
    pub route: RouteId,
    /// Its place in the route.
    pub index: usize,
    /// Its name.
    pub name: Option<Box<str>>,
    /// Which requests it takes.
    pub matches: Matches,
    /// Its filters, in order.
    pub filters: Vec<Filter>,
    /// Backends of `RequestMirror` filters, in the order of these.
    pub mirrors: Vec<Target>,
    /// Its backends; empty when it has none.
    pub backends: Vec<Backend>,
    /// Limit of the whole exchange; zero is no limit, none the default of the gateway.
    pub request_timeout: Option<Duration>,
    /// Limit of one attempt; zero is no limit.
    pub backend_timeout: Option<Duration>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Session persistence.
    pub session: Option<SessionPersistence>,
    /// What it demands beyond the Gateway API.
    pub policy: Option<Arc<Policy>>,
    /// Why requests of the rule fail with 500: a filter that cannot be applied.
    pub broken: Option<Box<str>>,
}

/// Which requests a rule takes.
#[derive(Clone, PartialEq, Debug)]
pub enum Matches {
    /// HTTP requests.
    Http(Vec<HttpRouteMatch>),
    /// gRPC calls; all when empty.
    Grpc(Vec<GrpcRouteMatch>),
}

/// Retries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Retry {
    /// Status codes that lead to another attempt.
    pub codes: Vec<u16>,
    /// Attempts after the first.
    pub attempts: u32,
    /// The pause before the first of them; none for the default of the gateway.
    pub backoff: Option<Duration>,
}

/// A rule of a TLSRoute, a TCPRoute or a UDPRoute.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamRule {
    /// Its route.
    pub route: RouteId,
    /// Server names (SNI) of a TLSRoute, in lower case.
    pub hostnames: Vec<Arc<str>>,
    /// Its backends.
    pub backends: Vec<Backend>,
    /// Which clients may connect: only [`Policy::admits`] counts.
    pub policy: Option<Arc<Policy>>,
}

/// A backend of a rule, with its share.
#[derive(Clone, PartialEq, Debug)]
pub struct Backend {
    /// Its share, in proportion to the sum of all weights of the rule.
    pub weight: u32,
    /// Where it is.
    pub target: Target,
    /// Filters of this backend, after those of the rule.
    pub filters: Vec<Filter>,
    /// Backends of its `RequestMirror` filters, in the order of these.
    pub mirrors: Vec<Target>,
    /// What holds towards this backend in place of the policy of the rule: timeouts, session and balancing; the other
    /// members are none. Without it, those of the rule hold.
    pub policy: Option<Arc<Policy>>,
}

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Target {
    /// The endpoints of a Service port.
    Service(Arc<ServiceTarget>),
    /// Nowhere: the reference could not be resolved. Requests for it fail with 500.
    Invalid(InvalidTarget),
}

/// Why a reference to a backend could not be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum InvalidTarget {
    /// Not a kind that can be a backend.
    InvalidKind,
    /// In another namespace without a ReferenceGrant.
    RefNotPermitted,
    /// There is no such Service, or it has no such port.
    BackendNotFound,
    /// The application protocol of the port does not fit the route.
    UnsupportedProtocol,
    /// TLS towards it is configured, but the policy is invalid.
    InvalidTlsPolicy,
}

/// The endpoints of a Service port, and how to talk to them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceTarget {
    /// `namespace/name` of the Service.
    pub service: Arc<str>,
    /// The port of the Service, by number.
    pub port: u16,
    /// The same port by name, as in its EndpointSlices; empty for an unnamed port.
    pub port_name: Arc<str>,
    /// Protocol towards the endpoints.
    pub protocol: BackendProtocol,
    /// TLS towards the endpoints.
    pub tls: Option<Arc<BackendTls>>,
}

/// Protocol towards endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum BackendProtocol {
    /// HTTP/1.1, with upgrades (WebSocket).
    Http1,
    /// HTTP/2, with prior knowledge or by ALPN.
    Http2,
    /// Bytes.
    Stream,
    /// Datagrams.
    Datagram,
}

/// TLS towards endpoints, from a BackendTLSPolicy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BackendTls {
    /// Server name (SNI), and the name to verify unless `subject_alt_names` is set. Empty where no server name is sent,
    /// which requires that the certificate is not verified.
    pub hostname: Box<str>,
    /// `namespace/name` of the ConfigMaps with CA certificates (key `ca.crt`); empty for the CA certificates of the machine.
    pub authorities: Vec<Arc<str>>,
    /// Names of which the certificate must have one.
    pub subject_alt_names: Vec<SubjectName>,
    /// Whether the certificate is verified; only the annotations of an Ingress switch it off.
    pub verify: bool,
}

/// A name in a certificate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SubjectName {
    /// A host, possibly with a wildcard.
    Hostname(Box<str>),
    /// A URI.
    Uri(Box<str>),
    /// An IP address.
    Address(IpAddr),
}
