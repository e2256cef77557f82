//! Conditions people can wait for: what a Service has, what it lacks, and why (S05, S18, S19).
//!
//! In: what [`diagnose`] finds for a Service. Out: four conditions in its status: `AddressAssigned`, `PodsMatched`,
//! `EndpointsReady`, and `Ready` when all three hold; reasons are the codes of findings, messages their sentences.
//!
//! Every write of a Service goes to everybody who watches Services, each node among them, so writes must be rare. What is
//! said while all is well follows from the Service's own spec: no number of Pods, so no Pod can change it. What is said when
//! something is missing may name Pods and count them, but changes of Pods are gathered for [`SOON`] before they are looked
//! at. Only what decides whether a Service serves, its slices, is looked at as soon as it changes.

mod cluster;
pub(crate) mod list;
mod withdraw;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use diagnose::{Detail, Offer, Slice, code, diagnose, not_published};
use serde_json::Value;

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::pod::Pod;
use crate::objects::service::Service;
use crate::objects::split;
use crate::report::{self, Reference};
use crate::world::{Both, Change, What, service_of};
use crate::write::Write;
use list::Finding;

/// The table of Services.
const TABLE: &str = "services/specs";
/// Our conditions, in their order.
const TYPES: [&str; 4] = ["AddressAssigned", "PodsMatched", "EndpointsReady", "Ready"];
/// Who writes Events.
const COMPONENT: &str = "service-conditions";
/// How long changes of Pods are gathered.
const SOON: Duration = Duration::from_millis(500);
/// How much longer they are gathered for each Service of the namespace that matches nothing: however many there are, all of
/// them together are rewritten a hundred times a second at most because of Pods that are not theirs.
const PER_UNMATCHED: Duration = Duration::from_millis(10);

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
    let excuse = |pod: &Pod| Detail::read(&pod.entry.value).excuse();
    !new.ready && excuse(old) != excuse(new)
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
    let read = |entry: &Arc<store::Entry>| Offer::of(&Slice::read(&entry.value, split(&entry.key.name).1));
    let offer = |entry: &Arc<store::Entry>| (service_of(entry), read(entry));
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
    let typed = diagnose::Service::read(&service.entry.value, service.namespace(), service.name());
    let Some(conditions) = list::merge(typed.conditions(), find(view, &typed), &view.now_text()) else {
        return Verdict::settled();
    };
    let events = event(view, service, typed.conditions(), &conditions).into_iter().collect();
    let mut object = object::decode_bare(&service.entry.value);
    object.put("status.conditions", conditions);
    let write = Write::Object { table: TABLE, object: Box::new(object), modified: service.entry.modified };
    Verdict { events, ..Verdict::write(vec![write]) }
}

/// The Event for a Service that was looked at before and now has another fault. A new one waits for its Pods more often than not,
/// and endpoints that are about to be published are no fault yet.
fn event(view: &View<'_>, service: &Service, before: &[Value], after: &[Value]) -> Option<Write> {
    let ready = |conditions: &[Value]| -> Option<Value> {
        conditions.iter().find(|condition| condition.text("type") == "Ready").cloned()
    };
    let (before, after) = (ready(before)?, ready(after)?);
    let reason = after.text("reason");
    let is_fault = after.text("status") == "False" && reason != code::NOT_PUBLISHED;
    if !is_fault || before.text("reason") == reason {
        return None;
    }
    let about = Reference::new(&service.entry.key.name, &service.uid);
    let (message, now) = (after.text("message"), view.now_text());
    let finding = report::Finding { controller: COMPONENT, normal: false, reason, message, now: &now };
    Some(report::about("Service", "v1", &about, &finding))
}

/// All that is found, in the order of [`TYPES`]; nothing where what was said before shall stand.
fn find(view: &View<'_>, service: &diagnose::Service) -> Vec<(&'static str, Option<Finding>)> {
    let found = diagnose(view, service);
    let (address, matched) = (Finding::from(found.address), Finding::from(found.pods));
    let endpoints = found.endpoints.map(Finding::from).or_else(|| {
        // The Pods are ready and the slices are about to show it: that will be told as one change, unless this is the
        // first thing that is said, or what was said is no longer so.
        let said = service.conditions().iter().find(|condition| condition.text("type") == "EndpointsReady");
        let unready = said.is_some_and(|condition| condition.text("status") == "False");
        (!unready).then(|| Finding::from(Err(not_published())))
    });
    let first_bad =
        [Some(&address), Some(&matched), endpoints.as_ref()].into_iter().flatten().find(|found| !found.holds);
    let ready = match (first_bad, found.degraded.into_iter().next()) {
        (Some(bad), _) => Some(bad.clone()),
        (None, _) if endpoints.is_none() => None,
        (None, Some(degraded)) => Some(Finding { holds: true, ..Finding::from(Err(degraded)) }),
        (None, None) => Some(Finding::good("Ready", "the Service can be used")),
    };
    TYPES.into_iter().zip([Some(address), Some(matched), endpoints, ready]).collect()
}

#[cfg(test)]
mod tests;
