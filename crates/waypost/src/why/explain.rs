//! `waypost explain svc/NAME`: who behind a Service gets traffic on a node, who does not, and why.
//!
//! In: the objects, and the report of the node. Out: its addresses, ports and policies, one line for each endpoint, and one
//! sentence that sums it up.

mod show;

use plan::why::{Explanation, Subject};
use serde_json::Value;

use super::view::{self, View};
use super::world::{World, key};
use super::{Output, pretty};
use crate::commands::reach::{self, Api};

/// What is asked.
pub(crate) struct Question<'a> {
    /// The Service, perhaps with its kind in front.
    pub(crate) service: &'a str,
    pub(crate) namespace: &'a str,
    /// As this node sees it; without one this machine, or the first node there is.
    pub(crate) node: Option<&'a str>,
    pub(crate) output: Output,
}

/// Everything that was found.
struct Found {
    /// The type of the Service, and its policies.
    service: plan::input::Service,
    told: Explanation,
    view: View,
    missing: Vec<String>,
}

impl Found {
    /// What the node says of the Service: whether its rules are as planned.
    fn programmed(&self) -> Option<&Value> {
        let report = self.view.told.as_ref().ok()?;
        report["services"].get(&self.told.service)
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

async fn find(api: &mut Api, question: &Question<'_>) -> anyhow::Result<Found> {
    let name = view::service_name(question.service)?;
    let world = World::read(api).await?;
    let service = world.service(question.namespace, name)?.clone();
    let node = view::choose(&world, question.node)?;
    let view = View::of(api, &world, &node, &key(&service)).await;
    let (slices, pods) = (world.slices_of(&service), world.pods_of(&service));
    let told = view.planner.why(&Subject { service: &service, slices: &slices, pods: &pods });
    Ok(Found { service, told, view, missing: world.missing })
}
