//! The reports of nodes about their proxies, read through the API; `dataplane::report` writes them.
//!
//! In: the name of a node. Out: its report, or the reason why there is none.

use futures_util::future::join_all;
use serde_json::Value;

use crate::api_client::ApiClient;

/// A report, or why there is none.
pub(super) type ReportResult = Result<Value, NoReport>;

/// Why there is no report: the message of the API or of the node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoReport(pub(super) String);

/// A Service that cannot exist, for a report without Services.
pub(super) const NO_SERVICE: &str = "-/-";

/// Reads the report of a node about one Service, or all.
pub(super) async fn fetch(api: &mut ApiClient, node: &str, service: Option<&str>) -> ReportResult {
    let query = service.map(|service| format!("?service={}", service.replace('/', "%2F"))).unwrap_or_default();
    let path = format!("/api/v1/nodes/{node}/proxy/waypost/report{query}");
    let (code, text) = api.text(&path).await.map_err(|error| NoReport(format!("{error:#}")))?;
    let document: Result<Value, _> = serde_json::from_str(&text);
    match (code, document) {
        (200, Ok(report)) => Ok(report),
        (_, Ok(status)) => {
            Err(NoReport(status["message"].as_str().unwrap_or("the node returned no report").to_owned()))
        }
        (_, Err(_)) => Err(NoReport(text.lines().next().unwrap_or("the node returned an empty response").to_owned())),
    }
}

/// Reads the reports of many nodes concurrently.
pub(super) async fn fetch_all(api: &ApiClient, nodes: &[String], service: Option<&str>) -> Vec<(String, ReportResult)> {
    let asked = nodes.iter().map(|node| {
        let mut api = api.another();
        async move { (node.clone(), fetch(&mut api, node, service).await) }
    });
    join_all(asked).await
}
