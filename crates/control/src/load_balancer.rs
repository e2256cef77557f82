//! Load balancers without a cloud (S43 to S47): assigns addresses to Services of type LoadBalancer, and releases them.
//!
//! In: Services, IPPools, Nodes, and claims on addresses. Out: `status.loadBalancer`, the condition `LoadBalancerReady`, the finalizer, Events. Finalizer
//! and condition are written together, with or without an address; an address and its claim in one transaction; the release in one transaction.
//!
//! Services without a class and with a class of Waypost are handled; others are not touched. While disabled, the controller only cleans up what it
//! assigned before.

mod allocate;
mod command_line;
mod messages;
mod nodes;
mod pools;
mod requested;
mod status;
#[cfg(test)]
mod tests;

use api::object;
use api::pool::Pool;
use api::value::ValueExt as _;

pub(crate) use command_line::CONTROLLER as COMMAND_LINE;

use crate::cache::{Change, TypedChange, Versions, service_of};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::load_balancer::{CLAIMS, Claim, Request};
use crate::objects::node::Node;

/// The table of Services.
const SERVICES: &str = "services/specs";
/// The table of pools.
const POOLS: &str = "ippools";

/// The controller. It runs also while disabled, to clean up.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "service-lb-controller", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let (enabled, balancers) = (view.settings.load_balancer.enabled, &view.cache.load_balancers);
    match &change.typed {
        TypedChange::Service(_) if balancers.affected_keys(change.key()) => affected.add(change.key()),
        TypedChange::Other if change.is_of(CLAIMS) => affected_by_claim(view, change, affected),
        _ if !enabled => {}
        TypedChange::Node(both) if differs(both) => add_requests(view, affected, |_| true),
        TypedChange::Other if change.is_of(POOLS) => {
            affected.add(&pools::key(change.key()));
            if is_new_spec(change) {
                add_requests(view, affected, |_| true);
            }
        }
        TypedChange::Other if change.is_of("nodeports") && change.deleted => {
            add_requests(view, affected, Request::is_pending);
        }
        TypedChange::Other if change.is_of("endpointslices") && !change.initial => {
            let request = service_of(&change.entry).and_then(|service| balancers.request(&service));
            if let Some(request) = request.filter(|request| request.is_proxied() && request.local) {
                affected.add(request.key());
            }
        }
        _ => {}
    }
}

/// A changed claim may free an address for pending Services. Claims of the initial list may have lost their owner.
fn affected_by_claim(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let Some(claim) = Claim::read(&change.entry) else { return };
    if change.initial {
        claim.owners.iter().for_each(|owner| affected.add(&owner.service));
    }
    if !view.settings.load_balancer.enabled {
        return;
    }
    if change.previous.is_some() {
        add_requests(view, affected, Request::is_pending);
    }
    for pool in view.cache.load_balancers.pools().filter(|pool| pool.contains(claim.address)) {
        affected.add_after(&pools::key(&pool.name), pools::DEBOUNCE);
    }
}

fn add_requests(view: &View<'_>, affected: &mut AffectedKeys<'_>, which: impl Fn(&Request) -> bool) {
    for request in view.cache.load_balancers.requests().filter(|request| which(request)) {
        affected.add(request.key());
    }
}

/// Whether readiness, addresses or labels of a Node changed; heartbeats are ignored.
fn differs(Versions { old, new }: &Versions<Node>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            old.ready != new.ready || old.addresses != new.addresses || old.entry.facts.labels != new.entry.facts.labels
        }
        _ => true,
    }
}

/// Whether the spec of a pool changed; its status is written by this controller.
fn is_new_spec(change: &Change) -> bool {
    let spec = |value: &[u8]| object::decode_light(value).at("spec").clone();
    let before = change.previous.as_ref().map(|entry| spec(&entry.value));
    change.deleted || before.is_none_or(|before| before != spec(&change.entry.value))
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    if let Some(name) = pools::name(key) {
        return pools::reconcile(view, name);
    }
    let request = view.cache.load_balancers.request(key).map(|request| &**request);
    let Some(request) = request else { return status::release_lost(view, key) };
    if request.deleting || !request.is_balancer || !request.is_of_our_class() {
        return status::release(view, request);
    }
    if !view.settings.load_balancer.enabled {
        return Outcome::done();
    }
    let flag = command_line::pool(view);
    let pools = all_pools(view, flag.as_ref());
    let held = view.cache.load_balancers.claims_of(key);
    let held = held.filter(|claim| claim.owners.iter().any(|owner| owner.uid == request.uid));
    let context = allocate::AllocationContext {
        view,
        request,
        pools: &pools,
        owner: request.owner(),
        held: held.map(|claim| claim.address).collect(),
    };
    status::assign(view, request, allocate::allocate_addresses(&context))
}

/// All pools in the order of use. The pool of the command line counts before it is stored.
fn all_pools<'a>(view: &View<'a>, flag: Option<&'a Pool>) -> Vec<&'a Pool> {
    let stored = view.cache.load_balancers.pools().map(|pool| &**pool);
    let mut pools: Vec<&Pool> =
        stored.filter(|pool| flag.is_none() || pool.name != command_line::NAME).chain(flag).collect();
    pools.sort_by_key(|pool| (pool.priority, !pool.is_reserved(), pool.name.as_str()));
    pools
}
