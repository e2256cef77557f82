//! A Gateway that is served: its ports with their listeners on this node.
//!
//! In: its configuration, the load-balancer addresses and UDP ports of its Service, the addresses of the node. Out: bound
//! ports, and redirects to them. A port that stays keeps its sockets and connections, whatever its listeners are. A port that
//! the kernel serves by itself ([`direct`]) keeps its sockets, too: they serve clients for whose family there is no endpoint,
//! and connections from before.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use api::view::Protocol;
use api::view::annotations::PROXY_PROTOCOL_FROM;
use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use ipnet::IpNet;
use plan::{Redirect, RedirectedFrontends, ServicePortName};
use routing::model::{GatewayConfig, ListenerConfig, ListenerId, Transport};

use super::direct::{self, NeedsProgram, PortFacts};
use super::tables::{Parent, PortTable, RoutedListener, RoutedPort, Tables};
use super::trust::Trust;
use super::udp::UdpListener;
use crate::controller::Shared;
use crate::http3::QuicListener;
use crate::listener::{self, Listener};
use crate::port_config::{PortConfig, Serving};
use crate::source_ranges::{self, SourceRanges};

/// Characters of an invalid value that an Event has.
const MAX_SHOWN: usize = 64;

/// A Gateway that is served.
pub(super) struct Programmed {
    pub(super) config: Arc<GatewayConfig>,
    ports: BTreeMap<(Transport, u16), Port>,
    /// Its listeners. Their tables of rules stay when their configuration changes.
    listeners: HashMap<ListenerId, Arc<RoutedListener>>,
    shared: Arc<Shared>,
}

/// What its Service says.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Frontend {
    pub(super) vips: Vec<IpAddr>,
    pub(super) sources: SourceRanges,
    /// Its UDP ports: those of HTTPS listeners are served over QUIC, too.
    pub(super) udp: BTreeSet<u16>,
}

/// What is wrong with a Gateway that is served, as an Event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

struct Port {
    port_config: Arc<PortConfig>,
    listeners: Sockets,
    /// What was published: the Service port that the kernel serves, or why it does not.
    direct: Result<ServicePortName, NeedsProgram>,
    /// All Service ports behind it.
    backends: BTreeSet<ServicePortName>,
    /// For HTTP/3.
    quic: Vec<QuicListener>,
}

enum Sockets {
    Tcp(Vec<Listener>),
    Udp(Vec<UdpListener>),
}

impl Programmed {
    pub(super) fn new(config: Arc<GatewayConfig>, shared: Arc<Shared>) -> Self {
        Self { config, ports: BTreeMap::new(), listeners: HashMap::new(), shared }
    }

    /// The table of a listener, if it is served.
    pub(super) fn tables(&self, listener: &ListenerId) -> Option<&Arc<ArcSwap<Tables>>> {
        self.listeners.get(listener).map(|listener| &listener.tables)
    }

    /// Applies a configuration. `fill` makes the table of a listener that was not served before.
    ///
    /// A Gateway may have thousands of listeners, so those that do not differ are kept, with their TLS sessions, unless
    /// they use one of the Secrets and ConfigMaps that have changed.
    pub(super) fn apply(
        &mut self,
        config: Arc<GatewayConfig>,
        frontend: &Frontend,
        (trust, changed): (&Trust, &BTreeSet<Arc<str>>),
        mut fill: impl FnMut(&ListenerId) -> Tables,
    ) -> Vec<Problem> {
        self.config = config;
        let mut ports: BTreeMap<(Transport, u16), PortTable> =
            self.ports.iter().map(|(port, served)| (*port, served.table())).collect();
        let wanted: HashSet<*const ListenerConfig> = self.config.listeners.iter().map(Arc::as_ptr).collect();
        let differs = |one: &RoutedListener| !wanted.contains(&Arc::as_ptr(&one.config)) || uses(&one.config, changed);
        let replaced: HashMap<_, _> = self.listeners.extract_if(|_, one| differs(one)).collect();
        for listener in replaced.values() {
            ports.entry(port_of(&listener.config)).or_default().remove(listener);
        }
        for config in &self.config.listeners {
            if self.listeners.contains_key(&config.id) {
                continue;
            }
            let tables = replaced.get(&config.id).map(|before| Arc::clone(&before.tables));
            let tables = tables.unwrap_or_else(|| Arc::new(ArcSwap::from_pointee(fill(&config.id))));
            let listener = Arc::new(routed(config, tables, trust, &self.shared));
            ports.entry(port_of(config)).or_default().insert(&listener);
            self.listeners.insert(config.id.clone(), listener);
        }
        ports.retain(|_, table| !matches!(table, PortTable::Closed));
        self.open(ports, frontend)
    }

    /// Serves these ports and no others; returns what failed.
    pub(super) fn open(&mut self, ports: BTreeMap<(Transport, u16), PortTable>, frontend: &Frontend) -> Vec<Problem> {
        self.ports.retain(|port, served| {
            let stays = ports.contains_key(port);
            if !stays {
                served.port_config.close();
            }
            stays
        });
        let (proxies, mut problems) = proxies(&self.config);
        let proxies = Arc::new(proxies);
        let of_udp: BTreeSet<u16> = ports.keys().filter(|(kind, _)| *kind == Transport::Udp).map(|key| key.1).collect();
        for (key, table) in ports {
            // A UDP listener has its port for itself.
            let is_quic = table.may_be_https() && frontend.udp.contains(&key.1) && !of_udp.contains(&key.1);
            let port = self.ports.entry(key).or_insert_with(|| Port::new(&self.config, key, &self.shared));
            if let Serving::Routes(routed) = &port.port_config.serving {
                routed.table.store(Arc::new(table));
            }
            port.port_config.sources.store(Arc::new(frontend.sources.clone()));
            port.port_config.proxies.store(Arc::clone(&proxies));
            let mut failed = port.open(&frontend.vips, &self.shared);
            failed.extend(port.open_quic(if is_quic { &frontend.vips } else { &[] }, &self.shared));
            problems.extend(failed.into_iter().map(|message| Problem { reason: "ListenerFailed", message }));
        }
        self.publish();
        problems
    }

    /// Publishes where its ports lead. Must be called when a rule of a TCP or UDP listener has changed.
    pub(super) fn publish(&mut self) {
        let (service, has_proxies) = (&self.config.service, self.config.proxies.is_some());
        for ((transport, number), port) in &mut self.ports {
            let (direct, backends) = port.decide(has_proxies);
            if port.direct != direct {
                let port = transport.port_name(*number);
                match &direct {
                    Ok(target) => tracing::debug!(%service, port, %target, "forward in the kernel"),
                    Err(reason) => tracing::debug!(%service, port, %reason, "forward in the gateway"),
                }
            }
            (port.direct, port.backends) = (direct, backends);
        }
        self.shared.publish(service, RedirectedFrontends::LoadBalancer, self.redirects().collect());
    }

    fn redirects(&self) -> impl Iterator<Item = Redirect> {
        self.ports.iter().flat_map(move |((transport, number), port)| {
            let redirect = move |transport: Transport, listener| Redirect {
                service: Arc::clone(&self.config.service),
                port: transport.port_name(*number).into(),
                protocol: match transport {
                    Transport::Tcp => Protocol::Tcp,
                    Transport::Udp => Protocol::Udp,
                },
                frontends: RedirectedFrontends::LoadBalancer,
                listener,
                direct: port.direct.as_ref().ok().cloned(),
                backends: port.backends.clone(),
            };
            let own = port.addresses().into_iter().map(move |listener| redirect(*transport, listener));
            own.chain(port.quic.iter().map(move |listener| redirect(Transport::Udp, listener.address)))
        })
    }
}

impl Drop for Programmed {
    fn drop(&mut self) {
        self.ports.values().for_each(|port| port.port_config.close());
        // A process that stops leaves to the kernel what the kernel serves.
        let is_stopping = self.shared.is_stopping.load(Relaxed);
        let left = self.redirects().filter(|redirect| is_stopping && redirect.direct.is_some());
        self.shared.publish(&self.config.service, RedirectedFrontends::LoadBalancer, left.collect());
        self.shared.metrics.remove(&self.config.service);
        self.shared.metrics.routing().remove_gateway(&self.config.key);
    }
}

impl Port {
    fn new(config: &GatewayConfig, (transport, number): (Transport, u16), shared: &Shared) -> Self {
        let gateway = Arc::clone(&config.key);
        let challenges = Arc::clone(&shared.challenges);
        let (table, alt_svc) = (ArcSwap::default(), ArcSwapOption::default());
        let parent = Parent::Gateway(gateway);
        let routed = RoutedPort { parent, table, number: HeaderValue::from(number), alt_svc, challenges };
        let serving = Serving::Routes(Box::new(routed));
        let metrics = shared.metrics.for_service(&config.service);
        let port_config = PortConfig::new(&config.service, number, (shared.limits, None), serving, metrics);
        let listeners = match transport {
            Transport::Tcp => Sockets::Tcp(Vec::new()),
            Transport::Udp => Sockets::Udp(Vec::new()),
        };
        let (direct, backends) = (Err(NeedsProgram::NoRoute), BTreeSet::new());
        Self { port_config: shared.register(port_config), listeners, quic: Vec::new(), direct, backends }
    }

    /// The Service port to which the kernel forwards, or why it does not; and all Service ports behind this port.
    fn decide(&self, has_proxies: bool) -> (Result<ServicePortName, NeedsProgram>, BTreeSet<ServicePortName>) {
        let Serving::Routes(routed) = &self.port_config.serving else {
            return (Err(NeedsProgram::Protocol), BTreeSet::new());
        };
        let PortTable::Stream(listener) = &**routed.table.load() else {
            return (Err(NeedsProgram::Protocol), BTreeSet::new());
        };
        let tables = listener.tables.load();
        let rule = tables.stream(None).map(|compiled| &*compiled.rule);
        let is_logged = self.port_config.access_log.is_some();
        let facts = PortFacts { protocol: listener.config.protocol, has_proxies, is_logged };
        (direct::decide(facts, rule), direct::backends(rule))
    }

    /// What connections to it lead to.
    fn table(&self) -> PortTable {
        match &self.port_config.serving {
            Serving::Routes(routed) => PortTable::clone(&routed.table.load()),
            Serving::Service(_) => PortTable::Closed,
        }
    }

    /// Opens its sockets; returns what failed.
    fn open(&mut self, vips: &[IpAddr], shared: &Shared) -> Vec<String> {
        let (config, number) = (&self.port_config, self.port_config.number);
        let addresses = shared.addresses.borrow().clone();
        match &mut self.listeners {
            Sockets::Tcp(all) => {
                let open = |ip| Listener::open(ip, config, &shared.workers);
                listener::open_all(all, |one| one.address, (&addresses, vips), number, open)
            }
            Sockets::Udp(all) => {
                let open = |ip| UdpListener::open(ip, config);
                listener::open_all(all, |one| one.address, (&addresses, vips), number, open)
            }
        }
    }

    /// Opens its QUIC sockets, none without addresses; returns what failed. Clients learn of them by `Alt-Svc`.
    fn open_quic(&mut self, vips: &[IpAddr], shared: &Shared) -> Vec<String> {
        let (config, number) = (&self.port_config, self.port_config.number);
        let addresses = shared.addresses.borrow().clone();
        let open = |ip| QuicListener::open(ip, config, &shared.workers);
        let problems = listener::open_all(&mut self.quic, |one| one.address, (&addresses, vips), number, open);
        if let Serving::Routes(routed) = &config.serving {
            routed.advertise_http3((!self.quic.is_empty()).then_some(number));
        }
        problems
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        match &self.listeners {
            Sockets::Tcp(all) => all.iter().map(|listener| listener.address).collect(),
            Sockets::Udp(all) => all.iter().map(|listener| listener.address).collect(),
        }
    }
}

fn port_of(listener: &ListenerConfig) -> (Transport, u16) {
    (listener.protocol.transport(), listener.port)
}

/// Whether a listener uses one of these Secrets and ConfigMaps.
pub(super) fn uses(listener: &ListenerConfig, of: &BTreeSet<Arc<str>>) -> bool {
    let clients = listener.client_validation.iter().flat_map(|validation| &validation.authorities);
    !of.is_empty() && listener.certificates.iter().chain(clients).any(|key| of.contains(key))
}

/// The proxies in front of a Gateway; and what is wrong with them.
fn proxies(config: &GatewayConfig) -> (Vec<IpNet>, Vec<Problem>) {
    let (valid, invalid) = source_ranges::ranges(config.proxies.as_deref().unwrap_or_default());
    // One Event, however many there are.
    let problem = invalid.first().map(|first| {
        let first: String = first.chars().take(MAX_SHOWN).collect();
        let more = match invalid.len() {
            1 => String::new(),
            count => format!(", as are {} more ranges", count - 1),
        };
        let expected = "expected a CIDR such as 192.0.2.0/24";
        let message =
            format!("annotation {PROXY_PROTOCOL_FROM} of the Gateway: `{first}` is ignored{more}; {expected}");
        Problem { reason: "AnnotationIgnored", message }
    });
    (valid, problem.into_iter().collect())
}

fn routed(
    listener: &Arc<ListenerConfig>,
    tables: Arc<ArcSwap<Tables>>,
    trust: &Trust,
    shared: &Shared,
) -> RoutedListener {
    let tls = if listener.protocol.ends_tls() { trust.of_listener(listener) } else { None };
    let metrics = shared.metrics.routing().for_listener(&listener.id);
    RoutedListener { config: Arc::clone(listener), tls: ArcSwapOption::new(tls), tables, metrics }
}
