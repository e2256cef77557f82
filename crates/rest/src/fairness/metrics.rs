//! Metrics of requests that start, wait and are rejected, by priority level and flow schema, with the names of Kubernetes.

use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::defaults::{COUNT, FLOW_SCHEMAS};

/// Upper bounds of waiting times, in seconds.
const BUCKETS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Labels {
    priority_level: &'static str,
    flow_schema: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RejectedLabels {
    priority_level: &'static str,
    flow_schema: &'static str,
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct WaitLabels {
    priority_level: &'static str,
    flow_schema: &'static str,
    /// Whether the request was executed in the end.
    execute: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LevelLabels {
    priority_level: &'static str,
}

/// The metrics of all schemas.
pub(crate) struct FlowMetrics {
    queued: Family<Labels, Gauge>,
    executing: Family<Labels, Gauge>,
    seats: Family<Labels, Gauge>,
    dispatched: Family<Labels, Counter>,
    rejected: Family<RejectedLabels, Counter>,
    waits: Family<WaitLabels, Histogram>,
    nominal: Family<LevelLabels, Gauge>,
    /// Those of one schema, from its first request on, so that they are looked up once.
    schemas: [OnceLock<SchemaMetrics>; COUNT],
}

/// What every request of a schema changes.
pub(crate) struct SchemaMetrics {
    labels: Labels,
    queued: Gauge<i64, AtomicI64>,
    executing: Gauge<i64, AtomicI64>,
    seats: Gauge<i64, AtomicI64>,
    dispatched: Counter,
    waited: Histogram,
}

impl FlowMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            queued: Family::default(),
            executing: Family::default(),
            seats: Family::default(),
            dispatched: Family::default(),
            rejected: Family::default(),
            waits: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            nominal: Family::default(),
            schemas: [const { OnceLock::new() }; COUNT],
        };
        let name = |name| format!("apiserver_flowcontrol_{name}");
        registry.register(name("current_inqueue_requests"), "Requests that wait in queues", metrics.queued.clone());
        registry.register(name("current_executing_requests"), "Requests being executed", metrics.executing.clone());
        registry.register(name("current_executing_seats"), "Seats that are occupied", metrics.seats.clone());
        registry.register(name("dispatched_requests"), "Requests that were executed", metrics.dispatched.clone());
        registry.register(name("rejected_requests"), "Requests that were rejected", metrics.rejected.clone());
        registry.register(name("request_wait_duration_seconds"), "Time spent in queues", metrics.waits.clone());
        registry.register(name("nominal_limit_seats"), "Seats of a priority level", metrics.nominal.clone());
        metrics
    }

    /// The nominal seats of a level.
    pub(crate) fn set_nominal(&self, priority_level: &'static str, seats: u64) {
        let labels = LevelLabels { priority_level };
        self.nominal.get_or_create(&labels).set(i64::try_from(seats).unwrap_or(i64::MAX));
    }

    /// The metrics of a schema, by its place in the table.
    pub(crate) fn schema(&self, place: usize) -> &SchemaMetrics {
        self.schemas[place].get_or_init(|| {
            let schema = &FLOW_SCHEMAS[place];
            let labels = Labels { priority_level: schema.priority.name(), flow_schema: schema.name };
            SchemaMetrics {
                queued: self.queued.get_or_create(&labels).clone(),
                executing: self.executing.get_or_create(&labels).clone(),
                seats: self.seats.get_or_create(&labels).clone(),
                dispatched: self.dispatched.get_or_create(&labels).clone(),
                waited: self.waits.get_or_create(&labels.wait("true")).clone(),
                labels,
            }
        })
    }

    /// A request that was rejected, after having waited.
    pub(crate) fn rejected(&self, place: usize, reason: &'static str, waited: Duration) {
        let labels = &self.schema(place).labels;
        let Labels { priority_level, flow_schema } = *labels;
        self.rejected.get_or_create(&RejectedLabels { priority_level, flow_schema, reason }).inc();
        self.waits.get_or_create(&labels.wait("false")).observe(waited.as_secs_f64());
    }
}

impl Labels {
    const fn wait(&self, execute: &'static str) -> WaitLabels {
        WaitLabels { priority_level: self.priority_level, flow_schema: self.flow_schema, execute }
    }
}

impl SchemaMetrics {
    /// A request begins (1) or ends (-1) to wait.
    pub(crate) fn queued(&self, change: i64) {
        self.queued.inc_by(change);
    }

    /// A request starts; `waited` is none for one that never waits.
    pub(crate) fn started(&self, seats: u64, waited: Option<Duration>) {
        self.executing.inc();
        self.seats.inc_by(i64::try_from(seats).unwrap_or(i64::MAX));
        self.dispatched.inc();
        if let Some(waited) = waited {
            self.waited.observe(waited.as_secs_f64());
        }
    }

    /// A request has finished.
    pub(crate) fn finished(&self, seats: u64) {
        self.executing.dec();
        self.seats.dec_by(i64::try_from(seats).unwrap_or(i64::MAX));
    }
}
