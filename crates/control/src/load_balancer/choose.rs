//! Which addresses a Service gets.
//!
//! In: what it asks for, the pools, who has what. Out: its addresses, or why there are none, in a sentence that ends with what to do. Pure,
//! and the same for the same world: an address that is still right is kept, whatever else would be possible.
//!
//! Many Services may wait at once, and what one of them takes shows to the others only after it is written. So each takes the free address
//! of its own place in the line of those who wait: the first the first, the second the second.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use api::ip::Family;
use api::pool::Pool;
use api::view::service::{CLASS_BGP, CLASS_L2};

use super::asked::{self, Asked};
use super::claim::{Claim, Owner};
use super::request::Request;
use super::{annotations, nodes, say};
use crate::controller::View;

/// What was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// These addresses.
    Given(Given),
    /// None.
    Refused(Refusal),
}

/// Addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Given {
    /// The addresses, in the order of the Service's families.
    pub(super) addresses: Vec<IpAddr>,
    /// As whom they are claimed.
    pub(super) owner: Owner,
    /// Where they are from: `pool office`.
    pub(super) from: String,
    /// What could not be had, and why: a reason in one word, and a sentence.
    pub(super) remarks: Vec<(&'static str, String)>,
}

/// Why there are none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// In one word.
    pub(super) reason: &'static str,
    /// In a sentence.
    pub(super) message: String,
    /// When to look again, if nothing that we hear of can change it.
    pub(super) again: Option<Duration>,
}

impl Refusal {
    /// Something that only a change of an object can mend.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: None }
    }
}

/// A Service and what is around it.
pub(super) struct Around<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) request: &'a Request,
    /// All pools, in the order in which they are used.
    pub(super) pools: &'a [&'a Pool],
    /// As whom it claims.
    pub(super) me: Owner,
    /// What it has already.
    pub(super) held: BTreeSet<IpAddr>,
}

/// Decides.
pub(super) fn choose(around: &Around<'_>) -> Choice {
    match try_choose(around) {
        Ok(given) => Choice::Given(given),
        Err(refusal) => Choice::Refused(refusal),
    }
}

fn try_choose(around: &Around<'_>) -> Result<Given, Refusal> {
    let asked = asked::read(around.request)?;
    let internal = annotations::internal(&around.request.annotations);
    if around.request.is_proxied() || nodes::is_enough(around, internal) {
        return nodes::choose(around, &asked);
    }
    around.out_of_pools(&asked, internal)
}

impl<'a> Around<'a> {
    fn out_of_pools(&self, asked: &Asked, internal: Option<&str>) -> Result<Given, Refusal> {
        let allowed = self.allowed(internal)?;
        let named = annotations::pool(&self.request.annotations).is_some();
        let open: Vec<&Pool> = allowed.iter().copied().filter(|pool| named || pool.auto_assign).collect();
        let nodes = nodes::own_addresses(self.view);
        let (mut addresses, mut remarks, mut lacking) = (BTreeMap::new(), asked.remarks.clone(), None);
        for family in asked.families.iter().copied() {
            let wanted = asked.address(family);
            let exact = wanted.map(|address| self.exactly(address, &allowed, &nodes));
            let found = match exact {
                Some(Ok(address)) => Ok(address),
                Some(Err(why)) if asked.is_binding => return Err(Refusal::new("AddressRefused", why)),
                not_exact => {
                    if let Some(Err(why)) = not_exact {
                        remarks.push(("LoadBalancerIPIgnored", format!("{why}; it gets another address")));
                    }
                    self.any(family, &allowed, &open, &nodes)
                }
            };
            match found {
                Ok(address) => {
                    addresses.insert(family, address);
                }
                Err(refusal) if asked.needs_all => return Err(refusal),
                Err(refusal) => lacking = Some(refusal),
            }
        }
        if addresses.is_empty() {
            return Err(lacking.unwrap_or_else(|| say::no_pool_at_all(self)));
        }
        if let Some(refusal) = lacking {
            remarks.push(("SecondFamilyMissing", refusal.message));
        }
        let addresses: Vec<IpAddr> =
            asked.families.iter().filter_map(|family| addresses.get(family).copied()).collect();
        let from = say::origin(&addresses, &allowed);
        Ok(Given { addresses, owner: self.me.clone(), from, remarks })
    }

    /// The pools whose addresses the Service may have.
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
            let pool = pool.ok_or_else(|| say::unknown_pool(self, key, wanted))?;
            if pool.internal != internal.is_some() || !serves(pool) || !announced(pool) {
                return Err(say::closed_pool(self, key, pool, internal));
            }
            return Ok(vec![pool]);
        }
        let fits = |pool: &&Pool| pool.internal == internal.is_some() && serves(pool) && announced(pool);
        let allowed: Vec<&Pool> = self.pools.iter().copied().filter(fits).collect();
        match (allowed.is_empty(), internal) {
            (false, _) => Ok(allowed),
            (true, Some(annotation)) => Err(say::no_internal_pool(self, annotation)),
            (true, None) => Err(say::no_pool_at_all(self)),
        }
    }

    /// An address that was asked for; why not, otherwise.
    fn exactly(&self, address: IpAddr, allowed: &[&Pool], nodes: &BTreeSet<IpAddr>) -> Result<IpAddr, String> {
        if !allowed.iter().any(|pool| pool.contains(address)) {
            return Err(say::outside(address, allowed));
        }
        if let Some(why) = self.obstacle(address, nodes) {
            return Err(format!("{address} {why}"));
        }
        Ok(address)
    }

    /// Whatever address there is: the one it has, one it may share, a free one.
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
            self.view.world.load_balancers.claim(*address).is_none() && self.obstacle(*address, nodes).is_none()
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
        first.ok_or_else(|| say::exhausted(self, family, allowed, open))
    }

    /// An address of others that it may share.
    fn shared(&self, family: Family, open: &[&Pool], nodes: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        if self.me.sharing.is_empty() {
            return None;
        }
        let fits = |address: &IpAddr| {
            Family::of(*address) == family
                && open.iter().any(|pool| pool.contains(*address))
                && self.obstacle(*address, nodes).is_none()
        };
        self.view.world.load_balancers.claims().map(|claim| claim.address).filter(fits).min()
    }

    /// Why it cannot have an address, in words that follow the address.
    fn obstacle(&self, address: IpAddr, nodes: &BTreeSet<IpAddr>) -> Option<String> {
        let world = self.view.world;
        if nodes.contains(&address) {
            return Some("is the own address of a Node".to_owned());
        }
        if let Some(service) = world.services.at(address) {
            return Some(format!("is a cluster IP of Service {service}"));
        }
        world.load_balancers.claim(address)?.refusal(&self.me)
    }

    /// Its place among those who wait for the same reason. Who wants to share goes to the place of the first it can share with.
    fn place(&self) -> usize {
        let line = |one: &Request| (one.is_pending(), one.told.is_some());
        let turn = |one: &Request| (one.created.clone(), Box::<str>::from(one.key()));
        // Who shows an address that is still in a pool does not wait, whatever line it stands in.
        let lacks = |one: &Request| !one.shown.iter().any(|ip| self.pools.iter().any(|pool| pool.contains(*ip)));
        let mine = line(self.request);
        let in_line = || {
            let all = self.view.world.load_balancers.requests();
            all.filter(move |one| one.is_balancer && !one.is_proxied() && line(one) == mine && lacks(one))
        };
        let shares = |one: &Request| {
            let claim = Claim { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), modified: 0, owners: vec![one.owner()] };
            claim.refusal(&self.me).is_none()
        };
        let mut first = turn(self.request);
        if !self.me.sharing.is_empty() {
            first =
                in_line().filter(|one| shares(one)).map(|one| turn(one)).chain([first.clone()]).min().unwrap_or(first);
        }
        in_line().filter(|one| turn(one) < first).count()
    }
}
