//! What the proxy counts, under the names that kube-proxy's dashboards know.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use plan::Update;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Policy {
    traffic_policy: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Code {
    code: u16,
}

/// The figures of a proxy.
pub struct Metrics {
    registry: Registry,
    started: Timestamp,
    all: Histogram,
    full: Histogram,
    partial: Histogram,
    last: Seconds,
    queued: Seconds,
    latency: Histogram,
    services: Counter,
    endpoints: Counter,
    services_pending: Gauge,
    endpoints_pending: Gauge,
    untidy: Counter,
    failures: Counter,
    healed: Counter,
    changes: Counter,
    no_local: Family<Policy, Gauge>,
    flows: Histogram,
    flows_deleted: Counter,
    healthz: Family<Code, Counter>,
    livez: Family<Code, Counter>,
    beside: Beside,
}

/// What others of this machine count, if they have said so.
#[derive(Clone, Debug, Default)]
struct Beside(Arc<OnceLock<Box<dyn Collector>>>);

impl Collector for Beside {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.get().map_or(Ok(()), |others| others.encode(encoder))
    }
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::beside(|_| {})
    }

    /// The same, with the metrics of other components in the same registry.
    #[must_use]
    pub fn beside(others: impl FnOnce(&mut Registry)) -> Arc<Self> {
        let times = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let mut registry = Registry::with_prefix("kubeproxy");
        let metrics = Self {
            started: Timestamp::now(),
            all: times(),
            full: times(),
            partial: times(),
            last: Seconds::default(),
            queued: Seconds::default(),
            latency: Histogram::new(latency_buckets()),
            services: Counter::default(),
            endpoints: Counter::default(),
            services_pending: Gauge::default(),
            endpoints_pending: Gauge::default(),
            untidy: Counter::default(),
            failures: Counter::default(),
            healed: Counter::default(),
            changes: Counter::default(),
            no_local: Family::default(),
            flows: times(),
            flows_deleted: Counter::default(),
            healthz: Family::default(),
            livez: Family::default(),
            beside: Beside::default(),
            registry: Registry::default(),
        };
        let sync = "Time to write the rules";
        registry.register("sync_proxy_rules_duration_seconds", sync, metrics.all.clone());
        registry.register(
            "sync_full_proxy_rules_duration_seconds",
            "The same, when all were read",
            metrics.full.clone(),
        );
        registry.register("sync_partial_proxy_rules_duration_seconds", "The same, of changes", metrics.partial.clone());
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "When rules were last right",
            metrics.last.clone(),
        );
        let queued = "When a change last came";
        registry.register("sync_proxy_rules_last_queued_timestamp_seconds", queued, metrics.queued.clone());
        let latency = "From a change of a Pod to its rules";
        registry.register("network_programming_duration_seconds", latency, metrics.latency.clone());
        registry.register("sync_proxy_rules_service_changes", "Changes of Services", metrics.services.clone());
        registry.register("sync_proxy_rules_endpoint_changes", "Changes of endpoints", metrics.endpoints.clone());
        let waiting = "Changes of Services that wait to be written";
        registry.register("sync_proxy_rules_service_changes_pending", waiting, metrics.services_pending.clone());
        let waiting = "Changes of endpoints that wait to be written";
        registry.register("sync_proxy_rules_endpoint_changes_pending", waiting, metrics.endpoints_pending.clone());
        let untidy = "Times something that is used no more could not be deleted";
        registry.register("sync_proxy_rules_nftables_cleanup_failures", untidy, metrics.untidy.clone());
        let failures = "Times the rules could not be written";
        registry.register("sync_proxy_rules_nftables_sync_failures", failures, metrics.failures.clone());
        let no_local = "Service ports whose traffic must stay here, and nobody is here";
        registry.register("sync_proxy_rules_no_local_endpoints_total", no_local, metrics.no_local.clone());
        registry.register(
            "conntrack_reconciler_sync_duration_seconds",
            "Time to look at UDP flows",
            metrics.flows.clone(),
        );
        let deleted = "Stale UDP flows that were removed";
        registry.register("conntrack_reconciler_deleted_entries", deleted, metrics.flows_deleted.clone());
        registry.register("proxy_healthz", "Answers of /healthz", metrics.healthz.clone());
        registry.register("proxy_livez", "Answers of /livez", metrics.livez.clone());
        registry.register("waypost_healed", "Times somebody else changed our rules", metrics.healed.clone());
        registry.register("waypost_changes", "Changes written to the kernel", metrics.changes.clone());
        others(&mut registry);
        registry.register_collector(Box::new(metrics.beside.clone()));
        Arc::new(Self { registry, ..metrics })
    }

    pub(crate) fn seen(&self, update: &Update) {
        self.queued.set(now());
        match update {
            Update::Service(_) | Update::ServiceGone(_) => {
                self.services.inc();
                self.services_pending.inc();
            }
            Update::Slice(_) | Update::SliceGone(_) => {
                self.endpoints.inc();
                self.endpoints_pending.inc();
            }
            _ => {}
        }
    }

    /// The changes that these times tell of are in the kernel now. Times before our start say nothing about us.
    pub(crate) fn programmed(&self, triggers: &[Timestamp]) {
        let now = Timestamp::now();
        for trigger in triggers.iter().filter(|trigger| **trigger > self.started) {
            self.latency.observe(now.duration_since(*trigger).as_secs_f64().max(0.0));
        }
    }

    pub(crate) fn synced(&self, took: Duration, is_full: bool, changes: usize) {
        self.all.observe(took.as_secs_f64());
        let which = if is_full { &self.full } else { &self.partial };
        which.observe(took.as_secs_f64());
        self.last.set(now());
        self.services_pending.set(0);
        self.endpoints_pending.set(0);
        self.changes.inc_by(changes as u64);
    }

    /// How many ports lack endpoints here, for traffic from inside and from outside.
    pub(crate) fn lacking(&self, (internal, external): (usize, usize)) {
        for (policy, count) in [("internal", internal), ("external", external)] {
            let gauge = self.no_local.get_or_create(&Policy { traffic_policy: policy });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// What could not be tidied up since the last time.
    pub(crate) fn untidy(&self, times: usize) {
        self.untidy.inc_by(times as u64);
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }

    pub(crate) fn healed(&self) {
        self.healed.inc();
    }

    pub(crate) fn flows(&self, took: Duration, removed: usize) {
        self.flows.observe(took.as_secs_f64());
        self.flows_deleted.inc_by(removed as u64);
    }

    pub(crate) fn asked(&self, path: &str, code: u16) {
        let family = if path == "/livez" { &self.livez } else { &self.healthz };
        family.get_or_create(&Code { code }).inc();
    }

    /// Shows what another part of this machine counts, too; one can be.
    pub fn show_beside(&self, others: impl Collector) {
        let _ = self.beside.0.set(Box::new(others));
    }

    /// Everything, as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

fn now() -> f64 {
    Timestamp::now().duration_since(Timestamp::UNIX_EPOCH).as_secs_f64()
}

/// Quarters of a second, seconds, then longer and longer.
fn latency_buckets() -> impl Iterator<Item = f64> {
    let steps = |from: u32, to: u32, by: usize| (from..to).step_by(by).map(f64::from);
    [0.005, 0.01, 0.05, 0.25, 0.5]
        .into_iter()
        .chain(steps(1, 60, 1))
        .chain(steps(60, 120, 5))
        .chain(steps(120, 301, 30))
}
