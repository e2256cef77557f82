//! Listeners at fixed addresses that clients connect to directly.
//!
//! In: plan changes, and the desired listeners of each Service port. Out: listeners. An address in use is retried at
//! every change and reported as a problem meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use plan::{Plan, PortKey, Problem, ServicePort};

use super::listeners::endpoints;
use super::relay::{Balancer, Endpoints, Listener, Relay, Scope};
use crate::SyncScope;

/// Desired addresses of a Service port, and the scope of their endpoints.
pub(super) type DesiredListeners = BTreeMap<SocketAddr, Scope>;

/// Listeners of all Service ports.
pub(super) struct FixedListeners {
    relay: Relay,
    ports: HashMap<PortKey, PortListeners>,
    /// Listeners that could not be opened, and why.
    failed: BTreeMap<(PortKey, SocketAddr), String>,
}

struct PortListeners {
    balancer: Arc<Balancer>,
    wanted: DesiredListeners,
    open: BTreeMap<SocketAddr, Listener>,
}

impl FixedListeners {
    pub(super) fn new(relay: Relay) -> Self {
        Self { relay, ports: HashMap::new(), failed: BTreeMap::new() }
    }

    /// Applies changes of the plan; returns the number of listeners opened or closed.
    pub(super) fn update(
        &mut self,
        plan: &Plan,
        scope: &SyncScope,
        desired: impl Fn(&Plan, &ServicePort) -> DesiredListeners,
    ) -> usize {
        let keys: BTreeSet<PortKey> = match scope {
            SyncScope::FullResync | SyncScope::Tampered => {
                self.ports.keys().chain(plan.ports.keys()).cloned().collect()
            }
            SyncScope::Changed(touched) => touched.ports.clone(),
        };
        let mut changes = 0;
        // Close first: another Service port may get the address.
        for key in &keys {
            let wanted = plan.ports.get(key).map(|port| desired(plan, port)).unwrap_or_default();
            changes += self.set_desired(plan.ports.get(key).map(|port| &**port), key, wanted);
        }
        let failed = std::mem::take(&mut self.failed).into_keys().map(|(key, _)| key);
        for key in failed.chain(keys).collect::<BTreeSet<_>>() {
            changes += self.open(&key);
        }
        changes
    }

    /// Records the desired listeners of a Service port and closes the others.
    fn set_desired(&mut self, port: Option<&ServicePort>, key: &PortKey, wanted: DesiredListeners) -> usize {
        if wanted.is_empty() && !self.ports.contains_key(key) {
            return 0;
        }
        let listeners = self.ports.entry(key.clone()).or_insert_with(|| PortListeners {
            balancer: Arc::new(Balancer::new(Endpoints::default())),
            wanted: DesiredListeners::new(),
            open: BTreeMap::new(),
        });
        if let Some(port) = port {
            listeners.balancer.set(endpoints(port));
        }
        let PortListeners { wanted: before, open, .. } = listeners;
        let gone = before.iter().filter(|(at, scope)| wanted.get(at) != Some(scope)).map(|(at, _)| *at);
        let gone: Vec<Listener> = gone.filter_map(|at| open.remove(&at)).collect();
        let closed = gone.len();
        gone.into_iter().for_each(Listener::close);
        *before = wanted;
        if before.is_empty() {
            self.ports.remove(key);
        }
        closed
    }

    /// Opens the missing listeners of a Service port.
    fn open(&mut self, key: &PortKey) -> usize {
        let Some(PortListeners { balancer, wanted, open }) = self.ports.get_mut(key) else { return 0 };
        let before = open.len();
        for (at, scope) in wanted.iter() {
            if open.contains_key(at) {
                continue;
            }
            match self.relay.listen(*at, key.protocol, balancer, *scope) {
                Ok(listener) => drop(open.insert(*at, listener)),
                Err(error) => drop(self.failed.insert((key.clone(), *at), reason(*at, &error))),
            }
        }
        open.len() - before
    }

    /// Listeners that could not be opened.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.failed.iter().map(|((key, at), why)| {
            let what = format!("its port {key} is not served at {at}: {why}");
            Problem { service: Arc::clone(&key.service), what }
        })
    }
}

/// Cause and next step of a failed listen.
fn reason(at: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "address already in use by another program; stop it, or choose another port".to_owned()
        }
        io::ErrorKind::PermissionDenied if at.port() < 1024 => {
            "ports below 1024 need root; choose a higher port, or lower net.ipv4.ip_unprivileged_port_start".to_owned()
        }
        io::ErrorKind::Unsupported => "the relay does not support SCTP; use a mode with kernel rules".to_owned(),
        _ => error.to_string(),
    }
}
