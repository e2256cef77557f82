//! What else a node can tell: how its proxy stands. Whoever puts the program together knows; the agent only carries it.
//!
//! In: a question of the API. Out: a document or text, or why there is none.

use futures_util::future::BoxFuture;

/// Why there is nothing to tell.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoReport(pub String);

/// Somebody who knows how the proxy of this node stands.
pub trait Reports: Send + Sync {
    /// The report, as JSON: of all Services, or of one (`namespace/name`), which is tried as a client would if that is wished.
    fn report(&self, service: Option<String>, is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>>;

    /// The rules that concern a Service, as text.
    fn rules(&self, service: String) -> BoxFuture<'_, Result<String, NoReport>>;
}

/// A node without a proxy of ours.
pub struct Silent;

impl Reports for Silent {
    fn report(&self, _service: Option<String>, _is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>> {
        Box::pin(async { Err(nobody()) })
    }

    fn rules(&self, _service: String) -> BoxFuture<'_, Result<String, NoReport>> {
        Box::pin(async { Err(nobody()) })
    }
}

fn nobody() -> NoReport {
    NoReport("this node has no proxy of Waypost: it cannot tell how Services are served".to_owned())
}
