//! HTTP handlers of the proxy: `/healthz`, `/livez`, `/metrics` and `/proxyMode`.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Health;
use super::serve::{Handler, Reply};
use crate::metrics::Metrics;

/// Serves `/healthz` and `/livez`.
#[derive(Debug)]
pub struct HealthHandler {
    /// Health state.
    pub health: Arc<Health>,
    /// Counts responses.
    pub metrics: Arc<Metrics>,
}

impl Handler for HealthHandler {
    fn handle(&self, path: &str) -> Reply {
        if !matches!(path, "/healthz" | "/livez") {
            return missing();
        }
        let (healthy, document) = self.health.document(path == "/healthz");
        let code = if healthy { 200 } else { 503 };
        self.metrics.health_request(path, code);
        let headers =
            vec![("content-type", "application/json".to_owned()), ("x-content-type-options", "nosniff".to_owned())];
        (code, headers, document.to_string())
    }
}

/// Serves `/metrics` and `/proxyMode`.
#[derive(Debug)]
pub struct MetricsHandler {
    /// Metrics to serve.
    pub metrics: Arc<Metrics>,
    /// Active proxy mode.
    pub mode: Arc<Mutex<&'static str>>,
}

impl Handler for MetricsHandler {
    fn handle(&self, path: &str) -> Reply {
        let text = |body: String| (200, vec![("content-type", "text/plain; charset=utf-8".to_owned())], body);
        match path {
            "/metrics" => text(self.metrics.text()),
            "/proxyMode" => text((*self.mode.lock()).to_owned()),
            "/healthz" => text("ok".to_owned()),
            _ => missing(),
        }
    }
}

fn missing() -> Reply {
    (404, Vec::new(), "404 page not found\n".to_owned())
}
