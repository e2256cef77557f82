//! Reports of the proxy of a node, served at the agent's port.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::client::{Connection, agent};
use crate::serve::Agent;
use crate::serve::reports::{NoReport, Reports};
use crate::workloads::fake::Fake;

/// Returns its arguments as the report.
struct Parrot;

impl Reports for Parrot {
    fn report(&self, service: Option<String>, is_tried: bool) -> BoxFuture<'_, Result<String, NoReport>> {
        Box::pin(async move { Ok(format!("{{\"service\":{service:?},\"tried\":{is_tried}}}")) })
    }

    fn rules(&self, service: String) -> BoxFuture<'_, Result<String, NoReport>> {
        Box::pin(async move { Err(NoReport(format!("no rules for {service}"))) })
    }
}

async fn ask(agent: &Arc<Agent>, path: &str) -> (u16, String, String) {
    let mut connection = Connection::new(agent);
    let (code, head) = connection.ask(&format!("GET {path}"), &[("Connection", "close")]).await;
    (code, head, connection.rest().await)
}

#[tokio::test]
async fn reports_and_refusals_are_passed_on() {
    let agent = Arc::new(Agent::new(Arc::new(Fake::default())).with_reports(Arc::new(Parrot)));
    let (code, head, body) = ask(&agent, "/waypost/report?service=default%2Fweb").await;
    assert_eq!((code, body.as_str()), (200, "{\"service\":Some(\"default/web\"),\"tried\":false}"));
    assert!(head.contains("content-type: application/json"), "{head}");
    let (_, _, body) = ask(&agent, "/waypost/report?service=default%2Fweb&try=true").await;
    assert!(body.ends_with("\"tried\":true}"), "{body}");
    let (code, head, body) = ask(&agent, "/waypost/rules?service=default/web").await;
    assert_eq!((code, body.as_str()), (503, "no rules for default/web\n"));
    assert!(head.contains("content-type: text/plain"), "{head}");
}

#[tokio::test]
async fn a_node_without_a_proxy_returns_an_error() {
    let (agent, _) = agent();
    let (code, _, body) = ask(&agent, "/waypost/report").await;
    assert_eq!(code, 503);
    assert!(body.contains("no proxy"), "{body}");
}
