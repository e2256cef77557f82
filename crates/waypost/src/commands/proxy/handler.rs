//! The metrics endpoint of a node: metrics of the agent and of the proxy at one address.

use std::sync::Arc;

use dataplane::health::handlers::MetricsHandler;
use dataplane::health::{Handler, Reply};

/// Serves the endpoints of the proxy, with the agent's metrics at `/metrics`.
pub(super) struct NodeHandler {
    /// The endpoints of the proxy.
    pub(super) proxy: MetricsHandler,
    /// Metrics of the agent.
    pub(super) agent: Arc<agent::metrics::Metrics>,
}

impl Handler for NodeHandler {
    fn handle(&self, path: &str) -> Reply {
        let (code, headers, body) = self.proxy.handle(path);
        match path {
            // Before those of the proxy, which end with `# EOF`.
            "/metrics" => (code, headers, self.agent.text() + &body),
            _ => (code, headers, body),
        }
    }
}
