//! Reports of the node's proxy, served by the agent's endpoint. The binary provides the implementation.
//!
//! In: a request of the API server. Out: JSON or text, or an error.

use futures_util::future::BoxFuture;

/// Why there is no report.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoReport(pub String);

/// Provides reports of the node's proxy.
pub trait Reports: Send + Sync {
    /// The report as JSON: for all Services, or for one (`namespace/name`), which is connected to like a client would if `is_tried`.
    fn report(&self, service: Option<String>, is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>>;

    /// The rules of a Service, as text.
    fn rules(&self, service: String) -> BoxFuture<'_, Result<String, NoReport>>;
}

/// A node without a proxy of Waypost.
pub struct NoReports;

impl Reports for NoReports {
    fn report(&self, _service: Option<String>, _is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>> {
        Box::pin(async { Err(no_proxy()) })
    }

    fn rules(&self, _service: String) -> BoxFuture<'_, Result<String, NoReport>> {
        Box::pin(async { Err(no_proxy()) })
    }
}

fn no_proxy() -> NoReport {
    NoReport("this node runs no proxy of Waypost, so there is no report".to_owned())
}
