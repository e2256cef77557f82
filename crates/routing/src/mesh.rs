//! Services as parents of routes (mesh): which of their ports routes are attached to, and what is served there.
//!
//! In: a Service, and the routes that name it as a parent. Out: a [`ServiceView`] that the routes are judged by, the kind of
//! routes that each port takes from each group of clients ([`Kinds`]), and the configuration that gateways serve.
//!
//! A port is served at layer 7 when a route is accepted there, or when the Service opts in by the annotation
//! `waypost.dev/layer-7: "true"` and the `appProtocol` of the port is one that is HTTP without TLS. `"false"` keeps routes
//! away, also those of other namespaces.

mod placement;
mod ports;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::ip::parse_lenient;
use api::view::Service;
use api::view::annotations::LAYER_7;

use crate::cluster::objects::namespace_of;
use crate::cluster::{Reader, Verdict};
use crate::model::{
    Backend, BackendProtocol, Clients, InvalidTarget, ListenerProtocol, MeshConfig, MeshPort, RouteId, RouteKind,
    ServiceTarget, Target,
};
use crate::references::backend_protocol;
use crate::{policies, traffic};

pub use placement::{NotServed, PortPlacement};
pub(crate) use placement::{judge, placements};
use ports::takes;
pub use ports::{is_layer_7, is_tls};

/// The most ports of a Service that can be served at layer 7, the first of its spec: each is a listener on every node.
const MOST_PORTS: usize = 64;
/// The most Services of other namespaces that the routes of a namespace can have as parents, the first by name: whoever may
/// write routes must not be able to move every Service of the cluster to layer 7.
pub(crate) const MOST_CONSUMED: usize = 64;
/// The Service of the API server, on which everything here depends.
const API_SERVER: &str = "default/kubernetes";

/// What routes see of a Service that they name as a parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServiceView {
    /// Condition `Accepted` of all its routes, when it cannot be a parent.
    pub(crate) refusal: Option<Verdict>,
    /// Its TCP ports.
    pub(crate) ports: Vec<PortView>,
}

/// What routes see of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PortView {
    pub(crate) number: u16,
    pub(crate) name: Arc<str>,
    pub(crate) app_protocol: Box<str>,
}

/// The kind of routes at each port, for each group of clients that has routes.
pub(crate) type Kinds = BTreeMap<Clients, BTreeMap<u16, RouteKind>>;

/// A route that names a Service as a parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Contender {
    /// The ports that it names, one for each reference.
    pub(crate) claims: Box<[Claim]>,
    /// Whether it is accepted nowhere, since none of its rules is valid.
    pub(crate) is_refused: bool,
}

/// What a reference names of a Service: a port by name and by number; all ports without both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) section: Option<Box<str>>,
    pub(crate) port: Option<u16>,
}

impl Claim {
    fn covers(&self, port: &PortView) -> bool {
        self.section.as_deref().is_none_or(|name| *name == *port.name)
            && self.port.is_none_or(|number| number == port.number)
    }
}

/// What is derived from a Service that is a parent, or that opts in.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mesh {
    pub(crate) view: ServiceView,
    pub(crate) kinds: Kinds,
    /// None when no port is served at layer 7.
    pub(crate) config: Option<Arc<MeshConfig>>,
}

impl Mesh {
    /// Whether requests go to the endpoints of the Service itself, without a route.
    pub(crate) fn is_own_backend(&self) -> bool {
        let routed = self.kinds.get(&Clients::All);
        let is_plain = |port: &Arc<MeshPort>| {
            port.places.contains_key(&Clients::All) && routed.is_none_or(|kinds| !kinds.contains_key(&port.number))
        };
        self.config.as_ref().is_some_and(|config| config.ports.iter().any(is_plain))
    }
}

/// Whether the Service asks for layer 7 on all of its ports that can be served there.
#[must_use]
pub fn opts_in(service: &Service) -> bool {
    service.metadata.annotation(LAYER_7) == Some("true")
}

/// Whether the Service is never served at layer 7.
#[must_use]
pub fn opts_out(service: &Service) -> bool {
    service.metadata.annotation(LAYER_7) == Some("false")
}

/// The parts of a Service that decide about it as a parent: when they are equal, so is what is derived.
pub(crate) fn parts(service: &Service) -> impl PartialEq {
    let spec = &service.spec;
    let whose = (service.gateway(), service.proxy_name(), service.metadata.annotation(LAYER_7));
    (&spec.kind, &spec.cluster_ip, &spec.cluster_ips, &spec.ports, whose)
}

/// The clients to which the routes of this route's namespace apply at a Service.
pub(crate) fn clients_of(service: &str, route: &RouteId) -> Clients {
    match namespace_of(&route.key) {
        own if own == namespace_of(service) => Clients::All,
        other => Clients::Namespace(other.into()),
    }
}

/// Derives everything; none when no route names the Service and it does not opt in. `contenders` are the routes that name it.
pub(crate) fn derive<'a>(
    reader: &Reader<'_>,
    key: &Arc<str>,
    contenders: impl Iterator<Item = (&'a RouteId, &'a Contender)>,
    old: Option<&Mesh>,
) -> Option<Mesh> {
    let service = reader.service_of_mesh(key);
    let mut contenders = contenders.peekable();
    if contenders.peek().is_none() && !service.is_some_and(|service| opts_in(service)) {
        return None;
    }
    let view = view(key, service.map(|service| &**service));
    let kinds = if view.refusal.is_some() { Kinds::new() } else { contest(reader, key, &view, contenders) };
    let config = service.filter(|_| view.refusal.is_none()).and_then(|service| {
        let new = config(reader, key, (service, &view), &kinds)?;
        let same = old.and_then(|old| old.config.clone()).filter(|old| **old == new);
        Some(same.unwrap_or_else(|| Arc::new(new)))
    });
    Some(Mesh { view, kinds, config })
}

fn view(key: &str, service: Option<&Service>) -> ServiceView {
    let refusal = refusal(key, service);
    let ports = service.into_iter().filter(|_| refusal.is_none()).flat_map(|service| &service.spec.ports);
    let port = |port: &api::view::service::ServicePort| PortView {
        number: port.port,
        name: (&*port.name).into(),
        app_protocol: port.app_protocol.clone().unwrap_or_default(),
    };
    let ports = ports.filter(|port| port.is_tcp()).take(MOST_PORTS).map(port).collect();
    ServiceView { refusal, ports }
}

/// Why a Service cannot be a parent, whatever its ports are.
fn refusal(key: &str, service: Option<&Service>) -> Option<Verdict> {
    let Some(service) = service else {
        return Some(Verdict::bad("NoMatchingParent", format!("Service \"{key}\" does not exist")));
    };
    let unsupported =
        |why: &str| Some(Verdict::bad("UnsupportedValue", format!("Service \"{key}\" cannot be a parent: {why}")));
    if cluster_ips(service).next().is_none() {
        return unsupported("it has no cluster IP; headless Services and aliases lead clients to Pods without a proxy");
    }
    if key == API_SERVER {
        return unsupported("it is the Service of the API server");
    }
    if service.gateway().is_some() {
        return unsupported("it belongs to a gateway; attach the route to the Gateway");
    }
    if let Some(proxy) = service.proxy_name() {
        return unsupported(&format!("it is served by another proxy, \"{proxy}\""));
    }
    let message = || format!("Service \"{key}\" keeps routes away: its annotation {LAYER_7} is \"false\"");
    opts_out(service).then(|| Verdict::bad("NotAllowedByListeners", message()))
}

fn cluster_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    service.cluster_ips().filter(|_| !service.is_external_name()).filter_map(parse_lenient)
}

/// The kind of routes that has precedence at each port and for each group of clients.
fn contest<'a>(
    reader: &Reader<'_>,
    key: &Arc<str>,
    view: &ServiceView,
    contenders: impl Iterator<Item = (&'a RouteId, &'a Contender)>,
) -> Kinds {
    let mut kinds = Kinds::new();
    for (id, contender) in contenders.filter(|(_, contender)| !contender.is_refused) {
        let clients = clients_of(key, id);
        if !is_within_limit(reader, key, &clients) {
            continue;
        }
        let claimed = |port: &&PortView| contender.claims.iter().any(|claim| claim.covers(port));
        for port in view.ports.iter().filter(claimed).filter(|port| takes(&port.app_protocol, id.kind)) {
            let kind = kinds.entry(clients.clone()).or_default().entry(port.number).or_insert(id.kind);
            *kind = std::cmp::min_by_key(*kind, id.kind, |kind| rank(*kind));
        }
    }
    kinds
}

/// Whether the routes of a namespace may have a Service of another one as a parent.
pub(crate) fn is_within_limit(reader: &Reader<'_>, service: &Arc<str>, clients: &Clients) -> bool {
    match clients {
        Clients::All => true,
        Clients::Namespace(namespace) => reader.consumed(namespace).take(MOST_CONSUMED).any(|one| one == service),
    }
}

/// The precedence of a kind at a port of a Service, the first least.
const fn rank(kind: RouteKind) -> u8 {
    match kind {
        RouteKind::Grpc => 0,
        RouteKind::Http => 1,
        RouteKind::Tls => 2,
        RouteKind::Tcp | RouteKind::Udp | RouteKind::Ingress => 3,
    }
}

/// What connections are read as for routes of a kind.
const fn protocol(kind: RouteKind) -> ListenerProtocol {
    match kind {
        RouteKind::Http | RouteKind::Grpc | RouteKind::Ingress => ListenerProtocol::Http,
        RouteKind::Tls => ListenerProtocol::TlsPassthrough,
        RouteKind::Tcp | RouteKind::Udp => ListenerProtocol::Tcp,
    }
}

fn config(
    reader: &Reader<'_>,
    key: &Arc<str>,
    (service, view): (&Service, &ServiceView),
    kinds: &Kinds,
) -> Option<MeshConfig> {
    let mut ports: Vec<Arc<MeshPort>> = Vec::new();
    for port in &view.ports {
        let of_routes = |(clients, kinds): (&Clients, &BTreeMap<u16, RouteKind>)| {
            kinds.get(&port.number).map(|kind| (clients.clone(), protocol(*kind)))
        };
        let mut places: BTreeMap<Clients, ListenerProtocol> = kinds.iter().filter_map(of_routes).collect();
        if opts_in(service) && is_layer_7(&port.app_protocol) {
            places.entry(Clients::All).or_insert(ListenerProtocol::Http);
        }
        if places.is_empty() {
            continue;
        }
        let reads_http = places.get(&Clients::All) == Some(&ListenerProtocol::Http);
        let own = Arc::new(own(reader, key, port, reads_http));
        ports.push(Arc::new(MeshPort { number: port.number, name: Arc::clone(&port.name), places, own }));
    }
    ports.sort_by_key(|port| port.number);
    let is_served = !ports.is_empty();
    is_served.then(|| MeshConfig { service: Arc::clone(key), cluster_ips: cluster_ips(service).collect(), ports })
}

/// A port of the Service as the backend of requests for which there is no route.
fn own(reader: &Reader<'_>, key: &Arc<str>, port: &PortView, reads_http: bool) -> Backend {
    let target = |protocol, tls| {
        let (service, port_name) = (Arc::clone(key), Arc::clone(&port.name));
        Target::Service(Arc::new(ServiceTarget { service, port: port.number, port_name, protocol, tls }))
    };
    let target = match reads_http.then(|| policies::tls_for(reader, key, &port.name)) {
        None => target(BackendProtocol::Stream, None),
        Some(Err(())) => Target::Invalid(InvalidTarget::InvalidTlsPolicy),
        Some(Ok(tls)) => match backend_protocol(RouteKind::Http, &port.app_protocol, tls.is_some()) {
            Some(protocol) => target(protocol, tls),
            None => Target::Invalid(InvalidTarget::UnsupportedProtocol),
        },
    };
    let mut own = Backend { weight: 1, target, filters: Vec::new(), mirrors: Vec::new(), policy: None };
    own.policy = traffic::of_backend(reader, &own, None);
    own
}
