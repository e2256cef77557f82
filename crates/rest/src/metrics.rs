//! Metrics of the server, under the names of kube-apiserver.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use api::kind::Kind;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::audit;
use crate::fairness::metrics::FlowMetrics;

/// Histogram buckets of request durations, in seconds.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The labels of a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

/// The labels of a request, with its status code.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct CodeLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    code: u16,
}

/// The labels of a refused connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Renders the metrics of other components, as lines of text without an end marker.
pub type ExtraMetrics = dyn Fn() -> String + Send + Sync;

/// The metrics of a server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<CodeLabels, Counter>,
    durations: Family<Labels, Histogram>,
    watches: Family<Labels, Gauge>,
    in_flight: Gauge<i64, AtomicI64>,
    refused: Counter,
    connections: Gauge<i64, AtomicI64>,
    connections_refused: Family<ReasonLabels, Counter>,
    /// Queued requests, by priority level.
    pub(crate) flow: FlowMetrics,
    others: Box<ExtraMetrics>,
}

impl Metrics {
    pub(crate) fn new(others: Box<ExtraMetrics>, audit: Option<&audit::Metrics>) -> Arc<Self> {
        let mut registry = Registry::default();
        if let Some(audit) = audit {
            audit.register(&mut registry);
        }
        let requests = Family::default();
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let (watches, in_flight, refused) = (Family::default(), Gauge::default(), Counter::default());
        registry.register("apiserver_request", "Requests answered", requests.clone());
        registry.register("apiserver_request_duration_seconds", "Time to answer, without watches", durations.clone());
        registry.register("apiserver_longrunning_requests", "Watches that are open", watches.clone());
        registry.register("apiserver_current_inflight_requests", "Requests being answered", in_flight.clone());
        registry.register("apiserver_rejected_requests", "Requests refused with 429", refused.clone());
        let (connections, connections_refused) = (Gauge::default(), Family::default());
        registry.register("waypost_apiserver_connections", "Connections that are open", connections.clone());
        registry.register(
            "waypost_apiserver_connections_refused",
            "Connections closed at once because of a limit",
            connections_refused.clone(),
        );
        let flow = FlowMetrics::new(&mut registry);
        Arc::new(Self {
            registry,
            requests,
            durations,
            watches,
            in_flight,
            refused,
            connections,
            connections_refused,
            flow,
            others,
        })
    }

    /// Counts a completed request.
    pub(crate) fn answered(
        &self,
        verb: &'static str,
        kind: Option<&Kind>,
        part: &'static str,
        code: u16,
        took: Duration,
    ) {
        let labels = labels(verb, kind, part);
        if verb != "WATCH" {
            self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
        let Labels { verb, group, version, resource, subresource } = labels;
        let labels = CodeLabels { verb, group, version, resource, subresource, code };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that was refused because of the concurrency limit.
    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    /// Counts a connection that was opened (1) or closed (-1).
    pub(crate) fn connections(&self, change: i64) {
        self.connections.inc_by(change);
    }

    /// Counts a connection that was closed at once because of a limit.
    pub(crate) fn connection_refused(&self, reason: &'static str) {
        self.connections_refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request until the value is dropped.
    pub(crate) fn in_flight(self: &Arc<Self>) -> Counted {
        Counted::new(self.in_flight.clone())
    }

    /// Counts a watch until the value is dropped.
    pub(crate) fn watching(&self, kind: &Kind) -> Counted {
        Counted::new(self.watches.get_or_create(&labels("WATCH", Some(kind), "")).clone())
    }

    /// All metrics, as text.
    pub(crate) fn text(&self) -> String {
        let mut out = (self.others)();
        // Writing to a string cannot fail. This also writes the end marker, so it comes last.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

fn labels(verb: &'static str, kind: Option<&Kind>, subresource: &'static str) -> Labels {
    let (group, version, resource) = kind.map_or(("", "", ""), |kind| (kind.group, kind.version, kind.plural));
    Labels { verb, group, version, resource, subresource }
}

/// Increments a gauge until it is dropped.
pub(crate) struct Counted(Gauge<i64, AtomicI64>);

impl Counted {
    fn new(gauge: Gauge<i64, AtomicI64>) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
