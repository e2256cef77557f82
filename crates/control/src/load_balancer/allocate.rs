//! Selects the addresses of a Service.
//!
//! In: the request, the pools, the claims. Out: addresses, or a message with the next step. Pure and deterministic: an assigned address that is still
//! valid is kept.
//!
//! Many Services may be pending at once, and an assignment is visible to the others only after its write. So each takes the free address at its own
//! position among the pending Services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use api::ip::Family;
use api::pool::Pool;
use api::view::service::{CLASS_BGP, CLASS_L2};

use super::requested::{self, RequestedAddresses};
use super::{messages, nodes};
use crate::controller::View;
use crate::objects::load_balancer::{Claim, Owner, Request, annotations};

/// The result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AllocationResult {
    /// Assigned.
    Assigned(Allocation),
    /// Not assigned.
    Refused(Refusal),
}

/// Assigned addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Allocation {
    /// The addresses, in the order of the Service's families.
    pub(super) addresses: Vec<IpAddr>,
    /// The owner entry of the claims.
    pub(super) owner: Owner,
    /// Their origin: `pool office`.
    pub(super) from: String,
    /// Requests that were not satisfied: reason and message.
    pub(super) remarks: Vec<(&'static str, String)>,
}

/// Why no address was assigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// The reason, in CamelCase.
    pub(super) reason: &'static str,
    /// The message.
    pub(super) message: String,
    /// When to retry, if no watched object can change the result.
    pub(super) requeue_after: Option<Duration>,
}

impl Refusal {
    /// A refusal that only a change of an object can resolve.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), requeue_after: None }
    }
}

/// A Service and its context.
pub(super) struct AllocationContext<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) request: &'a Request,
    /// All pools, in order of use.
    pub(super) pools: &'a [&'a Pool],
    /// The owner entry of its claims.
    pub(super) owner: Owner,
    /// Addresses that it has claimed.
    pub(super) held: BTreeSet<IpAddr>,
}

/// Selects addresses.
pub(super) fn allocate_addresses(context: &AllocationContext<'_>) -> AllocationResult {
    match try_allocate(context) {
        Ok(allocation) => AllocationResult::Assigned(allocation),
        Err(refusal) => AllocationResult::Refused(refusal),
    }
}

fn try_allocate(context: &AllocationContext<'_>) -> Result<Allocation, Refusal> {
    let requested = requested::read(context.request)?;
    let internal = annotations::internal(&context.request.annotations);
    if context.request.is_proxied() || nodes::is_enough(context, internal) {
        return nodes::allocate_addresses(context, &requested);
    }
    context.out_of_pools(&requested, internal)
}

impl<'a> AllocationContext<'a> {
    fn out_of_pools(&self, requested: &RequestedAddresses, internal: Option<&str>) -> Result<Allocation, Refusal> {
        let allowed = self.allowed(internal)?;
        let named = annotations::pool(&self.request.annotations).is_some();
        let open: Vec<&Pool> = allowed.iter().copied().filter(|pool| named || pool.auto_assign).collect();
        let nodes = nodes::own_addresses(self.view);
        let (mut addresses, mut remarks, mut lacking) = (BTreeMap::new(), requested.remarks.clone(), None);
        for family in requested.families.iter().copied() {
            let wanted = requested.address(family);
            let exact = wanted.map(|address| self.exactly(address, &allowed, &nodes));
            let found = match exact {
                Some(Ok(address)) => Ok(address),
                Some(Err(refusal)) if requested.is_binding => return Err(refusal),
                not_exact => {
                    if let Some(Err(refusal)) = not_exact {
                        let remark = format!("{}; it gets another address", refusal.message);
                        remarks.push(("LoadBalancerIPIgnored", remark));
                    }
                    self.any(family, &allowed, &open, &nodes)
                }
            };
            match found {
                Ok(address) => {
                    addresses.insert(family, address);
                }
                Err(refusal) if requested.needs_all => return Err(refusal),
                Err(refusal) => lacking = Some(refusal),
            }
        }
        if addresses.is_empty() {
            return Err(lacking.unwrap_or_else(|| messages::no_pool_at_all(self)));
        }
        if let Some(refusal) = lacking {
            remarks.push(("SecondFamilyMissing", refusal.message));
        }
        let addresses: Vec<IpAddr> =
            requested.families.iter().filter_map(|family| addresses.get(family).copied()).collect();
        let from = messages::origin(&addresses, &allowed);
        Ok(Allocation { addresses, owner: self.owner.clone(), from, remarks })
    }

    /// The pools that may serve the Service.
    fn allowed(&self, internal: Option<&str>) -> Result<Vec<&'a Pool>, Refusal> {
        let (namespace, name) = self.request.names();
        let serves = |pool: &Pool| pool.serves(namespace, name, &self.request.entry.facts);
        let announced = |pool: &Pool| match self.request.class.as_deref() {
            Some(CLASS_L2) => pool.l2,
            Some(CLASS_BGP) => pool.bgp,
            _ => true,
        };
        if let Some((key, wanted)) = annotations::pool(&self.request.annotations) {
            let pool = self.pools.iter().copied().find(|pool| pool.name == wanted);
            let pool = pool.ok_or_else(|| messages::unknown_pool(self, key, wanted))?;
            if pool.internal != internal.is_some() || !serves(pool) || !announced(pool) {
                return Err(messages::closed_pool(self, key, pool, internal));
            }
            return Ok(vec![pool]);
        }
        let fits = |pool: &&Pool| pool.internal == internal.is_some() && serves(pool) && announced(pool);
        let allowed: Vec<&Pool> = self.pools.iter().copied().filter(fits).collect();
        match (allowed.is_empty(), internal) {
            (false, _) => Ok(allowed),
            (true, Some(annotation)) => Err(messages::no_internal_pool(self, annotation)),
            (true, None) => Err(messages::no_pool_at_all(self)),
        }
    }

    /// The requested address, or why it is not available.
    fn exactly(&self, address: IpAddr, allowed: &[&Pool], nodes: &BTreeSet<IpAddr>) -> Result<IpAddr, Refusal> {
        if !allowed.iter().any(|pool| pool.contains(address)) {
            return Err(Refusal::new("AddressRefused", messages::outside(address, allowed)));
        }
        if let Some(why) = self.obstacle(address, nodes) {
            return Err(Refusal::new("AddressRefused", format!("{address} {why}")));
        }
        Ok(address)
    }

    /// Any address: the current one, a shareable one, or a free one.
    fn any(
        &self,
        family: Family,
        allowed: &[&Pool],
        open: &[&Pool],
        nodes: &BTreeSet<IpAddr>,
    ) -> Result<IpAddr, Refusal> {
        let is_kept = |address: &&IpAddr| {
            Family::of(**address) == family
                && allowed.iter().any(|pool| pool.contains(**address))
                && self.obstacle(**address, nodes).is_none()
        };
        if let Some(kept) = self.held.iter().find(is_kept) {
            return Ok(*kept);
        }
        if let Some(shared) = self.shared(family, open, nodes) {
            return Ok(shared);
        }
        let is_free = |address: &IpAddr| {
            self.view.cache.load_balancers.claim(*address).is_none() && self.obstacle(*address, nodes).is_none()
        };
        let (mut place, mut first) = (self.place(), None);
        for pool in open {
            let free: Vec<IpAddr> = pool.addresses(family).filter(is_free).take(place + 1).collect();
            if let Some(address) = free.get(place) {
                return Ok(*address);
            }
            first = first.or(free.first().copied());
            place -= free.len();
        }
        first.ok_or_else(|| messages::exhausted(self, family, allowed, open))
    }

    /// An address that it may share.
    fn shared(&self, family: Family, open: &[&Pool], nodes: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        if self.owner.sharing.is_empty() {
            return None;
        }
        let fits = |address: &IpAddr| {
            Family::of(*address) == family
                && open.iter().any(|pool| pool.contains(*address))
                && self.obstacle(*address, nodes).is_none()
        };
        self.view.cache.load_balancers.claims().map(|claim| claim.address).filter(fits).min()
    }

    /// Why an address is not available, as a predicate of the address.
    fn obstacle(&self, address: IpAddr, nodes: &BTreeSet<IpAddr>) -> Option<String> {
        let cache = self.view.cache;
        if nodes.contains(&address) {
            return Some("is the own address of a Node".to_owned());
        }
        if let Some(service) = cache.services.at(address) {
            return Some(format!("is a cluster IP of Service {service}"));
        }
        cache.load_balancers.claim(address)?.refusal(&self.owner)
    }

    /// Its position among the Services that are pending for the same reason. With a sharing key, the position of the first Service it can share with.
    fn place(&self) -> usize {
        let line = |one: &Request| (one.is_pending(), one.refusal.is_some());
        let turn = |one: &Request| (one.created.clone(), Box::<str>::from(one.key()));
        // A Service with a valid address is not pending.
        let lacks = |one: &Request| !one.shown.iter().any(|ip| self.pools.iter().any(|pool| pool.contains(*ip)));
        let mine = line(self.request);
        let in_line = || {
            let all = self.view.cache.load_balancers.requests();
            all.filter(move |one| one.is_balancer && !one.is_proxied() && line(one) == mine && lacks(one))
        };
        let shares = |one: &Request| {
            let claim = Claim { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), modified: 0, owners: vec![one.owner()] };
            claim.refusal(&self.owner).is_none()
        };
        let mut first = turn(self.request);
        if !self.owner.sharing.is_empty() {
            first =
                in_line().filter(|one| shares(one)).map(|one| turn(one)).chain([first.clone()]).min().unwrap_or(first);
        }
        in_line().filter(|one| turn(one) < first).count()
    }
}
