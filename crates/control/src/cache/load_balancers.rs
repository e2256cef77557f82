//! Services of type LoadBalancer, IPPools, and claims on addresses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::object;
use api::pool::Pool;
use store::Entry;

use crate::objects::load_balancer::{Claim, Request};

/// The cached state of load balancers.
#[derive(Debug, Default)]
pub struct LoadBalancers {
    requests: BTreeMap<Box<str>, Arc<Request>>,
    pools: BTreeMap<Box<str>, Arc<Pool>>,
    claims: HashMap<IpAddr, Arc<Claim>>,
    /// The addresses of each Service, by its key.
    by_owner: HashMap<Box<str>, BTreeSet<IpAddr>>,
}

impl LoadBalancers {
    /// A Service changed.
    pub(super) fn apply_service(&mut self, entry: &Arc<Entry>, deleted: bool) {
        match Request::read(entry).filter(|_| !deleted) {
            Some(request) => self.requests.insert(entry.key.name.clone(), Arc::new(request)),
            None => self.requests.remove(&entry.key.name),
        };
    }

    /// An IPPool changed.
    pub(super) fn apply_pool(&mut self, entry: &Arc<Entry>, deleted: bool) {
        if deleted {
            self.pools.remove(&entry.key.name);
        } else {
            let pool = Pool::from_object(&object::decode_light(&entry.value));
            self.pools.insert(entry.key.name.clone(), Arc::new(pool));
        }
    }

    /// The claim on an address changed.
    pub(super) fn apply_claim(&mut self, entry: &Arc<Entry>, deleted: bool) {
        let Some(claim) = Claim::read(entry) else { return };
        if let Some(old) = self.claims.remove(&claim.address) {
            for owner in &old.owners {
                if let Some(addresses) = self.by_owner.get_mut(&owner.service) {
                    addresses.remove(&claim.address);
                    if addresses.is_empty() {
                        self.by_owner.remove(&owner.service);
                    }
                }
            }
        }
        if deleted {
            return;
        }
        for owner in &claim.owners {
            self.by_owner.entry(owner.service.clone()).or_default().insert(claim.address);
        }
        self.claims.insert(claim.address, Arc::new(claim));
    }

    /// The request of a Service.
    #[must_use]
    pub fn request(&self, key: &str) -> Option<&Arc<Request>> {
        self.requests.get(key)
    }

    /// All requests, by key.
    pub fn requests(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.requests.values()
    }

    /// The pools, by name.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    /// The pool of a name.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.pools.get(name)
    }

    /// The claim on an address.
    #[must_use]
    pub fn claim(&self, address: IpAddr) -> Option<&Arc<Claim>> {
        self.claims.get(&address)
    }

    /// All claims.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.values()
    }

    /// The claims that name a Service, by address.
    pub fn claims_of<'a>(&'a self, service: &str) -> impl Iterator<Item = &'a Arc<Claim>> {
        self.by_owner.get(service).into_iter().flatten().filter_map(|address| self.claims.get(address))
    }

    /// Whether a Service has a request or a claim.
    #[must_use]
    pub fn affected_keys(&self, service: &str) -> bool {
        self.requests.contains_key(service) || self.by_owner.contains_key(service)
    }
}
