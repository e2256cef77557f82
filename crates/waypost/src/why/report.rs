//! What nodes say of their proxies, asked through the API; see [`dataplane::report`] for who says it.
//!
//! In: the name of a node. Out: its report, or in one sentence why there is none.

use futures_util::future::join_all;
use serde_json::Value;

use crate::commands::reach::Api;

/// A report, or why there is none.
pub(super) type Told = Result<Value, String>;

/// A Service that cannot be, for those who want to know of none.
pub(super) const NO_SERVICE: &str = "-/-";

/// Asks a node: for one Service, or all.
pub(super) async fn ask(api: &mut Api, node: &str, service: Option<&str>) -> Told {
    let query = service.map(|service| format!("?service={}", service.replace('/', "%2F"))).unwrap_or_default();
    let path = format!("/api/v1/nodes/{node}/proxy/waypost/report{query}");
    let (code, text) = api.text(&path).await.map_err(|error| format!("{error:#}"))?;
    let document: Result<Value, _> = serde_json::from_str(&text);
    match (code, document) {
        (200, Ok(report)) => Ok(report),
        (_, Ok(status)) => {
            Err(status["message"].as_str().unwrap_or("it answers something else than a report").to_owned())
        }
        (_, Err(_)) => Err(text.lines().next().unwrap_or("it answers nothing").to_owned()),
    }
}

/// Asks many nodes at once.
pub(super) async fn ask_all(api: &Api, nodes: &[String], service: Option<&str>) -> Vec<(String, Told)> {
    let asked = nodes.iter().map(|node| {
        let mut api = api.another();
        async move { (node.clone(), ask(&mut api, node, service).await) }
    });
    join_all(asked).await
}
