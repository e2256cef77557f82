//! Metrics of the audit log, with the names of kube-apiserver.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::level::Level;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct LevelLabels {
    level: &'static str,
}

/// The counters; clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    events: Counter,
    errors: Family<PluginLabels, Counter>,
    /// Attempts to write that failed.
    write_errors: Counter,
    /// Events that were dropped because the queue was full.
    dropped: Counter,
    levels: Family<LevelLabels, Counter>,
    /// By the order of [`Level::ALL`].
    by_level: [Counter; 4],
    rejected: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let errors = Family::<PluginLabels, Counter>::default();
        let levels = Family::<LevelLabels, Counter>::default();
        let error = |plugin| errors.get_or_create(&PluginLabels { plugin }).clone();
        let level = |level: Level| levels.get_or_create(&LevelLabels { level: level.name() }).clone();
        Self {
            events: Counter::default(),
            write_errors: error("log"),
            dropped: error("buffered"),
            by_level: Level::ALL.map(level),
            rejected: Counter::default(),
            errors,
            levels,
        }
    }
}

impl Metrics {
    /// Adds the counters to what the server exposes.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_audit_event",
            "Audit events generated and sent to the audit backend",
            self.events.clone(),
        );
        let help =
            "Audit events that were dropped because the queue was full (buffered), failed attempts to write (log)";
        registry.register("apiserver_audit_error", help, self.errors.clone());
        registry.register("apiserver_audit_level", "Policy levels of requests", self.levels.clone());
        registry.register(
            "apiserver_audit_requests_rejected",
            "Requests rejected because their audit event could not be stored",
            self.rejected.clone(),
        );
    }

    pub(super) fn evaluated(&self, level: Level) {
        self.by_level[level as usize].inc();
    }

    pub(super) fn event(&self) {
        self.events.inc();
    }

    pub(super) fn dropped(&self) {
        self.dropped.inc();
    }

    pub(super) fn write_failed(&self) {
        self.write_errors.inc();
    }

    pub(super) fn rejected(&self) {
        self.rejected.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_names_of_kube_apiserver() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        metrics.evaluated(Level::Metadata);
        metrics.event();
        metrics.event();
        metrics.dropped();
        metrics.write_failed();
        metrics.rejected();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "apiserver_audit_event_total 2",
            "apiserver_audit_error_total{plugin=\"log\"} 1",
            "apiserver_audit_error_total{plugin=\"buffered\"} 1",
            "apiserver_audit_level_total{level=\"Metadata\"} 1",
            "apiserver_audit_level_total{level=\"None\"} 0",
            "apiserver_audit_requests_rejected_total 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in:\n{text}");
        }
    }
}
