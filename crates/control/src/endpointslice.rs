//! EndpointSlices for Services with a selector (S02, S16, S18).
//!
//! In: a Service, the Pods it selects, their Nodes, the slices there are. Out: as few writes to slices as possible.
//!
//! ```text
//! Pods ─▶ desired: endpoints by family and ports ─▶ pack: into the slices there are ─▶ hints ─▶ draft: writes
//! ```

mod desired;
mod draft;
mod hints;
mod pack;
mod topology;

use std::sync::Arc;

use api::ip::Family;
use api::view::labels::ENDPOINT_SLICE_MANAGED_BY;

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::node::Node;
use crate::objects::service::Service;
use crate::objects::slice::Slice;
use crate::report::{self, Finding, Reference};
use crate::selection;
use crate::world::{Both, Change, What};
use crate::write::Write;
use desired::Desired;
pub(crate) use desired::target;
use draft::Drafts;
pub(crate) use draft::set_annotation;

/// Who looks after these slices.
pub(crate) const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "endpointslice", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    selection::concerns(view, change, wakes);
    match &change.what {
        What::Node(both) if !change.initial => node_concerns(view, both, wakes),
        What::Other if change.is_of("endpointslices") => {
            for slice in change.previous.iter().chain([&change.entry]) {
                if slice.facts.label(ENDPOINT_SLICE_MANAGED_BY) == Some(MANAGER)
                    && let Some(service) = crate::world::service_of(slice)
                {
                    wakes.add(&service);
                }
            }
        }
        _ => {}
    }
}

/// A Node gives its Pods their zone, and the zones their weight.
fn node_concerns(view: &View<'_>, Both { old, new }: &Both<Node>, wakes: &mut Wakes<'_>) {
    let zone = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.zone().map(str::to_owned));
    if zone(old) != zone(new)
        && let Some(node) = old.as_ref().or(new.as_ref())
    {
        for pod in view.world.pods.on_node(node.name()) {
            for service in view.world.services.selecting(pod.namespace(), &pod.entry.facts) {
                wakes.add(&service.entry.key.name);
            }
        }
    }
    let weight = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| topology::weight(node));
    if weight(old) != weight(new) {
        for service in view.world.services.iter().filter(|service| service.has_topology_hints) {
            wakes.add(&service.entry.key.name);
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    // The slices of a Service that is gone go by garbage collection.
    let Some(service) = view.world.services.get(key) else { return Verdict::settled() };
    let Some(selector) = service.managed_selector() else { return Verdict::settled() };
    let mut existing: Vec<Slice> = view
        .world
        .slices
        .of(key)
        .filter(|entry| entry.facts.label(ENDPOINT_SLICE_MANAGED_BY) == Some(MANAGER))
        .map(Slice::read)
        .filter(|slice| !slice.metadata.is_deleting())
        // A Service that goes may have let go of its slices first: then they stay as they are.
        .filter(|slice| !service.deleting || slice.metadata.is_owned_by("Service", &service.uid))
        .collect();
    let desired = Desired::of(view, service, &view.world.pods.matching(service.namespace(), selector));
    let mut verdict = Verdict::default();
    let mut writes = Vec::new();
    for (family, groups) in desired.families {
        let (here, rest) = existing.into_iter().partition(|slice| *slice.address_type == *family.as_str());
        existing = rest;
        let mut drafts = pack::pack(service, family, here, groups, view.settings.max_endpoints_per_slice);
        let event = hint(view, service, family, &mut drafts);
        verdict.events.extend(event);
        writes.extend(drafts.into_writes(service, view.trigger));
    }
    // What is left is of families that the Service no longer has.
    writes.extend(existing.iter().map(|slice| Write::delete(&slice.entry)));
    verdict.events.extend(desired.looping.iter().map(|(pod, other)| looping(view, service, pod, other)));
    verdict.transactions = if writes.is_empty() { Vec::new() } else { vec![writes] };
    verdict
}

/// Gives endpoints the hints that the Service asks for, and says so when that begins, ends or cannot be.
fn hint(view: &View<'_>, service: &Service, family: Family, drafts: &mut Drafts) -> Option<Write> {
    let had_hints = drafts.had_hints;
    let news = if service.has_topology_hints {
        let ratios = topology::Ratios::of(view.world.nodes.iter());
        match topology::allocate(drafts, &ratios) {
            Ok(()) if had_hints => None,
            Ok(()) => Some((true, "Topology Aware Hints has been enabled".to_owned())),
            Err(why) => Some((false, why)),
        }
    } else {
        hints::prefer(drafts, service.distribution.as_deref());
        let gone = had_hints && service.distribution.is_none();
        gone.then(|| (false, "Topology Aware Hints has been disabled".to_owned()))
    };
    let (normal, why) = news?;
    let message = format!("{why}, addressType: {}", family.as_str());
    let reason = if normal { "TopologyAwareHintsEnabled" } else { "TopologyAwareHintsDisabled" };
    Some(tell(view, service, normal, reason, &message))
}

/// A Pod has the address of a Service: its traffic would go round in circles (S14).
fn looping(view: &View<'_>, service: &Service, pod: &str, other: &str) -> Write {
    let message = format!("Pod {pod} has the cluster IP of Service {other} as its address; it is left out");
    tell(view, service, false, "EndpointIsClusterIP", &message)
}

fn tell(view: &View<'_>, service: &Service, normal: bool, reason: &str, message: &str) -> Write {
    let now = view.now_text();
    let finding = Finding { controller: "endpoint-slice-controller", normal, reason, message, now: &now };
    report::about("Service", "v1", &Reference::new(&service.entry.key.name, &service.uid), &finding)
}

#[cfg(test)]
mod tests;
