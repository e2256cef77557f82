//! Endpoints that may be cluster IPs. Traffic to one would be sent from Service to Service, perhaps for ever, so such
//! an endpoint is left out for as long as a Service has its address.
//!
//! When a cluster IP comes or goes, the Services that have it as an endpoint must be planned anew. To find them, only
//! endpoints near cluster IPs are noted: Services and Pods have networks of their own, so that is hardly ever any.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoints::Held;

/// A stretch of addresses: large enough that a cluster's Services lie in few, small enough that its Pods lie elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stretch {
    V4(u32),
    V6(u128),
}

impl Stretch {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::V4(v4.to_bits() >> 20),
            IpAddr::V6(v6) => Self::V6(v6.to_bits() >> 64),
        }
    }
}

/// Endpoints near cluster IPs, and the Services that have them: as often as their slices name them.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    stretches: HashSet<Stretch>,
    services: HashMap<IpAddr, Vec<Arc<str>>>,
}

impl Suspects {
    /// Notes the endpoints of a slice.
    pub(crate) fn add(&mut self, service: &Arc<str>, slice: &Held) {
        for ip in slice.endpoints.iter().map(|endpoint| endpoint.ip) {
            if self.stretches.contains(&Stretch::of(ip)) {
                self.services.entry(ip).or_default().push(Arc::clone(service));
            }
        }
    }

    /// Forgets the endpoints of a slice.
    pub(crate) fn remove(&mut self, service: &Arc<str>, slice: &Held) {
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

    /// Learns of a cluster IP. Where there was none near it before, all slices are looked through, once.
    pub(crate) fn learn<'a>(&mut self, ip: IpAddr, slices: impl Iterator<Item = (&'a Arc<str>, &'a Held)>) {
        let stretch = Stretch::of(ip);
        if !self.stretches.insert(stretch) {
            return;
        }
        for (service, slice) in slices {
            for ip in slice.endpoints.iter().map(|endpoint| endpoint.ip).filter(|ip| Stretch::of(*ip) == stretch) {
                self.services.entry(ip).or_default().push(Arc::clone(service));
            }
        }
    }

    /// The Services that have this cluster IP as an endpoint.
    pub(crate) fn of(&self, ip: IpAddr) -> &[Arc<str>] {
        self.services.get(&ip).map_or(&[], Vec::as_slice)
    }
}
