//! The pages of a DNS server: `/health` for supervisors, `/ready` for whoever sends questions, `/metrics` for dashboards.
//!
//! In: who answers now, and where pages are, as a Corefile or flags say. Out: a listener for each address, with those pages alone
//! that belong there. Another configuration moves them while the server runs. A server that was told to end is not ready any
//! more, and healthy all the same: nobody shall send it questions, and nobody end it before its time.

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

use super::parts::{Parts, SERVER};
use crate::commands::proxy::listen;
use crate::config::DnsArguments;

/// Where which pages are, and what to change to have them elsewhere.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Plan {
    places: BTreeMap<SocketAddr, Vec<Page>>,
    /// How long questions are answered after it was told to end.
    lameduck: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Page {
    path: &'static str,
    said_by: &'static str,
}

impl Plan {
    /// As flags say.
    pub(super) fn of_flags(arguments: &DnsArguments) -> Self {
        let mut plan = Self::default();
        plan.add(arguments.dns_ready_listen, "/ready", "--dns-ready-listen");
        plan.add(arguments.dns_ready_listen, "/health", "--dns-ready-listen");
        plan.add(arguments.dns_metrics_listen, "/metrics", "--dns-metrics-listen");
        plan
    }

    /// As a Corefile says: what it does not mention is not there.
    pub(super) fn of_corefile(config: &Config) -> Self {
        let mut plan = Self::default();
        for block in &config.blocks {
            if let Some(health) = block.health {
                plan.add(health.address, "/health", "`health` in the Corefile");
                plan.lameduck = plan.lameduck.max(health.lameduck);
            }
            if let Some(address) = block.ready {
                plan.add(address, "/ready", "`ready` in the Corefile");
            }
            if let Some(address) = block.prometheus {
                plan.add(address, "/metrics", "`prometheus` in the Corefile");
            }
        }
        plan
    }

    fn add(&mut self, address: SocketAddr, path: &'static str, said_by: &'static str) {
        let pages = self.places.entry(address).or_default();
        if !pages.iter().any(|page| page.path == path) {
            pages.push(Page { path, said_by });
        }
    }

    fn has(&self, address: SocketAddr, path: &str) -> bool {
        self.places.get(&address).is_some_and(|pages| pages.iter().any(|page| page.path == path))
    }
}

/// What pages are about.
pub(super) struct State {
    /// Who answers now.
    parts: RwLock<Arc<Parts>>,
    pub(super) metrics: Arc<Metrics>,
    /// What becomes of the Corefile, if there is one.
    reload: Option<Arc<ReloadMetrics>>,
    plan: RwLock<Plan>,
    /// Whether it was told to end.
    leaving: RwLock<bool>,
}

impl State {
    pub(super) fn new(parts: Parts, metrics: Arc<Metrics>, reload: Option<Arc<ReloadMetrics>>) -> Self {
        let (parts, plan, leaving) = (RwLock::new(Arc::new(parts)), RwLock::default(), RwLock::default());
        Self { parts, metrics, reload, plan, leaving }
    }

    /// Who answers now.
    pub(super) fn parts(&self) -> Arc<Parts> {
        self.parts.read().clone()
    }

    /// Shows others from now on.
    pub(super) fn show(&self, parts: Arc<Parts>) {
        *self.parts.write() = parts;
    }

    /// Is not ready any more; answers for how long questions are to be answered still.
    pub(super) fn leave(&self) -> Duration {
        *self.leaving.write() = true;
        self.plan.read().lameduck
    }

    /// Why questions should go elsewhere; nothing when they need not.
    fn problems(&self) -> Vec<String> {
        if *self.leaving.read() {
            return vec!["it was told to end".to_owned()];
        }
        let parts = self.parts();
        parts.inputs.out_of_sync().into_iter().chain(parts.resolver.not_ready()).collect()
    }

    fn figures(&self) -> String {
        let parts = self.parts();
        let reload = self.reload.as_ref().map(ReloadMetrics::collector);
        let parts = [self.metrics.collector(&parts.book), parts.resolver.collector(SERVER)];
        dns::metrics::encode(parts.into_iter().chain(reload))
    }
}

/// The pages at one address.
struct Here {
    state: Arc<State>,
    address: SocketAddr,
}

impl Handler for Here {
    fn handle(&self, path: &str) -> Reply {
        let text = |code, body: String| (code, vec![("content-type", "text/plain; charset=utf-8".to_owned())], body);
        // Asked each time: a connection may be older than the plan.
        let is_here = self.state.plan.read().has(self.address, path);
        match path {
            "/health" if is_here => text(200, "OK".to_owned()),
            "/metrics" if is_here => text(200, self.state.figures()),
            "/ready" if is_here => {
                let problems = self.state.problems();
                if problems.is_empty() { text(200, "OK".to_owned()) } else { text(503, problems.join("\n") + "\n") }
            }
            _ => text(404, "there is no such page here\n".to_owned()),
        }
    }
}

/// The listeners. Dropping them ends them.
pub(super) struct Pages {
    state: Arc<State>,
    listeners: BTreeMap<SocketAddr, JoinHandle<()>>,
}

impl Pages {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state, listeners: BTreeMap::new() }
    }

    /// Has pages where the plan says, each as soon as its address is free.
    pub(super) async fn follow(&mut self, plan: Plan) {
        let gone: Vec<SocketAddr> =
            self.listeners.keys().copied().filter(|address| !plan.places.contains_key(address)).collect();
        for listener in gone.iter().filter_map(|address| self.listeners.remove(address)) {
            listener.abort();
            // It has given its address back when it has ended; one that was ended says so as an error.
            let _ = listener.await;
        }
        for (address, pages) in &plan.places {
            let Some(first) = pages.first().filter(|_| !self.listeners.contains_key(address)) else { continue };
            let here = Here { state: self.state.clone(), address: *address };
            let listener = tokio::spawn(listen(*address, first.said_by, Arc::new(here)).await);
            self.listeners.insert(*address, listener);
        }
        *self.state.plan.write() = plan;
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.listeners.values().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use dns::corefile::{EmptyEnvironment, parse};

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::of_corefile(&parse("Corefile", text, &EmptyEnvironment).expect("a Corefile"))
    }

    #[test]
    fn each_page_is_where_its_directive_says_and_nowhere_without_it() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(plan(".:53 {\nerrors\n}"), Plan::default());
        let usual = plan(".:53 {\nhealth\nready\nprometheus\n}");
        let found: Vec<_> = usual.places.iter().map(|(address, pages)| (*address, pages[0].path)).collect();
        assert_eq!(
            found,
            [(at("127.0.0.1:9153"), "/metrics"), (at("[::]:8080"), "/health"), (at("[::]:8181"), "/ready")]
        );
        let shared = plan("a {\nhealth :1 {\nlameduck 2s\n}\nready :1\n}\nb {\nhealth :1 {\nlameduck 5s\n}\n}");
        assert!(shared.has(at("[::]:1"), "/health") && shared.has(at("[::]:1"), "/ready"));
        assert!(!shared.has(at("[::]:1"), "/metrics"));
        assert_eq!((shared.places[&at("[::]:1")].len(), shared.lameduck), (2, Duration::from_secs(5)));
    }
}
