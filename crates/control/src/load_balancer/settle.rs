//! Writes what was decided: status, condition, finalizer and claims, in one transaction; and what people are told of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::object;
use api::value::ValueExt as _;
use diagnose::words::list;
use serde_json::{Value, json};

use super::choose::{Choice, Given};
use super::claim::{self, Owner};
use super::request::Request;
use super::{CONDITION, FINALIZER, SERVICES};
use crate::conditions::list::{Finding, merge};
use crate::controller::{Verdict, View};
use crate::report::{self, Reference};
use crate::write::Write;

/// Who speaks.
const COMPONENT: &str = "service-lb-controller";
/// How many addresses are named.
const NAMED: usize = 4;

/// Makes what was decided so.
pub(super) fn settle(view: &View<'_>, request: &Request, choice: Choice) -> Verdict {
    let (given, finding, again) = match choice {
        Choice::Given(given) => {
            let finding = Finding::good("Assigned", told(&given));
            (Some(given), finding, None)
        }
        Choice::Refused(refusal) => (None, Finding::bad(refusal.reason, refusal.message), refusal.again),
    };
    let addresses = given.as_ref().map_or(&[][..], |given| &given.addresses);
    let owner = given.as_ref().map(|given| &given.owner);
    let mut writes = claims(view, request.key(), addresses, owner);
    let events = events(view, request, given.as_ref(), &finding);
    let mut object = object::decode_bare(&request.entry.value);
    let mut changed = put_ingress(&mut object, addresses);
    // Also while it waits: whoever asks for a load balancer has it cleaned up, whenever it was made.
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
    // What was said before and has not changed is not said again.
    let events = if changed { events } else { Vec::new() };
    Verdict { events, again, ..Verdict::write(writes) }
}

/// What the condition of a Service with addresses says.
fn told(given: &Given) -> String {
    let addresses: Vec<String> = given.addresses.iter().map(IpAddr::to_string).collect();
    let mut out = format!("{} from {}", list(&addresses, NAMED), given.from);
    for (_, remark) in &given.remarks {
        out.push_str("; ");
        out.push_str(remark);
    }
    out
}

/// Gives back what a Service has that is going, or is no load balancer of ours any more.
pub(super) fn release(view: &View<'_>, request: &Request) -> Verdict {
    let held: Vec<IpAddr> = view.world.load_balancers.claims_of(request.key()).map(|claim| claim.address).collect();
    let ours = view.settings.load_balancer.on && request.is_balancer && request.is_of_our_class();
    // Other controllers use the same word. What we set comes with a claim, or with our condition, which is written with it.
    let may_be_kept = request.has_finalizer && (ours || request.is_told);
    if held.is_empty() && !may_be_kept {
        return Verdict::settled();
    }
    let mut writes = claims(view, request.key(), &[], None);
    let mut object = object::decode_bare(&request.entry.value);
    let mut changed = put_finalizer(&mut object, false);
    // Where the class is another's by now, so may be the addresses.
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
    let say = |reason: &str, message: &str| tell(view, request, true, reason, message);
    let events = vec![
        say("DeletingLoadBalancer", "Deleting load balancer"),
        say("DeletedLoadBalancer", &format!("Deleted load balancer{}", freed(request))),
    ];
    Verdict { events, ..Verdict::write(writes) }
}

fn freed(request: &Request) -> String {
    let addresses: Vec<String> = request.shown.iter().map(IpAddr::to_string).collect();
    if addresses.is_empty() { String::new() } else { format!("; {} is free again", list(&addresses, NAMED)) }
}

fn without_condition(conditions: &[Value]) -> Vec<Value> {
    conditions.iter().filter(|condition| condition.text("type") != CONDITION).cloned().collect()
}

/// Gives back what a Service has that is not there any more.
pub(super) fn release_lost(view: &View<'_>, key: &str) -> Verdict {
    Verdict::write(claims(view, key, &[], None))
}

/// Makes these, and no others, the addresses of a Service.
fn claims(view: &View<'_>, key: &str, addresses: &[IpAddr], owner: Option<&Owner>) -> Vec<Write> {
    let balancers = &view.world.load_balancers;
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

/// Shows addresses in the status; whether that changes it.
fn put_ingress(object: &mut Value, addresses: &[IpAddr]) -> bool {
    let wanted: Vec<Value> =
        addresses.iter().map(|address| json!({"ip": address.to_string(), "ipMode": "VIP"})).collect();
    if object.items("status.loadBalancer.ingress") == wanted {
        return false;
    }
    object.put("status.loadBalancer", if wanted.is_empty() { json!({}) } else { json!({"ingress": wanted}) });
    true
}

/// Sets or takes the finalizer; whether that changes it.
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
    Write::Part { table: SERVICES, part: "status", object: Box::new(object), modified: request.entry.modified }
}

/// What people are told when the status changes.
fn events(view: &View<'_>, request: &Request, given: Option<&Given>, finding: &Finding) -> Vec<Write> {
    let Some(given) = given else {
        return vec![tell(view, request, false, &finding.reason, &finding.message)];
    };
    let mut out = Vec::new();
    let say = |normal: bool, reason: &str, message: &str| tell(view, request, normal, reason, message);
    let addresses: Vec<String> = given.addresses.iter().map(IpAddr::to_string).collect();
    if !request.is_shown {
        out.push(say(true, "EnsuringLoadBalancer", "Ensuring load balancer"));
    } else if request.shown != given.addresses {
        let before: Vec<String> = request.shown.iter().map(IpAddr::to_string).collect();
        let (before, after) = (list(&before, NAMED), list(&addresses, NAMED));
        let message = format!(
            "the address was {before} and is {after} now: the pools, or what the Service asks for, have changed"
        );
        out.push(say(false, "LoadBalancerAddressChanged", &message));
    }
    for (reason, remark) in &given.remarks {
        out.push(say(false, reason, remark));
    }
    if request.shown != given.addresses {
        let message = format!("Ensured load balancer: {} from {}", list(&addresses, NAMED), given.from);
        out.push(say(true, "EnsuredLoadBalancer", &message));
    }
    out
}

fn tell(view: &View<'_>, request: &Request, normal: bool, reason: &str, message: &str) -> Write {
    let about = Reference::new(request.key(), &request.uid);
    let now = view.now_text();
    report::about(
        "Service",
        "v1",
        &about,
        &report::Finding { controller: COMPONENT, normal, reason, message, now: &now },
    )
}
