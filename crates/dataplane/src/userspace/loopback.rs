//! Node ports on 127.0.0.1 and ::1, beside any mode.
//!
//! Rules cannot serve loopback without having the kernel route its addresses, which would let neighbours in; a program that
//! listens there can. Whoever asks there is on this node, so neither traffic policy holds it back from endpoints elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ip::Family;
use parking_lot::Mutex;
use plan::{Plan, Problem, Protocol, Role, ServicePort};

use super::fixed::{Fixed, Wanted};
use super::owned;
use super::relay::{Relay, Scope};
use crate::{Backend, BackendError, Brought, Since, Tampered};

/// Serves node ports on the loopback addresses that [`plan::Options::loopback`] names.
pub struct LoopbackPorts(Fixed);

impl LoopbackPorts {
    /// None is served yet.
    #[must_use]
    pub fn new(relay: Relay) -> Self {
        Self(Fixed::new(relay))
    }

    /// Follows a plan; answers how many listeners were opened or closed. What cannot be opened is a problem, not a failure.
    pub fn follow(&mut self, plan: &Plan, since: &Since) -> usize {
        self.0.follow(plan, since, wants)
    }

    /// What could not be served.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        self.0.problems()
    }
}

/// Where a Service port wants to be served on loopback. Without endpoints nobody listens, and clients are refused at once.
pub(super) fn wants(plan: &Plan, port: &ServicePort) -> Wanted {
    let owns = owned(plan, port).iter().any(|(_, role)| *role == Role::NodePort);
    let Some(number) = port.node_port.filter(|_| owns && !port.cluster.is_empty()) else { return Wanted::new() };
    if port.key.protocol == Protocol::Sctp {
        return Wanted::new();
    }
    let here = plan.options.loopback.addresses().filter(|ip| Family::of(*ip) == port.key.family);
    here.map(|ip| (SocketAddr::new(ip, number), Scope::Anywhere)).collect()
}

/// A backend, and node ports on loopback beside it. The ports are shared, so that they stay open when another backend takes over.
pub struct WithLoopback {
    backend: Box<dyn Backend>,
    ports: Arc<Mutex<LoopbackPorts>>,
}

impl WithLoopback {
    /// Joins them.
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

    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError> {
        // Ports first: whoever finds the rules in force may ask on loopback at once. Opening them twice is no harm when rules fail.
        let opened = self.ports.lock().follow(plan, since);
        let brought = self.backend.bring(plan, since)?;
        Ok(Brought { changes: brought.changes + opened, ..brought })
    }

    fn guard(&mut self, tampered: Tampered) -> Result<(), BackendError> {
        self.backend.guard(tampered)
    }

    fn rest(&self) -> Option<Duration> {
        self.backend.rest()
    }

    fn tend(&mut self, plan: &Plan) -> Result<Brought, BackendError> {
        self.backend.tend(plan)
    }

    fn rules(&self, plan: &Plan, port: &ServicePort) -> String {
        self.backend.rules(plan, port)
    }

    fn problems(&self) -> Vec<Problem> {
        self.backend.problems().into_iter().chain(self.ports.lock().problems()).collect()
    }
}
