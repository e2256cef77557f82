//! Conditions of Services, for `kubectl wait` (S05, S18, S19).
//!
//! In: the findings of [`diagnose`] for a Service. Out: four conditions in its status: `AddressAssigned`, `PodsMatched`, `EndpointsReady`, and `Ready` when
//! all three are true; with codes and messages of the findings.
//!
//! Every write of a Service is sent to all watchers, each node among them, so writes must be rare. Messages of healthy Services depend on the spec only, so
//! that no Pod changes them. Messages about problems may name and count Pods, but Pod changes are debounced by [`DEBOUNCE`]. Slices, which decide whether a
//! Service works, are handled immediately.

mod cluster;
pub(crate) mod list;
mod remove;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use diagnose::{Detail, Offer, Slice, code, diagnose, not_published};
use serde_json::Value;

use crate::cache::{Change, TypedChange, Versions, service_of};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, Reference};
use crate::objects::pod::Pod;
use crate::objects::service::Service;
use crate::objects::split;
use crate::write::Write;
use list::Finding;

/// The table of Services.
const TABLE: &str = "services/specs";
/// The conditions of this controller, in order.
const TYPES: [&str; 4] = ["AddressAssigned", "PodsMatched", "EndpointsReady", "Ready"];
/// The source of Events.
const COMPONENT: &str = "service-conditions";
/// The debounce interval of Pod changes.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// Added to the interval for each Service of the namespace without matching Pods: limits their rewrites to 100 per second in total.
const PER_UNMATCHED: Duration = Duration::from_millis(10);

/// The controller. It runs also while disabled, to remove its conditions.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "serviceconditions", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Service(_) if view.settings.service_conditions || change.initial => affected.add(change.key()),
        _ if !view.settings.service_conditions || change.initial => {}
        TypedChange::Pod(both) => affected_by_pod(view, both, affected),
        TypedChange::Node(Versions { old: Some(node), new: None } | Versions { old: None, new: Some(node) }) => {
            for pod in view.cache.pods.on_node(node.name()) {
                add_selecting(view, pod, affected);
            }
        }
        TypedChange::Other if change.is_of("endpointslices") => affected_by_slice(change, affected),
        _ => {}
    }
}

fn affected_by_pod(view: &View<'_>, Versions { old, new }: &Versions<Pod>, affected: &mut AffectedKeys<'_>) {
    let (relabelled, differs) = match (old, new) {
        (Some(old), Some(new)) => (
            old.entry.facts.labels != new.entry.facts.labels,
            old.differs_for_endpoints(new) || has_new_details(old, new),
        ),
        _ => (true, true),
    };
    if !relabelled && !differs {
        return;
    }
    for pod in old.iter().filter(|_| relabelled).chain(new) {
        add_selecting(view, pod, affected);
    }
    if let (true, Some(pod)) = (relabelled, old.as_ref().or(new.as_ref())) {
        let unmatched = &view.cache.unmatched;
        let crowd = u32::try_from(unmatched.count(pod.namespace())).unwrap_or(u32::MAX);
        for service in unmatched.of(pod.namespace()) {
            affected.add_after(service, DEBOUNCE.saturating_add(PER_UNMATCHED.saturating_mul(crowd)));
        }
    }
}

/// Whether the reason of an unready Pod changed.
fn has_new_details(old: &Pod, new: &Pod) -> bool {
    let excuse = |pod: &Pod| Detail::read(&pod.entry.value).excuse();
    !new.ready && excuse(old) != excuse(new)
}

/// Adds the Services that select a Pod: immediately those without Pods before, because their status changes.
fn add_selecting(view: &View<'_>, pod: &Pod, affected: &mut AffectedKeys<'_>) {
    for service in view.cache.services.selecting(pod.namespace(), &pod.entry.facts) {
        let key = &service.entry.key.name;
        if view.cache.unmatched.contains(key) { affected.add(key) } else { affected.add_after(key, DEBOUNCE) }
    }
}

/// A slice affects its Service when it offers other ready endpoints than before; most changes of a large slice do not.
fn affected_by_slice(change: &Change, affected: &mut AffectedKeys<'_>) {
    let now = (!change.deleted).then_some(&change.entry);
    let read = |entry: &Arc<store::Entry>| Offer::of(&Slice::read(&entry.value, split(&entry.key.name).1));
    let offer = |entry: &Arc<store::Entry>| (service_of(entry), read(entry));
    let (before, after) = (change.previous.as_ref().map(offer), now.map(offer));
    if before != after {
        for service in before.into_iter().chain(after).filter_map(|(service, _)| service) {
            affected.add(&service);
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(service) = view.cache.services.get(key).filter(|service| !service.deleting) else {
        return Outcome::done();
    };
    if !view.settings.service_conditions {
        return Outcome::write(remove::remove(&service.entry).into_iter().collect());
    }
    let typed = diagnose::Service::read(&service.entry.value, service.namespace(), service.name());
    let Some(conditions) = list::merge(typed.conditions(), find(view, &typed), &view.now_text()) else {
        return Outcome::done();
    };
    let events = event(view, service, typed.conditions(), &conditions).into_iter().collect();
    let mut object = object::decode_bare(&service.entry.value);
    object.put("status.conditions", conditions);
    let write = Write::Object { table: TABLE, object: Box::new(object), modified: service.entry.modified };
    Outcome { events, ..Outcome::write(vec![write]) }
}

/// The Event for an existing Service with a new problem. A new Service usually still waits for its Pods, and endpoints that are about to be published are
/// no problem yet.
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
    let reference = Reference::new(&service.entry.key.name, &service.uid);
    let (message, now) = (after.text("message"), view.now_text());
    let finding = event::EventDetails { controller: COMPONENT, normal: false, reason, message, now: &now };
    Some(event::new_event("Service", "v1", &reference, &finding))
}

/// The findings in the order of [`TYPES`]; `None` keeps the current condition.
fn find(view: &View<'_>, service: &diagnose::Service) -> Vec<(&'static str, Option<Finding>)> {
    let found = diagnose(view, service);
    let (address, matched) = (Finding::from(found.address), Finding::from(found.pods));
    let endpoints = found.endpoints.map(Finding::from).or_else(|| {
        // The Pods are ready and the slices are about to be updated: wait for that, unless there is no condition yet or it is True.
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
