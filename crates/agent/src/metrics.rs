//! Prometheus metrics of the agent: Pods by phase, container starts, sync latency and failed operations.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The prefix of all names.
const PREFIX: &str = "waypost_agent";

/// An operation whose failures are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Creating the sandbox of a Pod, volumes included.
    CreateSandbox,
    /// Removing the sandbox of a Pod.
    RemoveSandbox,
    /// Pulling or finding the image of a container.
    PullImage,
    /// Starting a container.
    StartContainer,
}

impl Operation {
    const fn label(self) -> &'static str {
        match self {
            Self::CreateSandbox => "create_sandbox",
            Self::RemoveSandbox => "remove_sandbox",
            Self::PullImage => "pull_image",
            Self::StartContainer => "start_container",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: String,
}

/// The metrics of an agent. Adopted Pods are not counted.
pub struct Metrics {
    registry: Registry,
    /// The phase of each Pod, by UID.
    phases: Mutex<HashMap<String, String>>,
    pods: Family<PhaseLabel, Gauge>,
    starts: Counter,
    restarts: Counter,
    syncs: Histogram,
    errors: Family<OperationLabel, Counter>,
}

impl Metrics {
    /// Creates and registers all metrics.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix(PREFIX);
        // 1 ms to 16 s.
        let syncs = Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let (pods, errors) = (Family::default(), Family::default());
        let (starts, restarts) = (Counter::default(), Counter::default());
        registry.register("pods", "Number of Pods that the agent runs, by phase", Family::clone(&pods));
        registry.register("container_starts", "Number of started containers, restarts included", starts.clone());
        registry.register("container_restarts", "Number of restarted containers", restarts.clone());
        let sync = "Time of one reconcile of a Pod, the status update included";
        registry.register("pod_sync_duration_seconds", sync, syncs.clone());
        registry.register("operation_errors", "Number of failed operations", Family::clone(&errors));
        Arc::new(Self { registry, phases: Mutex::default(), pods, starts, restarts, syncs, errors })
    }

    /// Sets the phase of a Pod.
    pub(crate) fn set_phase(&self, uid: &str, phase: &str) {
        let mut phases = self.phases.lock();
        let before = phases.insert(uid.to_owned(), phase.to_owned());
        if before.as_deref() != Some(phase) {
            self.count(before.as_deref(), -1);
            self.count(Some(phase), 1);
        }
    }

    /// Forgets a Pod whose resources are released.
    pub(crate) fn remove_pod(&self, uid: &str) {
        let before = self.phases.lock().remove(uid);
        self.count(before.as_deref(), -1);
    }

    fn count(&self, phase: Option<&str>, change: i64) {
        if let Some(phase) = phase {
            self.pods.get_or_create(&PhaseLabel { phase: phase.to_owned() }).inc_by(change);
        }
    }

    /// Counts a started container.
    pub(crate) fn started(&self, is_restart: bool) {
        self.starts.inc();
        if is_restart {
            self.restarts.inc();
        }
    }

    /// Records the duration of a reconcile.
    pub(crate) fn synced(&self, duration: Duration) {
        self.syncs.observe(duration.as_secs_f64());
    }

    /// Counts a failed operation.
    pub(crate) fn failed(&self, operation: Operation) {
        self.errors.get_or_create(&OperationLabel { operation: operation.label() }).inc();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_by_their_current_phase() {
        let metrics = Metrics::new();
        for (uid, phase) in [("a", "Pending"), ("b", "Pending"), ("a", "Running"), ("a", "Running")] {
            metrics.set_phase(uid, phase);
        }
        let text = metrics.text();
        assert!(text.contains("waypost_agent_pods{phase=\"Pending\"} 1\n"), "{text}");
        assert!(text.contains("waypost_agent_pods{phase=\"Running\"} 1\n"), "{text}");
        metrics.remove_pod("b");
        assert!(metrics.text().contains("waypost_agent_pods{phase=\"Pending\"} 0\n"));
    }

    #[test]
    fn starts_errors_and_latencies_have_the_names_that_the_documentation_lists() {
        let metrics = Metrics::new();
        metrics.started(false);
        metrics.started(true);
        metrics.failed(Operation::PullImage);
        metrics.synced(Duration::from_millis(3));
        let text = metrics.text();
        for line in [
            "waypost_agent_container_starts_total 2",
            "waypost_agent_container_restarts_total 1",
            "waypost_agent_operation_errors_total{operation=\"pull_image\"} 1",
            "waypost_agent_pod_sync_duration_seconds_count 1",
            "waypost_agent_pod_sync_duration_seconds_bucket{le=\"0.004\"} 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing: {text}");
        }
    }
}
