//! A Service that is served at layer 7: its ports with their listeners on this node.
//!
//! In: its configuration, the addresses of the node. Out: bound ports with tables, and redirects of its cluster IPs to them. A
//! port that stays keeps its sockets and connections, whatever its routes are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use api::view::Protocol;
use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use plan::{Redirect, RedirectedFrontends};
use routing::model::{Clients, MeshConfig, MeshPort, Place, ServicePortId};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::{MeshTable, OwnEndpoints};
use crate::controller::Shared;
use crate::listener::{self, Listener};
use crate::port_config::{PortConfig, Serving};
use crate::routes::compile::Compiler;
use crate::routes::tables::{Parent, PortTable, RoutedPort, ServiceParent, Tables};

/// How long a port that is no longer served accepts connections that the proxy may still send.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// A Service that is served.
pub(super) struct MeshService {
    config: Arc<MeshConfig>,
    ports: BTreeMap<u16, Port>,
    shared: Arc<Shared>,
}

struct Port {
    port_config: Arc<PortConfig>,
    listeners: Vec<Listener>,
    /// By clients; they stay when the configuration of the port changes.
    tables: BTreeMap<Clients, Arc<ArcSwap<Tables>>>,
    /// Where requests go without routes.
    own: OwnEndpoints,
    config: Arc<MeshPort>,
}

impl MeshService {
    pub(super) const fn new(config: Arc<MeshConfig>, shared: Arc<Shared>) -> Self {
        Self { config, ports: BTreeMap::new(), shared }
    }

    /// Number of its ports.
    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn tables(&self, port: u16, clients: &Clients) -> Option<&Arc<ArcSwap<Tables>>> {
        self.ports.get(&port)?.tables.get(clients)
    }

    /// Applies a configuration; returns why listeners could not be opened.
    pub(super) fn apply(&mut self, config: Arc<MeshConfig>, compiler: &mut Compiler<'_>) -> Vec<String> {
        self.config = config;
        let wanted: Vec<u16> = self.config.ports.iter().map(|port| port.number).collect();
        let gone: Vec<u16> = self.ports.keys().copied().filter(|number| !wanted.contains(number)).collect();
        gone.iter().filter_map(|number| self.ports.remove(number)).for_each(|port| port.retire(false));
        let mut problems = Vec::new();
        for port in &self.config.ports {
            let service = &self.config.service;
            let own = compiler.own(service, &port.own);
            let served =
                self.ports.entry(port.number).or_insert_with(|| Port::new(service, port, own.clone(), &self.shared));
            (served.own, served.config) = (own, Arc::clone(port));
            served.fill(service, compiler);
            problems.extend(served.open(&self.config, &self.shared));
        }
        problems
    }

    /// Publishes where its cluster IPs lead: to the listeners, or to its endpoints as without routes.
    pub(super) fn publish(&self, is_ready: bool) {
        let redirects = self.ports.values().filter(|_| is_ready).flat_map(|port| {
            port.listeners.iter().map(move |listener| Redirect {
                service: Arc::clone(&self.config.service),
                port: Arc::clone(&port.config.name),
                protocol: Protocol::Tcp,
                frontends: RedirectedFrontends::ClusterIp,
                listener: listener.address,
                direct: None,
                backends: BTreeSet::new(),
            })
        });
        self.shared.publish(&self.config.service, RedirectedFrontends::ClusterIp, redirects.collect());
    }
}

impl Drop for MeshService {
    fn drop(&mut self) {
        self.publish(false);
        // A process that stops has withdrawn its redirects before.
        let is_stopping = self.shared.is_stopping.load(Relaxed);
        std::mem::take(&mut self.ports).into_values().for_each(|port| port.retire(is_stopping));
        self.shared.metrics.mesh().remove(&self.config.service);
    }
}

impl Port {
    fn new(service: &Arc<str>, config: &Arc<MeshPort>, own: OwnEndpoints, shared: &Shared) -> Self {
        let parent = Parent::Service(ServiceParent {
            key: Arc::clone(service),
            clients: Arc::clone(&shared.clients),
            requests: shared.metrics.mesh().for_service(service),
        });
        let (table, alt_svc) = (ArcSwap::default(), ArcSwapOption::default());
        let challenges = Arc::clone(&shared.challenges);
        let routed = RoutedPort { parent, table, number: HeaderValue::from(config.number), alt_svc, challenges };
        let metrics = shared.metrics.for_service(service);
        let serving = Serving::Routes(Box::new(routed));
        let port_config = PortConfig::new(service, config.number, (shared.limits, None), serving, metrics);
        let (port_config, config) = (shared.register(port_config), Arc::clone(config));
        Self { port_config, listeners: Vec::new(), tables: BTreeMap::new(), own, config }
    }

    /// Fills the tables of clients that had none, and selects by them.
    fn fill(&mut self, service: &Arc<str>, compiler: &mut Compiler<'_>) {
        self.tables.retain(|clients, _| self.config.places.contains_key(clients));
        for clients in self.config.places.keys() {
            self.tables.entry(clients.clone()).or_insert_with(|| {
                let (service, clients) = (Arc::clone(service), clients.clone());
                let place = Place::from(ServicePortId { service, port: self.config.number, clients });
                Arc::new(ArcSwap::from_pointee(compiler.table(&place, None)))
            });
        }
        self.store(MeshTable::new(Arc::clone(&self.config), self.tables.clone(), self.own.clone()));
    }

    fn store(&self, table: MeshTable) {
        if let Serving::Routes(routed) = &self.port_config.serving {
            routed.table.store(Arc::new(PortTable::Mesh(table)));
        }
    }

    /// Opens a listener for each family of the cluster IPs; returns what failed.
    fn open(&mut self, service: &MeshConfig, shared: &Shared) -> Vec<String> {
        let (config, number) = (&self.port_config, self.config.number);
        let addresses = shared.addresses.borrow().clone();
        let open = |ip| Listener::open(ip, config, &shared.workers);
        let families = (&*addresses, &*service.cluster_ips);
        listener::open_all(&mut self.listeners, |one| one.address, families, number, open)
    }

    /// Serves the endpoints of the Service without routes to connections that the proxy may still send, unless it has stopped
    /// to send any, and closes then.
    fn retire(self, is_withdrawn: bool) {
        let none = Arc::new(MeshPort { places: BTreeMap::new(), ..MeshPort::clone(&self.config) });
        self.store(MeshTable::new(none, BTreeMap::new(), self.own.clone()));
        let runtime = Handle::try_current().ok().filter(|_| !is_withdrawn);
        let Some(runtime) = runtime else { return self.port_config.close() };
        runtime.spawn(async move {
            sleep(WITHDRAWAL).await;
            self.port_config.close();
            drop(self);
        });
    }
}
