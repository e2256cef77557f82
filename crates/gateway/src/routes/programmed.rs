//! A Gateway that is served: its ports with their listeners on this node.
//!
//! In: its configuration, the load-balancer addresses of its Service, the addresses of the node. Out: bound ports, and
//! redirects to them. A port that stays keeps its sockets and connections, whatever its listeners are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::view::Protocol;
use api::view::annotations::PROXY_PROTOCOL_FROM;
use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use ipnet::IpNet;
use plan::Redirect;
use routing::model::{GatewayConfig, ListenerConfig, ListenerId, Transport};

use super::tables::{PortTable, RoutedListener, RoutedPort, Tables};
use super::trust::Trust;
use super::udp::UdpListener;
use crate::controller::Shared;
use crate::listener::{self, Listener};
use crate::port_config::{PortConfig, Serving};
use crate::source_ranges::{self, SourceRanges};

/// A Gateway that is served.
pub(super) struct Programmed {
    pub(super) config: Arc<GatewayConfig>,
    ports: BTreeMap<(Transport, u16), Port>,
    /// Tables by listener; they stay when the configuration of the listener changes.
    tables: HashMap<ListenerId, Arc<ArcSwap<Tables>>>,
    shared: Arc<Shared>,
}

/// What its Service says.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Frontend {
    pub(super) vips: Vec<IpAddr>,
    pub(super) sources: SourceRanges,
}

struct Port {
    port_config: Arc<PortConfig>,
    listeners: Sockets,
}

enum Sockets {
    Tcp(Vec<Listener>),
    Udp(Vec<UdpListener>),
}

impl Programmed {
    pub(super) fn new(config: Arc<GatewayConfig>, shared: Arc<Shared>) -> Self {
        Self { config, ports: BTreeMap::new(), tables: HashMap::new(), shared }
    }

    /// The table of a listener, if it is served.
    pub(super) fn tables(&self, listener: &ListenerId) -> Option<&Arc<ArcSwap<Tables>>> {
        self.tables.get(listener)
    }

    /// Applies a configuration. `fill` makes the table of a listener that was not served before.
    pub(super) fn apply(
        &mut self,
        config: Arc<GatewayConfig>,
        frontend: &Frontend,
        trust: &Trust,
        mut fill: impl FnMut(&ListenerId) -> Tables,
    ) -> Vec<String> {
        self.config = config;
        let wanted: BTreeSet<&ListenerId> = self.config.listeners.iter().map(|listener| &listener.id).collect();
        self.tables.retain(|id, _| wanted.contains(id));
        let mut by_port: BTreeMap<(Transport, u16), Vec<Arc<RoutedListener>>> = BTreeMap::new();
        for listener in &self.config.listeners {
            let tables = self
                .tables
                .entry(listener.id.clone())
                .or_insert_with(|| Arc::new(ArcSwap::from_pointee(fill(&listener.id))));
            let routed = routed(listener, Arc::clone(tables), trust, &self.shared);
            by_port.entry((listener.protocol.transport(), listener.port)).or_default().push(Arc::new(routed));
        }
        let ports = by_port.into_iter().map(|(port, listeners)| (port, PortTable::of(&listeners)));
        self.open(ports.collect(), frontend)
    }

    /// Serves these ports and no others; returns what failed.
    pub(super) fn open(&mut self, ports: BTreeMap<(Transport, u16), PortTable>, frontend: &Frontend) -> Vec<String> {
        self.ports.retain(|port, served| {
            let stays = ports.contains_key(port);
            if !stays {
                served.port_config.close();
            }
            stays
        });
        let (proxies, mut problems) = proxies(&self.config);
        let proxies = Arc::new(proxies);
        for (key, table) in ports {
            let port = self.ports.entry(key).or_insert_with(|| Port::new(&self.config, key, &self.shared));
            if let Serving::Routes(routed) = &port.port_config.serving {
                routed.table.store(Arc::new(table));
            }
            port.port_config.sources.store(Arc::new(frontend.sources.clone()));
            port.port_config.proxies.store(Arc::clone(&proxies));
            problems.extend(port.open(&frontend.vips, &self.shared));
        }
        self.publish();
        problems
    }

    fn publish(&self) {
        let redirects = self.ports.iter().flat_map(|((transport, number), port)| {
            let protocol = match transport {
                Transport::Tcp => Protocol::Tcp,
                Transport::Udp => Protocol::Udp,
            };
            let redirect = move |listener| Redirect {
                service: Arc::clone(&self.config.service),
                port: transport.port_name(*number).into(),
                protocol,
                listener,
            };
            port.addresses().into_iter().map(redirect)
        });
        self.shared.publish(&self.config.service, redirects.collect());
    }
}

impl Drop for Programmed {
    fn drop(&mut self) {
        self.ports.values().for_each(|port| port.port_config.close());
        self.shared.publish(&self.config.service, BTreeSet::new());
        self.shared.metrics.remove(&self.config.service);
        self.shared.metrics.routing().remove_gateway(&self.config.key);
    }
}

impl Port {
    fn new(config: &GatewayConfig, (transport, number): (Transport, u16), shared: &Shared) -> Self {
        let gateway = Arc::clone(&config.key);
        let routed = RoutedPort { gateway, table: ArcSwap::default(), number: HeaderValue::from(number) };
        let serving = Serving::Routes(Box::new(routed));
        let metrics = shared.metrics.for_service(&config.service);
        let port_config = PortConfig::new(&config.service, number, (shared.limits, None), serving, metrics);
        let listeners = match transport {
            Transport::Tcp => Sockets::Tcp(Vec::new()),
            Transport::Udp => Sockets::Udp(Vec::new()),
        };
        Self { port_config: shared.register(port_config), listeners }
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

    fn addresses(&self) -> Vec<SocketAddr> {
        match &self.listeners {
            Sockets::Tcp(all) => all.iter().map(|listener| listener.address).collect(),
            Sockets::Udp(all) => all.iter().map(|listener| listener.address).collect(),
        }
    }
}

/// The proxies in front of a Gateway; and what is wrong with them.
fn proxies(config: &GatewayConfig) -> (Vec<IpNet>, Vec<String>) {
    let (valid, invalid) = source_ranges::ranges(config.proxies.as_deref().unwrap_or_default());
    let problem = |text: &str| {
        format!(
            "annotation {PROXY_PROTOCOL_FROM} of the Gateway: `{text}` is ignored; expected a CIDR such as 192.0.2.0/24"
        )
    };
    (valid, invalid.into_iter().map(problem).collect())
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
