//! Listeners at addresses that are given: nobody brings traffic there, clients come by themselves.
//!
//! In: a plan as it changes, and what each Service port wants. Out: listeners that follow it. An address that somebody else has
//! is tried again at every change, and is a problem of its Service meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use plan::{Plan, PortKey, Problem, ServicePort};

use super::doors::places;
use super::relay::{Balancer, Listener, Places, Relay, Scope};
use crate::Since;

/// Where a Service port wants to be served, and with which endpoints.
pub(super) type Wanted = BTreeMap<SocketAddr, Scope>;

/// The listeners.
pub(super) struct Fixed {
    relay: Relay,
    ports: HashMap<PortKey, Served>,
    /// What could not be opened, and why.
    failed: BTreeMap<(PortKey, SocketAddr), String>,
}

struct Served {
    balancer: Arc<Balancer>,
    wanted: Wanted,
    open: BTreeMap<SocketAddr, Listener>,
}

impl Fixed {
    pub(super) fn new(relay: Relay) -> Self {
        Self { relay, ports: HashMap::new(), failed: BTreeMap::new() }
    }

    /// Follows a plan; answers how many listeners were opened or closed.
    pub(super) fn follow(
        &mut self,
        plan: &Plan,
        since: &Since,
        wants: impl Fn(&Plan, &ServicePort) -> Wanted,
    ) -> usize {
        let keys: BTreeSet<PortKey> = match since {
            Since::Ever | Since::Tampered => self.ports.keys().chain(plan.ports.keys()).cloned().collect(),
            Since::Last(touched) => touched.ports.clone(),
        };
        let mut changes = 0;
        // What is closed may be what another Service port gets.
        for key in &keys {
            let wanted = plan.ports.get(key).map(|port| wants(plan, port)).unwrap_or_default();
            changes += self.want(plan.ports.get(key).map(|port| &**port), key, wanted);
        }
        let failed = std::mem::take(&mut self.failed).into_keys().map(|(key, _)| key);
        for key in failed.chain(keys).collect::<BTreeSet<_>>() {
            changes += self.open(&key);
        }
        changes
    }

    /// Notes what a Service port wants and closes what it does not.
    fn want(&mut self, port: Option<&ServicePort>, key: &PortKey, wanted: Wanted) -> usize {
        if wanted.is_empty() && !self.ports.contains_key(key) {
            return 0;
        }
        let served = self.ports.entry(key.clone()).or_insert_with(|| Served {
            balancer: Arc::new(Balancer::new(Places::default())),
            wanted: Wanted::new(),
            open: BTreeMap::new(),
        });
        if let Some(port) = port {
            served.balancer.set(places(port));
        }
        let Served { wanted: before, open, .. } = served;
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

    /// Opens what a Service port wants and has not.
    fn open(&mut self, key: &PortKey) -> usize {
        let Some(Served { balancer, wanted, open }) = self.ports.get_mut(key) else { return 0 };
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

    /// What could not be opened.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.failed.iter().map(|((key, at), why)| {
            let what = format!("its port {key} is not served at {at}: {why}");
            Problem { service: Arc::clone(&key.service), what }
        })
    }
}

/// Why nobody can listen somewhere, and what to do about it.
fn reason(at: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there; stop it, or choose another port".to_owned(),
        io::ErrorKind::PermissionDenied if at.port() < 1024 => {
            "ports below 1024 are for root; choose a higher port, or lower net.ipv4.ip_unprivileged_port_start"
                .to_owned()
        }
        io::ErrorKind::Unsupported => "a program cannot carry SCTP; kernel rules can".to_owned(),
        _ => error.to_string(),
    }
}
