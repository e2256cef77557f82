//! `waypost explain svc/NAME`: which endpoints of a Service get traffic on a node, which do not, and why.
//!
//! In: the objects, and the report of the node. Out: its addresses, ports and policies, one line for each endpoint, and a summary.

mod show;

use std::net::IpAddr;

use api::view::Service;
use diagnose::Finding;
use diagnose::layer7::Item;
use plan::why::{Explanation, Subject};
use serde_json::Value;

use super::cluster::{self, ClusterObjects};
use super::node_view::{self, NodeView};
use super::{Output, pretty};
use crate::api_client::ApiClient;
use crate::host::{Announcement, Host};
use crate::layer7::Layer7Objects;
use crate::terminal;

/// The arguments.
pub(crate) struct Question<'a> {
    /// The Service, with or without its kind.
    pub(crate) service: &'a str,
    pub(crate) namespace: &'a str,
    /// As served by this node [default: this machine, or the first node].
    pub(crate) node: Option<&'a str>,
    pub(crate) output: Output,
}

/// The explanation.
struct Answer {
    /// The type of the Service, and its policies.
    service: Service,
    explanation: Explanation,
    view: NodeView,
    /// The announcement of each address of its load balancer.
    announced: Vec<(IpAddr, Announcement)>,
    /// What [`diagnose`] finds for it.
    findings: Vec<Finding>,
    /// Its ports at layer 7.
    layer_7: Vec<Item>,
    missing: Vec<String>,
}

impl Answer {
    /// The report of the node about the Service.
    fn programmed(&self) -> Option<&Value> {
        let report = self.view.report.as_ref().ok()?;
        report["services"].get(&self.explanation.service)
    }
}

/// Prints the explanation.
pub(crate) async fn answer(api: &mut ApiClient, question: &Question<'_>, host: &dyn Host) -> anyhow::Result<()> {
    let found = find(api, question, host).await?;
    terminal::print(&match question.output {
        Output::Text => show::text(&found),
        Output::Json => pretty(&show::json(&found)),
    })
}

async fn find(api: &mut ApiClient, question: &Question<'_>, host: &dyn Host) -> anyhow::Result<Answer> {
    let name = node_view::service_name(question.service)?;
    let cluster = ClusterObjects::read(api).await?;
    let service = cluster.service(question.namespace, name)?.clone();
    let node = node_view::choose(&cluster, question.node)?;
    let view = NodeView::of(api, &cluster, &node, &service.metadata.key()).await;
    let (slices, pods) = (cluster.slices_of(&service), cluster.pods_of(&service));
    let explanation = view.planner.why(&Subject { service: &service, slices: &slices, pods: &pods });
    let findings = cluster.findings(&service);
    let objects = Layer7Objects::read(api).await;
    let layer_7 = objects.layer7(&cluster.snapshot(), false).service_ports(&service.metadata.key());
    let (announced, mut missing) = (announced(api, &service, host).await, cluster.missing);
    let announced = announced.unwrap_or_else(|error| {
        missing.push(format!("the announcement of its addresses is not known: {error:#}"));
        Vec::new()
    });
    let unread = objects.missing.first().map(|why| format!("whether a port is served at layer 7 is not known: {why}"));
    missing.extend(unread);
    Ok(Answer { service, explanation, view, announced, findings, layer_7, missing })
}

/// The announcements of the addresses of a load balancer. Objects are listed again as JSON, since announcers read other fields.
async fn announced(
    api: &mut ApiClient,
    service: &Service,
    host: &dyn Host,
) -> anyhow::Result<Vec<(IpAddr, Announcement)>> {
    let ingress = service.status.load_balancer.ingress.iter();
    let ips: Vec<IpAddr> = ingress.filter_map(|ingress| ingress.ip.parse().ok()).collect();
    if ips.is_empty() || node_view::kind(service) != "LoadBalancer" {
        return Ok(Vec::new());
    }
    let objects = cluster::announced_objects(api).await?;
    let announcements = host.announcements(api, objects).await?;
    Ok(ips.into_iter().map(|ip| (ip, announcements.of(&service.metadata.key(), ip))).collect())
}
