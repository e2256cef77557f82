//! EndpointSlices for Services with a selector (S02, S16, S18).
//!
//! In: a Service, the Pods it selects, their Nodes, the existing slices. Out: as few slice writes as possible.
//!
//! ```text
//! Pods ─▶ desired: endpoints by family and ports ─▶ pack: into existing slices ─▶ hints ─▶ draft: writes
//! ```

mod desired;
mod draft;
mod hints;
mod pack;
mod topology;

use std::sync::Arc;

use api::ip::Family;
use api::view::labels::ENDPOINT_SLICE_MANAGED_BY;

use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::objects::node::Node;
use crate::objects::service::Service;
use crate::objects::slice::Slice;
use crate::selection;
use crate::write::Write;
use desired::Desired;
pub(crate) use desired::target;
use draft::Drafts;
pub(crate) use draft::set_annotation;

/// The value of `managed-by` of these slices.
pub(crate) const MANAGER: &str = "endpointslice-controller.k8s.io";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "endpointslice", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    selection::affected_keys(view, change, affected);
    match &change.typed {
        TypedChange::Node(both) if !change.initial => affected_by_node(view, both, affected),
        TypedChange::Other if change.is_of("endpointslices") => {
            for slice in change.previous.iter().chain([&change.entry]) {
                if slice.facts.label(ENDPOINT_SLICE_MANAGED_BY) == Some(MANAGER)
                    && let Some(service) = crate::cache::service_of(slice)
                {
                    affected.add(&service);
                }
            }
        }
        _ => {}
    }
}

/// A Node determines the zone of its Pods, and the weights of zones.
fn affected_by_node(view: &View<'_>, Versions { old, new }: &Versions<Node>, affected: &mut AffectedKeys<'_>) {
    let zone = |node: &Option<Arc<Node>>| node.as_ref().map(|node| node.zone().map(str::to_owned));
    if zone(old) != zone(new)
        && let Some(node) = old.as_ref().or(new.as_ref())
    {
        for pod in view.cache.pods.on_node(node.name()) {
            for service in view.cache.services.selecting(pod.namespace(), &pod.entry.facts) {
                affected.add(&service.entry.key.name);
            }
        }
    }
    let weight = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| topology::weight(node));
    if weight(old) != weight(new) {
        for service in view.cache.services.iter().filter(|service| service.has_topology_hints) {
            affected.add(&service.entry.key.name);
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    // Slices of a deleted Service are garbage-collected.
    let Some(service) = view.cache.services.get(key) else { return Outcome::done() };
    let Some(selector) = service.managed_selector() else { return Outcome::done() };
    let mut existing: Vec<Slice> = view
        .cache
        .slices
        .of(key)
        .filter(|entry| entry.facts.label(ENDPOINT_SLICE_MANAGED_BY) == Some(MANAGER))
        .map(Slice::read)
        .filter(|slice| !slice.metadata.is_deleting())
        // A Service that is being deleted may have orphaned its slices: leave these.
        .filter(|slice| !service.deleting || slice.metadata.is_owned_by("Service", &service.uid))
        .collect();
    let desired = Desired::of(view, service, &view.cache.pods.matching(service.namespace(), selector));
    let mut outcome = Outcome::default();
    let mut writes = Vec::new();
    for (family, groups) in desired.families {
        let (here, rest) = existing.into_iter().partition(|slice| *slice.address_type == *family.as_str());
        existing = rest;
        let mut drafts = pack::pack(service, family, here, groups, view.settings.max_endpoints_per_slice);
        let event = hint(view, service, family, &mut drafts);
        outcome.events.extend(event);
        writes.extend(drafts.into_writes(service, view.trigger));
    }
    // The rest is of families that the Service no longer has.
    writes.extend(existing.iter().map(|slice| Write::delete(&slice.entry)));
    outcome.events.extend(desired.looping.iter().map(|(pod, other)| looping(view, service, pod, other)));
    outcome.transactions = if writes.is_empty() { Vec::new() } else { vec![writes] };
    outcome
}

/// Sets the hints of endpoints; returns an Event when hints are enabled, disabled or impossible.
fn hint(view: &View<'_>, service: &Service, family: Family, drafts: &mut Drafts) -> Option<Write> {
    let had_hints = drafts.had_hints;
    let news = if service.has_topology_hints {
        let ratios = topology::Ratios::of(view.cache.nodes.iter());
        match topology::allocate(drafts, &ratios) {
            Ok(()) if had_hints => None,
            Ok(()) => Some((true, "Topology Aware Hints has been enabled".to_owned())),
            Err(why) => Some((false, why.to_string())),
        }
    } else {
        hints::prefer(drafts, service.distribution.as_deref());
        let gone = had_hints && service.distribution.is_none();
        gone.then(|| (false, "Topology Aware Hints has been disabled".to_owned()))
    };
    let (normal, why) = news?;
    let message = format!("{why}, addressType: {}", family.as_str());
    let reason = if normal { "TopologyAwareHintsEnabled" } else { "TopologyAwareHintsDisabled" };
    Some(service_event(view, service, normal, reason, &message))
}

/// A Pod with the address of a Service would cause a traffic loop (S14).
fn looping(view: &View<'_>, service: &Service, pod: &str, other: &str) -> Write {
    let message = format!("Pod {pod} has the cluster IP of Service {other} as its address; it is left out");
    service_event(view, service, false, "EndpointIsClusterIP", &message)
}

fn service_event(view: &View<'_>, service: &Service, normal: bool, reason: &str, message: &str) -> Write {
    let now = view.now_text();
    let finding = EventDetails { controller: "endpoint-slice-controller", normal, reason, message, now: &now };
    event::new_event("Service", "v1", &Reference::new(&service.entry.key.name, &service.uid), &finding)
}

#[cfg(test)]
mod tests;
