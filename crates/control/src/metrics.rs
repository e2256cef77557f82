//! Metrics of the controllers, with the names of kube-controller-manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Histogram buckets, in seconds.
const BUCKETS: [f64; 11] = [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0];

/// The controller label.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

type Times = Family<Name, Histogram, fn() -> Histogram>;

/// The metrics of the controllers.
pub struct Metrics {
    registry: Registry,
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    waited: Times,
    worked: Times,
    writes: Family<Name, Counter>,
    errors: Family<Name, Counter>,
    leader: Gauge,
}

impl Metrics {
    /// Creates and registers all metrics.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let times = || Times::new_with_constructor(|| Histogram::new(BUCKETS));
        let (depth, adds, retries) = (Family::default(), Family::default(), Family::default());
        let (waited, worked, writes) = (times(), times(), Family::default());
        let (errors, leader) = (Family::default(), Gauge::default());
        let mut registry = Registry::default();
        registry.register("workqueue_depth", "Number of queued keys", Family::clone(&depth));
        registry.register("workqueue_adds", "Number of keys added to the queue", Family::clone(&adds));
        registry.register("workqueue_retries", "Number of retries after a failure", Family::clone(&retries));
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time a key spends in the queue before it is processed",
            waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time from the start of a reconcile to the commit of its writes",
            worked.clone(),
        );
        registry.register("waypost_controller_writes", "Number of objects written", Family::clone(&writes));
        registry.register(
            "waypost_controller_errors",
            "Number of failed writes, without conflicts",
            Family::clone(&errors),
        );
        registry.register(
            "leader_election_master_status",
            "Whether this server is the leader of the controllers",
            leader.clone(),
        );
        Arc::new(Self { registry, depth, adds, retries, waited, worked, writes, errors, leader })
    }

    pub(crate) fn added(&self, name: &'static str) {
        self.adds.get_or_create(&Name { name }).inc();
        self.depth.get_or_create(&Name { name }).inc();
    }

    pub(crate) fn started(&self, name: &'static str, waited: Duration) {
        self.depth.get_or_create(&Name { name }).dec();
        self.waited.get_or_create(&Name { name }).observe(waited.as_secs_f64());
    }

    pub(crate) fn finished(&self, name: &'static str, worked: Duration, writes: usize) {
        self.worked.get_or_create(&Name { name }).observe(worked.as_secs_f64());
        if writes > 0 {
            self.writes.get_or_create(&Name { name }).inc_by(writes as u64);
        }
    }

    pub(crate) fn retried(&self, name: &'static str, is_error: bool) {
        self.retries.get_or_create(&Name { name }).inc();
        if is_error {
            self.errors.get_or_create(&Name { name }).inc();
        }
    }

    pub(crate) fn set_leader(&self, set_leader: bool) {
        self.leader.set(i64::from(set_leader));
        if !set_leader {
            self.depth.clear();
        }
    }

    /// The text exposition format, without `# EOF`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode_registry(&mut out, &self.registry);
        out
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
