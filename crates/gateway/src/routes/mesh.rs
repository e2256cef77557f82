//! Services at layer 7 (mesh): ports whose cluster IP leads to this node's gateway, which selects an endpoint for each request.
//!
//! ```text
//! routing::cluster ─▶ MeshConfig ─▶ service: listeners, redirects of the cluster IP ─▶ proxy
//!                                       └▶ table: rules by the namespace of the client
//! Pods of this node ─▶ clients        connection: who is it? ─▶ HTTP ─▶ routes::http, or bytes
//! ```
//! A cluster IP is redirected while this node can serve it: the Pods of the node are known, so that the source of a
//! connection is, and a listener is open. In all other cases the Service is served at layer 4, as without routes. A port
//! that is no longer served keeps its listener for a moment, until the proxy has no rule that leads there.

mod connection;
mod service;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::view::Pod;
use arc_swap::ArcSwap;
use routing::model::{MeshConfig, ServicePortId};

use self::service::MeshService;
use super::compile::Compiler;
use super::programmed::Problem;
use super::tables::Tables;
use crate::clients::PodTable;
use crate::controller::Shared;

pub(super) use connection::serve;
pub(crate) use table::{MeshTable, OwnEndpoints};

/// How long the Pods of this node are watched after the last Service has gone.
const KEPT: Duration = Duration::from_secs(10);
/// Ports of the Services of one namespace that are served here at layer 7. Each takes sockets and memory of every node;
/// those beyond stay at layer 4.
const MAX_PORTS_OF_NAMESPACE: usize = 512;

/// All Services that are served at layer 7.
pub(super) struct Mesh {
    shared: Arc<Shared>,
    services: BTreeMap<Arc<str>, MeshService>,
    pods: PodTable,
    /// Whether `pods` changed since it was published.
    pods_changed: bool,
    /// Whether the Pods of this node are known.
    has_pods: bool,
    /// Services to program again.
    dirty: BTreeSet<Arc<str>>,
    /// Services beyond the limit of their namespace.
    beyond: BTreeSet<Arc<str>>,
    /// Until when Pods are needed after a Service has gone: its listeners still accept connections.
    retiring_until: Option<Instant>,
}

impl Mesh {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let (services, pods, dirty, beyond) = Default::default();
        Self { shared, services, pods, pods_changed: false, has_pods: false, dirty, beyond, retiring_until: None }
    }

    /// Whether a Service is served, or was a moment ago.
    pub(super) fn is_used(&self) -> bool {
        !self.services.is_empty() || self.retiring_until.is_some_and(|end| Instant::now() < end)
    }

    /// The table of a port as a group of clients sees it, if it is served.
    pub(super) fn tables(&self, id: &ServicePortId) -> Option<&Arc<ArcSwap<Tables>>> {
        self.services.get(&id.service)?.tables(id.port, &id.clients)
    }

    /// Opens the ports of all Services again.
    pub(super) fn open_again(&mut self) {
        self.dirty.extend(self.services.keys().cloned());
    }

    /// Applies a change of a Pod of this node.
    pub(super) fn apply_pod(&mut self, key: &str, pod: Option<&Pod>) {
        self.pods_changed |= self.pods.apply(key, pod);
    }

    /// Sets whether the Pods of this node are known: until then cluster IPs are not redirected.
    pub(super) fn set_has_pods(&mut self, has_pods: bool) {
        if !self.is_used() && !self.pods.is_empty() {
            // They are not watched any longer.
            (self.pods, self.pods_changed) = (PodTable::default(), true);
        }
        if std::mem::take(&mut self.pods_changed) {
            self.shared.clients.set_pods(self.pods.by_address());
        }
        if std::mem::replace(&mut self.has_pods, has_pods) != has_pods {
            self.services.values_mut().for_each(|service| service.publish(has_pods));
        }
    }

    /// Programs these Services, and those that must be opened again; returns what failed.
    pub(super) fn program(
        &mut self,
        touched: BTreeSet<Arc<str>>,
        compiler: &mut Compiler<'_>,
    ) -> Vec<(Arc<str>, Vec<Problem>)> {
        let mut services = touched;
        services.append(&mut self.dirty);
        let mut programmed = Vec::new();
        // First what goes: others may have its place then.
        for service in &services {
            if compiler.cluster.mesh(service).is_none() {
                let was_served = self.remove(service);
                if self.beyond.remove(service) || was_served {
                    programmed.push((Arc::clone(service), Vec::new()));
                }
            }
        }
        services.extend(self.beyond.iter().cloned());
        for service in services {
            if let Some(config) = compiler.cluster.mesh(&service) {
                let problems = self.program_service(&config, compiler);
                programmed.push((service, problems));
            }
        }
        programmed
    }

    fn program_service(&mut self, config: &Arc<MeshConfig>, compiler: &mut Compiler<'_>) -> Vec<Problem> {
        let service = &config.service;
        if self.ports_beside(service) + config.ports.len() > MAX_PORTS_OF_NAMESPACE {
            self.remove(service);
            self.beyond.insert(Arc::clone(service));
            let message = format!(
                "not served at layer 7: its namespace has more than {MAX_PORTS_OF_NAMESPACE} such ports; remove routes or \
                 annotations of others"
            );
            return vec![Problem { reason: "TooManyPorts", message }];
        }
        self.beyond.remove(service);
        let new = || MeshService::new(Arc::clone(config), Arc::clone(&self.shared));
        let served = self.services.entry(Arc::clone(service)).or_insert_with(new);
        let problems = served.apply(Arc::clone(config), compiler);
        served.publish(self.has_pods);
        let failed = problems.into_iter();
        failed
            .map(|message| Problem { reason: "ListenerFailed", message: format!("{message}; served at layer 4") })
            .collect()
    }

    /// Stops to serve a Service; whether it was served.
    fn remove(&mut self, service: &str) -> bool {
        let was_served = self.services.remove(service).is_some();
        if was_served {
            self.retiring_until = Some(Instant::now() + KEPT);
        }
        was_served
    }

    /// Ports of other Services of the same namespace that are served.
    fn ports_beside(&self, service: &str) -> usize {
        let namespace = |key: &str| key.split_once('/').map(|(namespace, _)| namespace.to_owned());
        let others = self.services.iter().filter(|(key, _)| ***key != *service && namespace(key) == namespace(service));
        others.map(|(_, service)| service.len()).sum()
    }
}
