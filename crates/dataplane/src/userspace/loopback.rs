//! Node ports on 127.0.0.1 and ::1, in addition to any mode.
//!
//! Rules could serve loopback only with route_localnet, which exposes it to the network; a process that listens there
//! can. Clients there are on this node, so both traffic policies allow all endpoints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ip::Family;
use parking_lot::Mutex;
use plan::{DataPlane, Plan, Problem, Protocol, Role, ServicePort};

use super::fixed_listeners::{DesiredListeners, FixedListeners};
use super::owned;
use super::relay::{Relay, Scope};
use crate::{Backend, BackendError, SyncScope, SyncStats, TamperCallback};

/// Serves node ports on the addresses of [`plan::Options::loopback`].
pub struct LoopbackPorts(FixedListeners);

impl LoopbackPorts {
    /// No port is served yet.
    #[must_use]
    pub fn new(relay: Relay) -> Self {
        Self(FixedListeners::new(relay))
    }

    /// Applies changes of the plan; returns the number of listeners opened or closed. A port that cannot be opened is a
    /// problem, not an error.
    pub fn update(&mut self, plan: &Plan, scope: &SyncScope) -> usize {
        self.0.update(plan, scope, desired_listeners)
    }

    /// Ports that cannot be served.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        self.0.problems()
    }
}

/// Loopback listeners of a Service port. Without endpoints there are none, and clients are refused at once.
pub(super) fn desired_listeners(plan: &Plan, port: &ServicePort) -> DesiredListeners {
    let owns = owned(plan, port).iter().any(|(_, role)| *role == Role::NodePort);
    let Some(number) = port.node_port.filter(|_| owns && !port.cluster.is_empty()) else {
        return DesiredListeners::new();
    };
    if port.key.protocol == Protocol::Sctp {
        return DesiredListeners::new();
    }
    let here = plan.options.loopback.addresses().filter(|ip| Family::of(*ip) == port.key.family);
    here.map(|ip| (SocketAddr::new(ip, number), Scope::Cluster)).collect()
}

/// A backend plus node ports on loopback. The ports are shared, so they stay open when the backend is replaced.
pub struct WithLoopback {
    backend: Box<dyn Backend>,
    ports: Arc<Mutex<LoopbackPorts>>,
}

impl WithLoopback {
    /// Combines them.
    #[must_use]
    pub fn new(backend: Box<dyn Backend>, ports: Arc<Mutex<LoopbackPorts>>) -> Self {
        Self { backend, ports }
    }
}

impl Backend for WithLoopback {
    fn mode(&self) -> &'static str {
        self.backend.mode()
    }

    fn is_ipvs(&self) -> bool {
        self.backend.is_ipvs()
    }

    fn data_plane(&mut self) -> DataPlane {
        self.backend.data_plane()
    }

    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError> {
        // Ports first: they must be open when the rules are in force. Opening them again after a failed sync is
        // harmless.
        let opened = self.ports.lock().update(plan, scope);
        let brought = self.backend.sync(plan, scope)?;
        Ok(SyncStats { changes: brought.changes + opened, ..brought })
    }

    fn watch_tampering(&mut self, on_tampering: TamperCallback) -> Result<(), BackendError> {
        self.backend.watch_tampering(on_tampering)
    }

    fn next_maintenance(&self) -> Option<Duration> {
        self.backend.next_maintenance()
    }

    fn maintain(&mut self, plan: &Plan) -> Result<SyncStats, BackendError> {
        self.backend.maintain(plan)
    }

    fn rules(&self, plan: &Plan, port: &ServicePort) -> String {
        self.backend.rules(plan, port)
    }

    fn problems(&self) -> Vec<Problem> {
        self.backend.problems().into_iter().chain(self.ports.lock().problems()).collect()
    }
}
