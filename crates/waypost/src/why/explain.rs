//! `waypost explain svc/NAME`: which endpoints of a Service get traffic on a node, which do not, and why.
//!
//! In: the objects, and the report of the node. Out: its addresses, ports and policies, one line for each endpoint, and a summary.

mod show;

use std::net::IpAddr;

use announce::who::Said;
use api::view::Service;
use diagnose::Finding;
use plan::why::{Explanation, Subject};
use serde_json::Value;

use super::view::{self, View};
use super::world::{self, World};
use super::{Output, pretty};
use crate::commands::announced;
use crate::commands::reach::{self, Api};

/// What is asked.
pub(crate) struct Question<'a> {
    /// The Service, perhaps with its kind in front.
    pub(crate) service: &'a str,
    pub(crate) namespace: &'a str,
    /// As served by this node [default: this machine, or the first node].
    pub(crate) node: Option<&'a str>,
    pub(crate) output: Output,
}

/// The answer.
struct Answer {
    /// The type of the Service, and its policies.
    service: Service,
    explanation: Explanation,
    view: View,
    /// The announcement of each address of its load balancer.
    announced: Vec<(IpAddr, Said)>,
    /// What [`diagnose`] finds for it.
    findings: Vec<Finding>,
    missing: Vec<String>,
}

impl Answer {
    /// The report of the node about the Service.
    fn programmed(&self) -> Option<&Value> {
        let report = self.view.report.as_ref().ok()?;
        report["services"].get(&self.explanation.service)
    }
}

/// Answers.
pub(crate) async fn answer(api: &mut Api, question: &Question<'_>) -> anyhow::Result<()> {
    let found = find(api, question).await?;
    reach::print(&match question.output {
        Output::Text => show::text(&found),
        Output::Json => pretty(&show::json(&found)),
    })
}

async fn find(api: &mut Api, question: &Question<'_>) -> anyhow::Result<Answer> {
    let name = view::service_name(question.service)?;
    let world = World::read(api).await?;
    let service = world.service(question.namespace, name)?.clone();
    let node = view::choose(&world, question.node)?;
    let view = View::of(api, &world, &node, &service.metadata.key()).await;
    let (slices, pods) = (world.slices_of(&service), world.pods_of(&service));
    let explanation = view.planner.why(&Subject { service: &service, slices: &slices, pods: &pods });
    let findings = world.findings(&service);
    let (announced, mut missing) = (announced(api, &service).await, world.missing);
    let announced = announced.unwrap_or_else(|error| {
        missing.push(format!("the announcement of its addresses is not known: {error:#}"));
        Vec::new()
    });
    Ok(Answer { service, explanation, view, announced, findings, missing })
}

/// Who announces the addresses of a load balancer; objects are read anew, since announcers see others of their members.
async fn announced(api: &mut Api, service: &Service) -> anyhow::Result<Vec<(IpAddr, Said)>> {
    let ingress = service.status.load_balancer.ingress.iter();
    let ips: Vec<IpAddr> = ingress.filter_map(|ingress| ingress.ip.parse().ok()).collect();
    if ips.is_empty() || view::kind(service) != "LoadBalancer" {
        return Ok(Vec::new());
    }
    let lists = world::lists(api).await?;
    let known = announced::read(api, lists).await?;
    Ok(ips.into_iter().map(|ip| (ip, known.who(&service.metadata.key(), ip))).collect())
}
