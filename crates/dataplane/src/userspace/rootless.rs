//! Services without any rule: their cluster IPs are loopback addresses, and the relay listens there.
//!
//! For people who may not change the machine's rules. Every program of the machine reaches 127.96.0.1 as it is; nobody else does.
//! Node ports are on 127.0.0.1. Everything else that a Service may ask for needs rules, and is said to its owner.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plan::{Frontend, Plan, PortKey, Problem, Protocol, Role, ServicePort};

use super::fixed::{Fixed, Wanted};
use super::owned;
use super::relay::{Relay, Scope};
use crate::{Backend, BackendError, Brought, Since, Tampered};

/// The backend. Its planner must have been told that it is rootless ([`plan::Options::rootless`]).
pub struct Rootless {
    listeners: Fixed,
    unserved: std::collections::BTreeMap<PortKey, Vec<String>>,
    /// Whether it was said that IPv6 is not served.
    said: bool,
}

impl Rootless {
    /// Nothing is served yet.
    #[must_use]
    pub fn new(relay: Relay) -> Self {
        Self { listeners: Fixed::new(relay), unserved: std::collections::BTreeMap::new(), said: false }
    }

    /// Notes what of a Service port cannot be served.
    fn note(&mut self, plan: &Plan, key: &PortKey) {
        let unserved = plan.ports.get(key).map(|port| unserved(plan, port)).unwrap_or_default();
        if key.family == api::ip::Family::V6 && !unserved.is_empty() && !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                "IPv6 addresses of Services are not served without root: IPv6 has no range of loopback addresses for them"
            );
        }
        if unserved.is_empty() {
            self.unserved.remove(key);
        } else {
            self.unserved.insert(key.clone(), unserved);
        }
    }
}

/// The address of a frontend, where a program can listen without any rule.
fn address(frontend: Frontend, port: &ServicePort) -> Option<SocketAddr> {
    match frontend {
        Frontend::Address(ip, _, number) if ip.is_loopback() => Some(SocketAddr::new(ip, number)),
        Frontend::NodePort(api::ip::Family::V4, _, number) => Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), number)),
        Frontend::NodePort(api::ip::Family::V6, ..) | Frontend::Address(..) => None,
    }
    .filter(|_| port.key.protocol != Protocol::Sctp)
}

/// Where a Service port wants to be served. Where there is no endpoint nobody listens, and clients are refused at once.
fn wants(plan: &Plan, port: &ServicePort) -> Wanted {
    let mut wanted = Wanted::new();
    for (frontend, role) in owned(plan, port) {
        // Whoever asks is on this node, so only the policy of traffic from inside can hold anybody here.
        let (scope, list) = match role == Role::Cluster && port.internal_local {
            true => (Scope::Here, &port.local),
            false => (Scope::Anywhere, &port.cluster),
        };
        if let Some(at) = address(frontend, port).filter(|_| !list.is_empty()) {
            wanted.insert(at, scope);
        }
    }
    wanted
}

/// What of a Service port cannot be served, as sentences.
fn unserved(plan: &Plan, port: &ServicePort) -> Vec<String> {
    let key = &port.key;
    if key.protocol == Protocol::Sctp {
        return vec![format!(
            "its port {key} is not served: a program cannot carry SCTP; run as root to have kernel rules do it"
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
            format!("its {frontend} is not served: without root only loopback addresses can be; run as root")
        }
    };
    missing.map(say).collect()
}

impl Backend for Rootless {
    fn mode(&self) -> &'static str {
        "userspace"
    }

    fn bring(&mut self, plan: &Plan, since: &Since) -> Result<Brought, BackendError> {
        match since {
            Since::Ever | Since::Tampered => {
                self.unserved.clear();
                plan.ports.keys().for_each(|key| self.note(plan, key));
            }
            Since::Last(touched) => touched.ports.iter().for_each(|key| self.note(plan, key)),
        }
        Ok(Brought { changes: self.listeners.follow(plan, since, wants), untidy: 0 })
    }

    /// There is nothing that others could change.
    fn guard(&mut self, _tampered: Tampered) -> Result<(), BackendError> {
        Ok(())
    }

    fn problems(&self) -> Vec<Problem> {
        let unserved = self.unserved.iter().flat_map(|(key, sentences)| {
            sentences.iter().map(|what| Problem { service: Arc::clone(&key.service), what: what.clone() })
        });
        unserved.chain(self.listeners.problems()).collect()
    }
}
