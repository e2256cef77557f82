//! The metrics page of a node: metrics of the agent and of the proxy at one address.

use std::sync::Arc;

use dataplane::health::pages::MetricsPages;
use dataplane::health::{Answer, Answers};

/// Serves the pages of the proxy, with the agent's metrics at `/metrics`.
pub(super) struct NodePages {
    /// The pages of the proxy.
    pub(super) proxy: MetricsPages,
    /// Metrics of the agent.
    pub(super) agent: Arc<agent::metrics::Metrics>,
}

impl Answers for NodePages {
    fn answer(&self, path: &str) -> Answer {
        let (code, headers, body) = self.proxy.answer(path);
        match path {
            // Before those of the proxy, which end with `# EOF`.
            "/metrics" => (code, headers, self.agent.text() + &body),
            _ => (code, headers, body),
        }
    }
}
