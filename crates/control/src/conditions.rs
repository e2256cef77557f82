//! Conditions people can wait for: what a Service has, what it lacks, and why (S05, S18, S19).
//!
//! In: a Service, its EndpointSlices, the Pods it selects or nearly selects, their Nodes. Out: four conditions in its status:
//! `AddressAssigned`, `PodsMatched`, `EndpointsReady`, and `Ready` when all three hold.
//!
//! Every write of a Service goes to everybody who watches Services, each node among them, so writes must be rare. What is
//! said while all is well follows from the Service's own spec: no number of Pods, so no Pod can change it. What is said when
//! something is missing may name Pods and count them, but changes of Pods are gathered for [`SOON`] before they are looked
//! at. Only what decides whether a Service serves, its slices, is looked at as soon as it changes.

mod address;
mod coverage;
pub(crate) mod list;
mod near_miss;
mod pod_state;
mod selected;
mod similar;
mod stored;
mod unselected;
mod withdraw;
pub(crate) mod words;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::pod::Pod;
use crate::objects::service::{Selector, Service};
use crate::world::{Both, Change, What, service_of};
use crate::write::Write;
use coverage::Offer;
use list::Finding;
use stored::Stored;

/// The table of Services.
const TABLE: &str = "services/specs";
/// Our conditions, in their order.
const TYPES: [&str; 4] = ["AddressAssigned", "PodsMatched", "EndpointsReady", "Ready"];
/// How long changes of Pods are gathered.
const SOON: Duration = Duration::from_millis(500);
/// How much longer they are gathered for each Service of the namespace that matches nothing: however many there are, all of
/// them together are rewritten a hundred times a second at most because of Pods that are not theirs.
const PER_UNMATCHED: Duration = Duration::from_millis(10);
/// What is said when every port has an endpoint.
const ALL_PORTS: &str = "every port has a ready endpoint";

/// The controller. It runs even when it is switched off, to take back what it wrote when it was on.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "serviceconditions", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Service(_) if view.settings.service_conditions || change.initial => wakes.add(change.key()),
        _ if !view.settings.service_conditions || change.initial => {}
        What::Pod(both) => pod_concerns(view, both, wakes),
        What::Node(Both { old: Some(node), new: None } | Both { old: None, new: Some(node) }) => {
            for pod in view.world.pods.on_node(node.name()) {
                wake_selecting(view, pod, wakes);
            }
        }
        What::Other if change.is_of("endpointslices") => slice_concerns(change, wakes),
        _ => {}
    }
}

fn pod_concerns(view: &View<'_>, Both { old, new }: &Both<Pod>, wakes: &mut Wakes<'_>) {
    let (relabelled, differs) = match (old, new) {
        (Some(old), Some(new)) => {
            (old.entry.facts.labels != new.entry.facts.labels, old.differs_for_endpoints(new) || tells_more(old, new))
        }
        _ => (true, true),
    };
    if !relabelled && !differs {
        return;
    }
    for pod in old.iter().filter(|_| relabelled).chain(new) {
        wake_selecting(view, pod, wakes);
    }
    if let (true, Some(pod)) = (relabelled, old.as_ref().or(new.as_ref())) {
        let unmatched = &view.world.unmatched;
        let crowd = u32::try_from(unmatched.count(pod.namespace())).unwrap_or(u32::MAX);
        for service in unmatched.of(pod.namespace()) {
            wakes.add_after(service, SOON.saturating_add(PER_UNMATCHED.saturating_mul(crowd)));
        }
    }
}

/// Whether a Pod that is not ready gives another reason than before.
fn tells_more(old: &Pod, new: &Pod) -> bool {
    !new.ready && pod_state::excuse(&old.entry.value) != pod_state::excuse(&new.entry.value)
}

/// Wakes the Services that select a Pod: at once those that had none, since that changes more than words.
fn wake_selecting(view: &View<'_>, pod: &Pod, wakes: &mut Wakes<'_>) {
    for service in view.world.services.selecting(pod.namespace(), &pod.entry.facts) {
        let key = &service.entry.key.name;
        if view.world.unmatched.contains(key) { wakes.add(key) } else { wakes.add_after(key, SOON) }
    }
}

/// A slice concerns its Service when it offers something else than before; most changes of a large one do not.
fn slice_concerns(change: &Change, wakes: &mut Wakes<'_>) {
    let now = (!change.deleted).then_some(&change.entry);
    let offer = |entry: &Arc<store::Entry>| (service_of(entry), Offer::of(entry));
    let (before, after) = (change.previous.as_ref().map(offer), now.map(offer));
    if before != after {
        for service in before.into_iter().chain(after).filter_map(|(service, _)| service) {
            wakes.add(&service);
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let Some(service) = view.world.services.get(key).filter(|service| !service.deleting) else {
        return Verdict::settled();
    };
    if !view.settings.service_conditions {
        return Verdict::write(withdraw::withdraw(&service.entry).into_iter().collect());
    }
    let stored = Stored::read(&service.entry.value);
    let Some(conditions) = list::merge(&stored.status.conditions, find(view, service, &stored), &view.now_text())
    else {
        return Verdict::settled();
    };
    let mut object = object::decode_bare(&service.entry.value);
    object.put("status.conditions", conditions);
    Verdict::write(vec![Write::Object { table: TABLE, object: Box::new(object), modified: service.entry.modified }])
}

/// All that is found, in the order of [`TYPES`]; nothing where what was said before shall stand.
fn find(view: &View<'_>, service: &Service, stored: &Stored) -> Vec<(&'static str, Option<Finding>)> {
    let address = address::find(service, stored);
    let (matched, endpoints) = if service.is_external_name {
        let none = Finding::good("ExternalName", "an ExternalName Service needs no pods");
        (none.clone(), Some(none))
    } else if let Some(selector) = &service.selector {
        selected(view, service, selector, stored)
    } else {
        let (matched, endpoints) = unselected::find(view, service, stored);
        (matched, Some(endpoints))
    };
    let endpoints = endpoints.or_else(|| {
        // The Pods are ready and the slices are about to show it: that will be told as one change, unless this is the
        // first thing that is said, or what was said is no longer so.
        let said = stored.status.conditions.iter().find(|condition| condition.text("type") == "EndpointsReady");
        let unready = said.is_some_and(|condition| condition.text("status") == "False");
        (!unready).then(|| Finding::bad("NotPublished", "the pods are ready; their endpoints are being published"))
    });
    let first_bad =
        [Some(&address), Some(&matched), endpoints.as_ref()].into_iter().flatten().find(|found| !found.holds);
    let ready = match first_bad {
        Some(bad) => Some(bad.clone()),
        None if endpoints.is_none() => None,
        None => Some(Finding::good("Ready", "the Service can be used")),
    };
    TYPES.into_iter().zip([Some(address), Some(matched), endpoints, ready]).collect()
}

/// Whether Pods match, and whether they serve.
fn selected(view: &View<'_>, service: &Service, selector: &Selector, stored: &Stored) -> (Finding, Option<Finding>) {
    let pods = &view.world.pods;
    let namespace = service.namespace();
    let matched = if pods.matches_any(namespace, selector) {
        Finding::good("PodsMatched", format!("selector {} matches pods in {namespace}", near_miss::text(selector)))
    } else {
        Finding::bad("NoPodMatches", near_miss::explain(pods, namespace, selector))
    };
    let unmet = coverage::unmet(view, service, stored);
    let endpoints = if unmet.is_empty() {
        Some(Finding::good("EndpointsReady", ALL_PORTS))
    } else if matched.holds {
        selected::explain(view, service, stored, &pods.matching(namespace, selector), &unmet)
    } else {
        Some(matched.clone())
    };
    (matched, endpoints)
}

#[cfg(test)]
mod tests;
