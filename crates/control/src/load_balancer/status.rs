//! Writes the result: status, condition, finalizer and claims in one transaction, and Events.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::object;
use api::value::ValueExt as _;
use diagnose::words::list;
use serde_json::{Value, json};

use super::SERVICES;
use super::allocate::{Allocation, AllocationResult};
use crate::conditions::list::{Finding, merge};
use crate::controller::{Outcome, View};
use crate::event::{self, Reference};
use crate::objects::load_balancer::claim::{self, Owner};
use crate::objects::load_balancer::{CONDITION, FINALIZER, Request};
use crate::write::Write;

/// The source of Events.
const COMPONENT: &str = "service-lb-controller";
/// The most addresses that a message lists.
const NAMED: usize = 4;

/// Writes an assignment or refusal.
pub(super) fn assign(view: &View<'_>, request: &Request, result: AllocationResult) -> Outcome {
    let (allocation, finding, requeue_after) = match result {
        AllocationResult::Assigned(allocation) => {
            let finding = Finding::good("Assigned", assigned_message(&allocation));
            (Some(allocation), finding, None)
        }
        AllocationResult::Refused(refusal) => {
            (None, Finding::bad(refusal.reason, refusal.message), refusal.requeue_after)
        }
    };
    let addresses = allocation.as_ref().map_or(&[][..], |allocation| &allocation.addresses);
    let owner = allocation.as_ref().map(|allocation| &allocation.owner);
    let mut writes = claims(view, request.key(), addresses, owner);
    let events = events(view, request, allocation.as_ref(), &finding);
    let mut object = object::decode_bare(&request.entry.value);
    let mut changed = put_ingress(&mut object, addresses);
    // Also while pending, so that the load balancer is cleaned up in any case.
    changed |= put_finalizer(&mut object, true);
    if let Some(conditions) =
        merge(object.items("status.conditions"), vec![(CONDITION, Some(finding))], &view.now_text())
    {
        object.put("status.conditions", conditions);
        changed = true;
    }
    if changed {
        writes.push(part(request, object));
    }
    // No Events without a change.
    let events = if changed { events } else { Vec::new() };
    Outcome { events, requeue_after, ..Outcome::write(writes) }
}

/// The condition message of a Service with addresses.
fn assigned_message(allocation: &Allocation) -> String {
    let addresses: Vec<String> = allocation.addresses.iter().map(IpAddr::to_string).collect();
    let mut out = format!("{} from {}", list(&addresses, NAMED), allocation.from);
    for (_, remark) in &allocation.remarks {
        out.push_str("; ");
        out.push_str(remark);
    }
    out
}

/// Releases the addresses of a Service that is being deleted or is no longer handled.
pub(super) fn release(view: &View<'_>, request: &Request) -> Outcome {
    let held: Vec<IpAddr> = view.cache.load_balancers.claims_of(request.key()).map(|claim| claim.address).collect();
    let ours = view.settings.load_balancer.enabled && request.is_balancer && request.is_of_our_class();
    // Other controllers use the same finalizer. Ours comes with a claim or with our condition.
    let may_be_kept = request.has_finalizer && (ours || request.has_our_condition);
    if held.is_empty() && !may_be_kept {
        return Outcome::done();
    }
    let mut writes = claims(view, request.key(), &[], None);
    let mut object = object::decode_bare(&request.entry.value);
    let mut changed = put_finalizer(&mut object, false);
    // With a foreign class the addresses may be foreign, too.
    if request.is_of_our_class() || request.shown.iter().all(|address| held.contains(address)) {
        changed |= put_ingress(&mut object, &[]);
    }
    let kept = without_condition(object.items("status.conditions"));
    if kept.len() != object.items("status.conditions").len() {
        changed = true;
        if kept.is_empty() {
            object.drop_path("status.conditions");
        } else {
            object.put("status.conditions", kept);
        }
    }
    if changed {
        writes.push(part(request, object));
    }
    let say = |reason: &str, message: &str| service_event(view, request, true, reason, message);
    let events = vec![
        say("DeletingLoadBalancer", "Deleting load balancer"),
        say("DeletedLoadBalancer", &format!("Deleted load balancer{}", freed(request))),
    ];
    Outcome { events, ..Outcome::write(writes) }
}

fn freed(request: &Request) -> String {
    let addresses: Vec<String> = request.shown.iter().map(IpAddr::to_string).collect();
    if addresses.is_empty() { String::new() } else { format!("; {} is free again", list(&addresses, NAMED)) }
}

fn without_condition(conditions: &[Value]) -> Vec<Value> {
    conditions.iter().filter(|condition| condition.text("type") != CONDITION).cloned().collect()
}

/// Releases the addresses of a deleted Service.
pub(super) fn release_lost(view: &View<'_>, key: &str) -> Outcome {
    Outcome::write(claims(view, key, &[], None))
}

/// Claims exactly these addresses for a Service.
fn claims(view: &View<'_>, key: &str, addresses: &[IpAddr], owner: Option<&Owner>) -> Vec<Write> {
    let balancers = &view.cache.load_balancers;
    let mut all: BTreeSet<IpAddr> = balancers.claims_of(key).map(|claim| claim.address).collect();
    all.extend(addresses);
    let write = |address: IpAddr| {
        let before = balancers.claim(address).map(|claim| &**claim);
        let others = before.into_iter().flat_map(|claim| &claim.owners).filter(|other| &*other.service != key).cloned();
        let mut owners: Vec<Owner> = others.chain(owner.filter(|_| addresses.contains(&address)).cloned()).collect();
        owners.sort_by(|one, other| one.service.cmp(&other.service));
        claim::write(address, before, owners)
    };
    all.into_iter().filter_map(write).collect()
}

/// Sets the ingress addresses; true when they changed.
fn put_ingress(object: &mut Value, addresses: &[IpAddr]) -> bool {
    let wanted: Vec<Value> =
        addresses.iter().map(|address| json!({"ip": address.to_string(), "ipMode": "VIP"})).collect();
    if object.items("status.loadBalancer.ingress") == wanted {
        return false;
    }
    object.put("status.loadBalancer", if wanted.is_empty() { json!({}) } else { json!({"ingress": wanted}) });
    true
}

/// Adds or removes the finalizer; true when it changed.
fn put_finalizer(object: &mut Value, wanted: bool) -> bool {
    let mut all: Vec<String> = object.texts("metadata.finalizers").into_iter().map(str::to_owned).collect();
    if all.iter().any(|one| one == FINALIZER) == wanted {
        return false;
    }
    if wanted {
        all.push(FINALIZER.to_owned());
    } else {
        all.retain(|one| one != FINALIZER);
    }
    if all.is_empty() {
        object.drop_path("metadata.finalizers");
    } else {
        object.put("metadata.finalizers", all);
    }
    true
}

fn part(request: &Request, object: Value) -> Write {
    Write::Subresource { table: SERVICES, part: "status", object: Box::new(object), modified: request.entry.modified }
}

/// The Events of a status change.
fn events(view: &View<'_>, request: &Request, allocation: Option<&Allocation>, finding: &Finding) -> Vec<Write> {
    let Some(allocation) = allocation else {
        return vec![service_event(view, request, false, &finding.reason, &finding.message)];
    };
    let mut out = Vec::new();
    let say = |normal: bool, reason: &str, message: &str| service_event(view, request, normal, reason, message);
    let addresses: Vec<String> = allocation.addresses.iter().map(IpAddr::to_string).collect();
    if !request.is_shown {
        out.push(say(true, "EnsuringLoadBalancer", "Ensuring load balancer"));
    } else if request.shown != allocation.addresses {
        let before: Vec<String> = request.shown.iter().map(IpAddr::to_string).collect();
        let (before, after) = (list(&before, NAMED), list(&addresses, NAMED));
        let message = format!(
            "the address was {before} and is {after} now: the pools, or what the Service asks for, have changed"
        );
        out.push(say(false, "LoadBalancerAddressChanged", &message));
    }
    for (reason, remark) in &allocation.remarks {
        out.push(say(false, reason, remark));
    }
    if request.shown != allocation.addresses {
        let message = format!("Ensured load balancer: {} from {}", list(&addresses, NAMED), allocation.from);
        out.push(say(true, "EnsuredLoadBalancer", &message));
    }
    out
}

fn service_event(view: &View<'_>, request: &Request, normal: bool, reason: &str, message: &str) -> Write {
    let reference = Reference::new(request.key(), &request.uid);
    let now = view.now_text();
    event::new_event(
        "Service",
        "v1",
        &reference,
        &event::EventDetails { controller: COMPONENT, normal, reason, message, now: &now },
    )
}
