//! The HTTP endpoints of the DNS server: `/health`, `/ready` and `/metrics`.
//!
//! In: the state of the server, and the address of each endpoint from a Corefile or flags. Out: a listener for each address, which serves
//! only its endpoints. A new configuration moves them at run time. While the server drains it is not ready but healthy, so that clients move
//! and supervisors do not kill it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dataplane::health::{Handler, Reply};
use dns::config::Config;
use dns::metrics::Metrics;
use dns::reload::ReloadMetrics;
use parking_lot::RwLock;
use tokio::task::JoinHandle;

use super::components::{Components, SERVER};
use crate::commands::proxy::listen;
use crate::config::DnsArguments;

/// The addresses of the endpoints, and the setting that chose each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Endpoints {
    by_address: BTreeMap<SocketAddr, Vec<Endpoint>>,
    /// How long queries are answered while draining.
    lameduck: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Endpoint {
    path: &'static str,
    setting: &'static str,
}

impl Endpoints {
    /// From flags.
    pub(super) fn of_flags(arguments: &DnsArguments) -> Self {
        let mut endpoints = Self::default();
        endpoints.add(arguments.dns_ready_listen, "/ready", "--dns-ready-listen");
        endpoints.add(arguments.dns_ready_listen, "/health", "--dns-ready-listen");
        endpoints.add(arguments.dns_metrics_listen, "/metrics", "--dns-metrics-listen");
        endpoints
    }

    /// From a Corefile: endpoints without a directive are off.
    pub(super) fn of_corefile(config: &Config) -> Self {
        let mut endpoints = Self::default();
        for block in &config.blocks {
            if let Some(health) = block.health {
                endpoints.add(health.address, "/health", "`health` in the Corefile");
                endpoints.lameduck = endpoints.lameduck.max(health.lameduck);
            }
            if let Some(address) = block.ready {
                endpoints.add(address, "/ready", "`ready` in the Corefile");
            }
            if let Some(address) = block.prometheus {
                endpoints.add(address, "/metrics", "`prometheus` in the Corefile");
            }
        }
        endpoints
    }

    fn add(&mut self, address: SocketAddr, path: &'static str, setting: &'static str) {
        let here = self.by_address.entry(address).or_default();
        if !here.iter().any(|endpoint| endpoint.path == path) {
            here.push(Endpoint { path, setting });
        }
    }

    fn has(&self, address: SocketAddr, path: &str) -> bool {
        self.by_address.get(&address).is_some_and(|here| here.iter().any(|endpoint| endpoint.path == path))
    }
}

/// The state that the endpoints report.
pub(super) struct State {
    /// The active components.
    components: RwLock<Arc<Components>>,
    pub(super) metrics: Arc<Metrics>,
    /// Metrics of reloads, if there is a Corefile.
    reload: Option<Arc<ReloadMetrics>>,
    endpoints: RwLock<Endpoints>,
    /// Whether it is draining.
    draining: RwLock<bool>,
}

impl State {
    pub(super) fn new(components: Components, metrics: Arc<Metrics>, reload: Option<Arc<ReloadMetrics>>) -> Self {
        let (components, endpoints, draining) =
            (RwLock::new(Arc::new(components)), RwLock::default(), RwLock::default());
        Self { components, metrics, reload, endpoints, draining }
    }

    /// The active components.
    pub(super) fn components(&self) -> Arc<Components> {
        self.components.read().clone()
    }

    /// Replaces the active components.
    pub(super) fn replace(&self, components: Arc<Components>) {
        *self.components.write() = components;
    }

    /// Reports not ready from now on; returns how long queries are still answered.
    pub(super) fn drain(&self) -> Duration {
        *self.draining.write() = true;
        self.endpoints.read().lameduck
    }

    /// Why the server is not ready; empty if it is.
    fn problems(&self) -> Vec<String> {
        if *self.draining.read() {
            return vec!["the server is stopping".to_owned()];
        }
        let components = self.components();
        components.informers.out_of_sync().into_iter().chain(components.resolver.not_ready()).collect()
    }

    fn metrics_text(&self) -> String {
        let components = self.components();
        let reload = self.reload.as_ref().map(ReloadMetrics::collector);
        let components = [self.metrics.collector(&components.snapshot), components.resolver.collector(SERVER)];
        dns::metrics::encode(components.into_iter().chain(reload))
    }
}

/// The endpoints at one address.
struct EndpointHandler {
    state: Arc<State>,
    address: SocketAddr,
}

impl Handler for EndpointHandler {
    fn handle(&self, path: &str) -> Reply {
        let text = |code, body: String| (code, vec![("content-type", "text/plain; charset=utf-8".to_owned())], body);
        // Checked for each request: a connection may be older than the configuration.
        let is_here = self.state.endpoints.read().has(self.address, path);
        match path {
            "/health" if is_here => text(200, "OK".to_owned()),
            "/metrics" if is_here => text(200, self.state.metrics_text()),
            "/ready" if is_here => {
                let problems = self.state.problems();
                if problems.is_empty() { text(200, "OK".to_owned()) } else { text(503, problems.join("\n") + "\n") }
            }
            _ => text(404, "404 page not found\n".to_owned()),
        }
    }
}

/// The listeners. Dropping them closes them.
pub(super) struct HttpListeners {
    state: Arc<State>,
    listeners: BTreeMap<SocketAddr, JoinHandle<()>>,
}

impl HttpListeners {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state, listeners: BTreeMap::new() }
    }

    /// Moves the endpoints, each as soon as its address is free.
    pub(super) async fn follow(&mut self, endpoints: Endpoints) {
        let gone: Vec<SocketAddr> =
            self.listeners.keys().copied().filter(|address| !endpoints.by_address.contains_key(address)).collect();
        for listener in gone.iter().filter_map(|address| self.listeners.remove(address)) {
            listener.abort();
            // The address is free when the task has ended; an aborted task returns an error.
            let _ = listener.await;
        }
        for (address, here) in &endpoints.by_address {
            let Some(first) = here.first().filter(|_| !self.listeners.contains_key(address)) else { continue };
            let handler = EndpointHandler { state: self.state.clone(), address: *address };
            let listener = tokio::spawn(listen(*address, first.setting, Arc::new(handler)).await);
            self.listeners.insert(*address, listener);
        }
        *self.state.endpoints.write() = endpoints;
    }
}

impl Drop for HttpListeners {
    fn drop(&mut self) {
        self.listeners.values().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use dns::corefile::{EmptyEnvironment, parse};

    use super::*;

    fn endpoints(text: &str) -> Endpoints {
        Endpoints::of_corefile(&parse("Corefile", text, &EmptyEnvironment).expect("a Corefile"))
    }

    #[test]
    fn each_endpoint_has_the_address_of_its_directive() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(endpoints(".:53 {\nerrors\n}"), Endpoints::default());
        let usual = endpoints(".:53 {\nhealth\nready\nprometheus\n}");
        let found: Vec<_> = usual.by_address.iter().map(|(address, here)| (*address, here[0].path)).collect();
        assert_eq!(
            found,
            [(at("127.0.0.1:9153"), "/metrics"), (at("[::]:8080"), "/health"), (at("[::]:8181"), "/ready")]
        );
        let shared = endpoints("a {\nhealth :1 {\nlameduck 2s\n}\nready :1\n}\nb {\nhealth :1 {\nlameduck 5s\n}\n}");
        assert!(shared.has(at("[::]:1"), "/health") && shared.has(at("[::]:1"), "/ready"));
        assert!(!shared.has(at("[::]:1"), "/metrics"));
        assert_eq!((shared.by_address[&at("[::]:1")].len(), shared.lameduck), (2, Duration::from_secs(5)));
    }
}
