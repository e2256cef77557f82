//! Metrics of the proxy, under the names that kube-proxy uses.

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

/// Metrics of a proxy.
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
    cleanup_failures: Counter,
    failures: Counter,
    tampering: Counter,
    changes: Counter,
    no_local: Family<Policy, Gauge>,
    flows: Histogram,
    flows_deleted: Counter,
    healthz: Family<Code, Counter>,
    livez: Family<Code, Counter>,
    extra: ExtraCollector,
}

/// Metrics of another component, if one was set.
#[derive(Clone, Debug, Default)]
struct ExtraCollector(Arc<OnceLock<Box<dyn Collector>>>);

impl Collector for ExtraCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.get().map_or(Ok(()), |others| others.encode(encoder))
    }
}

impl Metrics {
    /// All metrics at zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_components(|_| {})
    }

    /// All metrics at zero, with those of other components. Metrics that kube-proxy does not have are exported under two names: with the
    /// prefix `waypost_`, and with the deprecated prefix `kubeproxy_waypost_`.
    #[must_use]
    pub fn with_components(others: impl Fn(&mut Registry)) -> Arc<Self> {
        let times = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
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
            cleanup_failures: Counter::default(),
            failures: Counter::default(),
            tampering: Counter::default(),
            changes: Counter::default(),
            no_local: Family::default(),
            flows: times(),
            flows_deleted: Counter::default(),
            healthz: Family::default(),
            livez: Family::default(),
            extra: ExtraCollector::default(),
            registry: Registry::default(),
        };
        let tampering = "Changes of the proxy's rules by other programs";
        let changes = "Changes written to the kernel";
        let mut root = Registry::default();
        root.register("waypost_proxy_tampering", tampering, metrics.tampering.clone());
        root.register("waypost_proxy_changes", changes, metrics.changes.clone());
        others(&mut root);
        root.register_collector(Box::new(metrics.extra.clone()));
        let registry = root.sub_registry_with_prefix("kubeproxy");
        let sync = "Duration of a sync";
        registry.register("sync_proxy_rules_duration_seconds", sync, metrics.all.clone());
        registry.register("sync_full_proxy_rules_duration_seconds", "Duration of a full resync", metrics.full.clone());
        registry.register(
            "sync_partial_proxy_rules_duration_seconds",
            "Duration of an incremental sync",
            metrics.partial.clone(),
        );
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "Time of the last successful sync",
            metrics.last.clone(),
        );
        let queued = "Time of the last change received";
        registry.register("sync_proxy_rules_last_queued_timestamp_seconds", queued, metrics.queued.clone());
        let latency = "Time from a change of an endpoint to its rules in the kernel";
        registry.register("network_programming_duration_seconds", latency, metrics.latency.clone());
        registry.register("sync_proxy_rules_service_changes", "Changes of Services", metrics.services.clone());
        registry.register("sync_proxy_rules_endpoint_changes", "Changes of endpoints", metrics.endpoints.clone());
        let waiting = "Pending changes of Services";
        registry.register("sync_proxy_rules_service_changes_pending", waiting, metrics.services_pending.clone());
        let waiting = "Pending changes of endpoints";
        registry.register("sync_proxy_rules_endpoint_changes_pending", waiting, metrics.endpoints_pending.clone());
        let cleanup_failures = "Failed deletions of unused objects";
        registry.register(
            "sync_proxy_rules_nftables_cleanup_failures",
            cleanup_failures,
            metrics.cleanup_failures.clone(),
        );
        let failures = "Failed syncs";
        registry.register("sync_proxy_rules_nftables_sync_failures", failures, metrics.failures.clone());
        let no_local = "Service ports with a Local traffic policy and no local endpoint";
        registry.register("sync_proxy_rules_no_local_endpoints_total", no_local, metrics.no_local.clone());
        registry.register(
            "conntrack_reconciler_sync_duration_seconds",
            "Duration of UDP conntrack reconciliation",
            metrics.flows.clone(),
        );
        let deleted = "Stale UDP flows deleted";
        registry.register("conntrack_reconciler_deleted_entries", deleted, metrics.flows_deleted.clone());
        registry.register("proxy_healthz", "Responses of /healthz", metrics.healthz.clone());
        registry.register("proxy_livez", "Responses of /livez", metrics.livez.clone());
        registry.register("waypost_healed", tampering, metrics.tampering.clone());
        registry.register("waypost_changes", changes, metrics.changes.clone());
        others(registry);
        registry.register_collector(Box::new(metrics.extra.clone()));
        Arc::new(Self { registry: root, ..metrics })
    }

    pub(crate) fn update_received(&self, update: &Update) {
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

    /// Observes the latency from trigger to kernel. Triggers before our start are ignored.
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

    /// Sets the number of ports without local endpoints, by traffic policy.
    pub(crate) fn no_local_endpoints(&self, (internal, external): (usize, usize)) {
        for (policy, count) in [("internal", internal), ("external", external)] {
            let gauge = self.no_local.get_or_create(&Policy { traffic_policy: policy });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts objects that could not be deleted.
    pub(crate) fn cleanup_failed(&self, times: usize) {
        self.cleanup_failures.inc_by(times as u64);
    }

    pub(crate) fn sync_failed(&self) {
        self.failures.inc();
    }

    pub(crate) fn tampering_detected(&self) {
        self.tampering.inc();
    }

    pub(crate) fn conntrack_synced(&self, took: Duration, removed: usize) {
        self.flows.observe(took.as_secs_f64());
        self.flows_deleted.inc_by(removed as u64);
    }

    pub(crate) fn health_request(&self, path: &str, code: u16) {
        let family = if path == "/livez" { &self.livez } else { &self.healthz };
        family.get_or_create(&Code { code }).inc();
    }

    /// Adds the metrics of another component; only the first call has an effect.
    pub fn set_extra_collector(&self, others: impl Collector) {
        let _ = self.extra.0.set(Box::new(others));
    }

    /// All metrics in the Prometheus text format.
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

/// Buckets of a quarter of a second, then of a second, then growing.
fn latency_buckets() -> impl Iterator<Item = f64> {
    let steps = |from: u32, to: u32, by: usize| (from..to).step_by(by).map(f64::from);
    [0.005, 0.01, 0.05, 0.25, 0.5]
        .into_iter()
        .chain(steps(1, 60, 1))
        .chain(steps(60, 120, 5))
        .chain(steps(120, 301, 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_metrics_have_the_prefix_of_their_component_and_the_deprecated_one() {
        let other = Counter::<u64>::default();
        let metrics = Metrics::with_components(|registry| registry.register("waypost_other", "Other", other.clone()));
        metrics.tampering_detected();
        other.inc();
        let text = metrics.text();
        for line in [
            "waypost_proxy_tampering_total 1",
            "kubeproxy_waypost_healed_total 1",
            "waypost_other_total 1",
            "kubeproxy_waypost_other_total 1",
            "kubeproxy_sync_proxy_rules_duration_seconds_count 0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
    }
}
