//! Services without rules: their cluster IPs are loopback addresses on which the relay listens.
//!
//! For users without root. Programs of this machine reach 127.96.0.1 directly; other machines do not. Node ports are on
//! 127.0.0.1. Everything else needs rules and is reported as a problem of the Service.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plan::{Frontend, Plan, PortKey, Problem, Protocol, Role, ServicePort};

use super::fixed_listeners::{DesiredListeners, FixedListeners};
use super::owned;
use super::relay::{Relay, Scope};
use crate::{Backend, BackendError, SyncScope, SyncStats, TamperCallback};

/// The rootless backend. Requires [`plan::Options::rootless`].
pub struct Rootless {
    listeners: FixedListeners,
    unserved: std::collections::BTreeMap<PortKey, Vec<String>>,
    /// Whether the IPv6 warning was logged.
    ipv6_warned: bool,
}

impl Rootless {
    /// Nothing is served yet.
    #[must_use]
    pub fn new(relay: Relay) -> Self {
        Self { listeners: FixedListeners::new(relay), unserved: std::collections::BTreeMap::new(), ipv6_warned: false }
    }

    /// Updates what cannot be served of a Service port.
    fn update_unserved(&mut self, plan: &Plan, key: &PortKey) {
        let unserved = plan.ports.get(key).map(|port| unserved(plan, port)).unwrap_or_default();
        if key.family == api::ip::Family::V6 && !unserved.is_empty() && !std::mem::replace(&mut self.ipv6_warned, true)
        {
            tracing::warn!(
                "IPv6 addresses of Services are not served without root: IPv6 has no loopback range for them"
            );
        }
        if unserved.is_empty() {
            self.unserved.remove(key);
        } else {
            self.unserved.insert(key.clone(), unserved);
        }
    }
}

/// The loopback address of a frontend, if it has one.
fn address(frontend: Frontend, port: &ServicePort) -> Option<SocketAddr> {
    match frontend {
        Frontend::Address(ip, _, number) if ip.is_loopback() => Some(SocketAddr::new(ip, number)),
        Frontend::NodePort(api::ip::Family::V4, _, number) => Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), number)),
        Frontend::NodePort(api::ip::Family::V6, ..) | Frontend::Address(..) => None,
    }
    .filter(|_| port.key.protocol != Protocol::Sctp)
}

/// Listeners of a Service port. Without endpoints there are none, and clients are refused at once.
fn desired_listeners(plan: &Plan, port: &ServicePort) -> DesiredListeners {
    let mut wanted = DesiredListeners::new();
    for (frontend, role) in owned(plan, port) {
        // Clients are on this node, so only the internal traffic policy can restrict endpoints.
        let (scope, list) = match role == Role::Cluster && port.internal_local {
            true => (Scope::Local, &port.local),
            false => (Scope::Cluster, &port.cluster),
        };
        if let Some(at) = address(frontend, port).filter(|_| !list.is_empty()) {
            wanted.insert(at, scope);
        }
    }
    wanted
}

/// Problems of a Service port.
fn unserved(plan: &Plan, port: &ServicePort) -> Vec<String> {
    let key = &port.key;
    if key.protocol == Protocol::Sctp {
        return vec![format!(
            "its port {key} is not served: the relay does not support SCTP; run as root to use kernel rules"
        )];
    }
    let owned = owned(plan, port);
    let missing = owned.iter().filter(|(frontend, _)| address(*frontend, port).is_none());
    let say = |(frontend, role): &(Frontend, Role)| match role {
        Role::Cluster => format!(
            "its cluster address {frontend} is not served: without root only loopback addresses can be; choose \
             --service-cluster-ip-range 127.96.0.0/16, or run as root"
        ),
        Role::LoadBalancer | Role::External | Role::NodePort => {
            format!("its {frontend} is not served: without root only loopback addresses are; run as root")
        }
    };
    missing.map(say).collect()
}

impl Backend for Rootless {
    fn mode(&self) -> &'static str {
        "userspace"
    }

    fn sync(&mut self, plan: &Plan, scope: &SyncScope) -> Result<SyncStats, BackendError> {
        match scope {
            SyncScope::FullResync | SyncScope::Tampered => {
                self.unserved.clear();
                plan.ports.keys().for_each(|key| self.update_unserved(plan, key));
            }
            SyncScope::Changed(touched) => touched.ports.iter().for_each(|key| self.update_unserved(plan, key)),
        }
        Ok(SyncStats { changes: self.listeners.update(plan, scope, desired_listeners), cleanup_failures: 0 })
    }

    /// No rules, no tampering.
    fn watch_tampering(&mut self, _on_tampering: TamperCallback) -> Result<(), BackendError> {
        Ok(())
    }

    fn problems(&self) -> Vec<Problem> {
        let unserved = self.unserved.iter().flat_map(|(key, sentences)| {
            sentences.iter().map(|what| Problem { service: Arc::clone(&key.service), what: what.clone() })
        });
        unserved.chain(self.listeners.problems()).collect()
    }
}
