//! Load balancers without a cloud (S43 to S47): Services of type LoadBalancer get addresses, and lose them when they no longer want them.
//!
//! In: Services, IPPools, Nodes, and the entries that say who has which address ([`claim`]). Out: `status.loadBalancer`, the condition
//! `LoadBalancerReady`, the finalizer, Events. The finalizer and the condition come together, whether there is an address or not yet; an
//! address and the entry that it is taken come with them or after them, in one transaction; and all of it ends in one.
//!
//! Ours are Services without a class and those of [`CLASSES`]; of other classes nothing is touched. Switched off it does what Kubernetes
//! without a cloud does, nothing, but still cleans up what it gave when it was on.

mod annotations;
mod asked;
mod choose;
mod claim;
mod flag;
mod nodes;
mod pools;
mod request;
mod say;
mod settle;
#[cfg(test)]
mod tests;

use api::object;
use api::pool::Pool;
use api::value::ValueExt as _;

pub use claim::{Claim, Owner};
pub use request::Request;

pub(crate) use claim::TABLE as CLAIMS;
pub(crate) use flag::CONTROLLER as COMMAND_LINE;

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::node::Node;
use crate::world::{Both, Change, What, service_of};

/// What keeps a Service until its load balancer is cleaned up.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The condition that says whether there is an address, or why not.
pub const CONDITION: &str = "LoadBalancerReady";

/// The table of Services.
const SERVICES: &str = "services/specs";
/// The table of pools.
const POOLS: &str = "ippools";

/// The controller. It runs even when it is switched off, to clean up what it gave when it was on.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "service-lb-controller", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    let (on, balancers) = (view.settings.load_balancer.on, &view.world.load_balancers);
    match &change.what {
        What::Service(_) if balancers.concerns(change.key()) => wakes.add(change.key()),
        What::Other if change.is_of(CLAIMS) => claim_concerns(view, change, wakes),
        _ if !on => {}
        What::Node(both) if differs(both) => wake_all(view, wakes, |_| true),
        What::Other if change.is_of(POOLS) => {
            wakes.add(&pools::key(change.key()));
            if is_new_spec(change) {
                wake_all(view, wakes, |_| true);
            }
        }
        What::Other if change.is_of("nodeports") && change.deleted => wake_all(view, wakes, Request::is_pending),
        What::Other if change.is_of("endpointslices") && !change.initial => {
            let request = service_of(&change.entry).and_then(|service| balancers.request(&service));
            if let Some(request) = request.filter(|request| request.is_proxied() && request.local) {
                wakes.add(request.key());
            }
        }
        _ => {}
    }
}

/// A claim that is less than it was lets others have what they wait for. What is there at the start may have lost its owner.
fn claim_concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    let Some(claim) = Claim::read(&change.entry) else { return };
    if change.initial {
        claim.owners.iter().for_each(|owner| wakes.add(&owner.service));
    }
    if !view.settings.load_balancer.on {
        return;
    }
    if change.previous.is_some() {
        wake_all(view, wakes, Request::is_pending);
    }
    for pool in view.world.load_balancers.pools().filter(|pool| pool.contains(claim.address)) {
        wakes.add_after(&pools::key(&pool.name), pools::SOON);
    }
}

fn wake_all(view: &View<'_>, wakes: &mut Wakes<'_>, which: impl Fn(&Request) -> bool) {
    for request in view.world.load_balancers.requests().filter(|request| which(request)) {
        wakes.add(request.key());
    }
}

/// Whether a Node is another one for those who want to reach it; a heartbeat changes nothing.
fn differs(Both { old, new }: &Both<Node>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            old.ready != new.ready || old.addresses != new.addresses || old.entry.facts.labels != new.entry.facts.labels
        }
        _ => true,
    }
}

/// Whether a pool says something else; how much of it is used is our own word.
fn is_new_spec(change: &Change) -> bool {
    let spec = |value: &[u8]| object::decode_light(value).at("spec").clone();
    let before = change.previous.as_ref().map(|entry| spec(&entry.value));
    change.deleted || before.is_none_or(|before| before != spec(&change.entry.value))
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    if let Some(name) = pools::name(key) {
        return pools::reconcile(view, name);
    }
    let request = view.world.load_balancers.request(key).map(|request| &**request);
    let Some(request) = request else { return settle::release_lost(view, key) };
    if request.deleting || !request.is_balancer || !request.is_of_our_class() {
        return settle::release(view, request);
    }
    if !view.settings.load_balancer.on {
        return Verdict::settled();
    }
    let flag = flag::pool(view);
    let pools = all_pools(view, flag.as_ref());
    let held = view.world.load_balancers.claims_of(key);
    let held = held.filter(|claim| claim.owners.iter().any(|owner| owner.uid == request.uid));
    let around = choose::Around {
        view,
        request,
        pools: &pools,
        me: request.owner(),
        held: held.map(|claim| claim.address).collect(),
    };
    settle::settle(view, request, choose::choose(&around))
}

/// All pools in the order in which they are used. What the command line says counts before it is stored.
fn all_pools<'a>(view: &View<'a>, flag: Option<&'a Pool>) -> Vec<&'a Pool> {
    let stored = view.world.load_balancers.pools().map(|pool| &**pool);
    let mut pools: Vec<&Pool> = stored.filter(|pool| flag.is_none() || pool.name != flag::NAME).chain(flag).collect();
    pools.sort_by_key(|pool| (pool.priority, !pool.is_reserved(), pool.name.as_str()));
    pools
}
