//! The pages of a proxy: `/healthz` and `/livez` for supervisors, `/metrics` and `/proxyMode` for people and dashboards.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Health;
use super::serve::{Answer, Answers};
use crate::metrics::Metrics;

/// Answers supervisors.
#[derive(Debug)]
pub struct HealthPages {
    /// What is asked about.
    pub health: Arc<Health>,
    /// Where answers are counted.
    pub metrics: Arc<Metrics>,
}

impl Answers for HealthPages {
    fn answer(&self, path: &str) -> Answer {
        if !matches!(path, "/healthz" | "/livez") {
            return missing();
        }
        let (well, document) = self.health.document(path == "/healthz");
        let code = if well { 200 } else { 503 };
        self.metrics.asked(path, code);
        let headers =
            vec![("content-type", "application/json".to_owned()), ("x-content-type-options", "nosniff".to_owned())];
        (code, headers, document.to_string())
    }
}

/// Answers dashboards.
#[derive(Debug)]
pub struct MetricsPages {
    /// The figures.
    pub metrics: Arc<Metrics>,
    /// How Services are served now.
    pub mode: Arc<Mutex<&'static str>>,
}

impl Answers for MetricsPages {
    fn answer(&self, path: &str) -> Answer {
        let text = |body: String| (200, vec![("content-type", "text/plain; charset=utf-8".to_owned())], body);
        match path {
            "/metrics" => text(self.metrics.text()),
            "/proxyMode" => text((*self.mode.lock()).to_owned()),
            "/healthz" => text("ok".to_owned()),
            _ => missing(),
        }
    }
}

fn missing() -> Answer {
    (404, Vec::new(), "there is no such page here\n".to_owned())
}
