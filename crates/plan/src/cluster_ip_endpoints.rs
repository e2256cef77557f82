//! Endpoints that may be cluster IPs. Traffic to one would go from Service to Service, possibly in a loop, so it is
//! ignored while a Service has its address.
//!
//! When a cluster IP appears or disappears, the Services with that endpoint must be replanned. To find them, only
//! endpoints in the same prefix as a cluster IP are indexed: Services and Pods have separate networks, so there are
//! hardly any.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoints::SliceRecord;

/// An address prefix: large enough for a cluster's Services to lie in few, small enough to exclude its Pods.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Prefix {
    V4(u32),
    V6(u128),
}

impl Prefix {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::V4(v4.to_bits() >> 20),
            IpAddr::V6(v6) => Self::V6(v6.to_bits() >> 64),
        }
    }
}

/// Endpoints near cluster IPs, and the Services that have them, once per slice entry.
#[derive(Debug, Default)]
pub(crate) struct ClusterIpEndpoints {
    prefixes: HashSet<Prefix>,
    services: HashMap<IpAddr, Vec<Arc<str>>>,
}

impl ClusterIpEndpoints {
    /// Adds the endpoints of a slice.
    pub(crate) fn add(&mut self, service: &Arc<str>, slice: &SliceRecord) {
        for ip in slice.endpoints.iter().map(|endpoint| endpoint.ip) {
            if self.prefixes.contains(&Prefix::of(ip)) {
                self.services.entry(ip).or_default().push(Arc::clone(service));
            }
        }
    }

    /// Removes the endpoints of a slice.
    pub(crate) fn remove(&mut self, service: &Arc<str>, slice: &SliceRecord) {
        for ip in slice.endpoints.iter().map(|endpoint| endpoint.ip) {
            let Some(services) = self.services.get_mut(&ip) else { continue };
            if let Some(place) = services.iter().position(|one| one == service) {
                services.swap_remove(place);
            }
            if services.is_empty() {
                self.services.remove(&ip);
            }
        }
    }

    /// Adds a cluster IP. If it is the first of its prefix, all slices are scanned.
    pub(crate) fn add_cluster_ip<'a>(
        &mut self,
        ip: IpAddr,
        slices: impl Iterator<Item = (&'a Arc<str>, &'a SliceRecord)>,
    ) {
        let prefix = Prefix::of(ip);
        if !self.prefixes.insert(prefix) {
            return;
        }
        for (service, slice) in slices {
            for ip in slice.endpoints.iter().map(|endpoint| endpoint.ip).filter(|ip| Prefix::of(*ip) == prefix) {
                self.services.entry(ip).or_default().push(Arc::clone(service));
            }
        }
    }

    /// Services with this cluster IP as an endpoint.
    pub(crate) fn of(&self, ip: IpAddr) -> &[Arc<str>] {
        self.services.get(&ip).map_or(&[], Vec::as_slice)
    }
}
