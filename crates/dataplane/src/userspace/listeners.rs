//! Relay listeners of Service ports, with one balancer each.
//!
//! In: Service ports. Out: their relay ports, which stay the same while needed. A new listener is open before a rule
//! redirects to it, and an old one is closed after none does: call [`RelayListeners::prepare`] before writing rules and
//! [`RelayListeners::commit`] after.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::ip::Family;
use plan::{Backend, Balancing, Frontend, Plan, PortKey, Scope, ServicePort};

use super::relay::{Balancer, Endpoints, Listener, Relay, Selection};
use crate::nft::redirect::{self, Needs};

/// How many ports chosen by the kernel are tried to find one that is not a node port.
const MAX_PORT_ATTEMPTS: usize = 16;

/// How long a listener stays open after its last rule is deleted: redirected connections may not be accepted yet.
const CLOSE_DELAY: Duration = Duration::from_secs(1);

/// All relay listeners.
pub(super) struct RelayListeners {
    relay: Relay,
    open: HashMap<PortKey, PortListeners>,
}

struct PortListeners {
    balancer: Arc<Balancer>,
    endpoints: Endpoints,
    listeners: BTreeMap<Scope, Listener>,
    needs: Needs,
}

impl PortListeners {
    /// Adds endpoints to empty lists before rules are written. Other lists stay, so that a failed write changes
    /// nothing; of an exclusive port nothing stays, there must never be two.
    fn stage_endpoints(&mut self, mut endpoints: Endpoints) {
        if endpoints.exclusive {
            return self.set(endpoints);
        }
        keep(&mut endpoints.cluster, &self.endpoints.cluster, |before, _| !before.is_empty());
        keep(&mut endpoints.local, &self.endpoints.local, |before, _| !before.is_empty());
        endpoints.serving.extend(&self.endpoints.serving);
        self.set(endpoints);
    }

    /// Sets the endpoints after rules are written. Lists that become empty keep their old endpoints: only connections
    /// in flight still arrive, and an old endpoint may still work.
    fn commit_endpoints(&mut self, mut endpoints: Endpoints) {
        if endpoints.exclusive {
            return self.set(endpoints);
        }
        keep(&mut endpoints.cluster, &self.endpoints.cluster, |_, now| now.is_empty());
        keep(&mut endpoints.local, &self.endpoints.local, |_, now| now.is_empty());
        self.set(endpoints);
    }

    fn set(&mut self, endpoints: Endpoints) {
        if endpoints != self.endpoints {
            self.balancer.set(endpoints.clone());
            self.endpoints = endpoints;
        }
    }

    fn relay_ports(&self) -> redirect::RelayPorts {
        let number = |scope, needed: bool| {
            let listener = self.listeners.get(&scope).filter(|_| needed);
            listener.map(|listener| listener.address.port())
        };
        let Needs { cluster, local } = self.needs;
        redirect::RelayPorts { cluster: number(Scope::Cluster, cluster), local: number(Scope::Local, local) }
    }
}

impl RelayListeners {
    pub(super) fn new(relay: Relay) -> Self {
        Self { relay, open: HashMap::new() }
    }

    /// Opens the listeners that a Service port needs, and returns its relay ports.
    pub(super) fn prepare(
        &mut self,
        plan: &Plan,
        port: &ServicePort,
        needs: Needs,
    ) -> io::Result<redirect::RelayPorts> {
        let listeners = self.open.entry(port.key.clone()).or_insert_with(|| PortListeners {
            balancer: Arc::new(Balancer::new(Endpoints::default())),
            endpoints: Endpoints::default(),
            listeners: BTreeMap::new(),
            needs,
        });
        listeners.stage_endpoints(endpoints(port));
        listeners.needs = needs;
        for (scope, _) in scopes(needs).into_iter().filter(|(_, needed)| *needed) {
            if !listeners.listeners.contains_key(&scope) {
                let listener = open(&self.relay, plan, &port.key, &listeners.balancer, scope)?;
                listeners.listeners.insert(scope, listener);
            }
        }
        Ok(listeners.relay_ports())
    }

    /// Closes the listeners that a Service port no longer needs; returns the remaining relay ports.
    pub(super) fn commit(&mut self, key: &PortKey, port: Option<&ServicePort>) -> redirect::RelayPorts {
        let Some(listeners) = self.open.get_mut(key) else { return redirect::RelayPorts::default() };
        match port {
            Some(port) => listeners.commit_endpoints(endpoints(port)),
            None => listeners.needs = Needs::default(),
        }
        for (scope, _) in scopes(listeners.needs).into_iter().filter(|(_, needed)| !needed) {
            if let Some(listener) = listeners.listeners.remove(&scope) {
                listener.close_after(CLOSE_DELAY);
            }
        }
        let left = listeners.relay_ports();
        if listeners.listeners.is_empty() {
            self.open.remove(key);
        }
        left
    }

    /// Service ports with listeners.
    pub(super) fn keys(&self) -> impl Iterator<Item = &PortKey> {
        self.open.keys()
    }

    /// Endpoints behind a relay port.
    #[cfg(test)]
    pub(super) fn behind(&self, key: &PortKey, number: u16) -> Option<Vec<SocketAddr>> {
        let listeners = self.open.get(key)?;
        let is_it = |(_, listener): &(&Scope, &Listener)| listener.address.port() == number;
        listeners.listeners.iter().find(is_it).map(|(scope, _)| listeners.balancer.list(*scope))
    }
}

/// Restores the previous list if `decide` returns true.
fn keep(now: &mut Vec<SocketAddr>, before: &[SocketAddr], decide: fn(&[SocketAddr], &[SocketAddr]) -> bool) {
    if decide(before, now) {
        now.clear();
        now.extend_from_slice(before);
    }
}

const fn scopes(needs: Needs) -> [(Scope, bool); 2] {
    [(Scope::Cluster, needs.cluster), (Scope::Local, needs.local)]
}

/// Opens a listener on a port chosen by the kernel, on all addresses: a redirect keeps the address of the incoming
/// interface.
fn open(relay: &Relay, plan: &Plan, key: &PortKey, balancer: &Arc<Balancer>, scope: Scope) -> io::Result<Listener> {
    let any: IpAddr = match key.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut passed_over = Vec::new();
    loop {
        let listener = relay.listen(SocketAddr::new(any, 0), key.protocol, balancer, scope)?;
        let node_port = Frontend::NodePort(key.family, key.protocol, listener.address.port());
        if !plan.frontends.contains_key(&node_port) || passed_over.len() >= MAX_PORT_ATTEMPTS {
            return Ok(listener);
        }
        // Kept open, so that the kernel does not choose it again.
        passed_over.push(listener);
    }
}

/// Endpoints of a Service port for the relay.
pub(super) fn endpoints(port: &ServicePort) -> Endpoints {
    let all = |list: &[Backend]| list.iter().map(|one| SocketAddr::new(one.ip, one.port)).collect();
    Endpoints {
        cluster: all(&port.slots(Scope::Cluster)),
        local: all(&port.slots(Scope::Local)),
        serving: all(&port.serving),
        affinity: port.affinity.map(|seconds| Duration::from_secs(u64::from(seconds))),
        selection: match port.balancing {
            Balancing::Maglev(_) => Selection::Hash,
            Balancing::LeastConnections => Selection::LeastConnections,
            Balancing::Random | Balancing::RoundRobin | Balancing::Weighted(_) | Balancing::Leader => Selection::Turn,
        },
        exclusive: port.balancing.is_exclusive(),
    }
}
