//! Load balancing: the less loaded of two endpoints, round robin if equal.
//!
//! In: addresses. Out: an endpoint, counted as in use until the guard is dropped. Endpoints keep their connections
//! across updates; connections of removed endpoints are closed after their last request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::endpoints::EndpointSet;
use crate::upstream::IdleConnections;

/// Endpoint.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    in_flight: AtomicUsize,
    /// Idle connections per worker.
    pub(crate) idle: Vec<Mutex<IdleConnections>>,
}

/// Endpoints of a port.
#[derive(Default)]
pub(crate) struct Backends {
    all: Vec<Arc<Endpoint>>,
    next: AtomicUsize,
    /// Number of endpoints on other nodes that are excluded.
    pub(crate) elsewhere: usize,
}

/// Counts one request or connection of an endpoint until it is dropped.
pub(crate) struct InFlight(Arc<Endpoint>);

impl Backends {
    /// Replaces the addresses; known endpoints are kept.
    pub(crate) fn updated(&self, found: &EndpointSet, workers: usize) -> Self {
        let known = |address: &SocketAddr| self.all.iter().find(|endpoint| endpoint.address == *address).cloned();
        let fresh = |address: &SocketAddr| {
            Arc::new(Endpoint {
                address: *address,
                in_flight: AtomicUsize::new(0),
                idle: (0..workers).map(|_| Mutex::default()).collect(),
            })
        };
        let all = found.usable.iter().map(|address| known(address).unwrap_or_else(|| fresh(address))).collect();
        Self { all, next: AtomicUsize::new(self.next.load(Relaxed)), elsewhere: found.elsewhere }
    }

    /// Selects an endpoint that is not in `tried`.
    pub(crate) fn choose(&self, tried: &[SocketAddr]) -> Option<InFlight> {
        let count = self.all.len();
        if count == 0 {
            return None;
        }
        let start = self.next.fetch_add(1, Relaxed) % count;
        let chosen = if tried.is_empty() {
            let (first, second) = (&self.all[start], &self.all[(start + count / 2) % count]);
            if second.in_flight.load(Relaxed) < first.in_flight.load(Relaxed) { second } else { first }
        } else {
            let turn = self.all[start..].iter().chain(&self.all[..start]);
            turn.filter(|one| !tried.contains(&one.address)).min_by_key(|one| one.in_flight.load(Relaxed))?
        };
        chosen.in_flight.fetch_add(1, Relaxed);
        Some(InFlight(Arc::clone(chosen)))
    }

    pub(crate) fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }
}

impl std::ops::Deref for InFlight {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(count: u8) -> Backends {
        let usable = (1..=count).map(|last| SocketAddr::from(([10, 0, 0, last], 80))).collect();
        Backends::default().updated(&EndpointSet { usable, elsewhere: 0 }, 1)
    }

    fn last(in_flight: &InFlight) -> u8 {
        match in_flight.address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        }
    }

    #[test]
    fn equal_endpoints_are_used_round_robin() {
        let three = backends(3);
        let order: Vec<u8> = (0..6).filter_map(|_| three.choose(&[]).as_ref().map(last)).collect();
        assert_eq!(order, [1, 2, 3, 1, 2, 3]);
        assert!(backends(0).choose(&[]).is_none());
    }

    #[test]
    fn the_less_loaded_endpoint_is_selected() {
        let two = backends(2);
        let first = two.choose(&[]).expect("one");
        let others: Vec<u8> = (0..4).filter_map(|_| two.choose(&[]).as_ref().map(last)).collect();
        assert_eq!((last(&first), others), (1, vec![2, 2, 2, 2]));
        drop(first);
        let again: Vec<u8> = (0..2).filter_map(|_| two.choose(&[]).as_ref().map(last)).collect();
        assert!(again.contains(&1) && again.contains(&2), "{again:?}");
    }

    #[test]
    fn tried_endpoints_are_excluded() {
        let two = backends(2);
        let first = two.choose(&[]).expect("one").address;
        let second = two.choose(&[first]).expect("another").address;
        assert_ne!(first, second);
        assert!(two.choose(&[first, second]).is_none());
    }

    #[test]
    fn known_endpoints_are_kept() {
        let two = backends(2);
        let held = two.choose(&[]).expect("one");
        let usable = [held.address, SocketAddr::from(([10, 0, 0, 9], 80))].into_iter().collect();
        let updated = two.updated(&EndpointSet { usable, elsewhere: 0 }, 1);
        assert!(updated.all().iter().any(|one| Arc::ptr_eq(one, &held.0)));
        assert_eq!(updated.all().len(), 2);
    }
}
