//! The endpoints of a port and who gets the next request: the less busy of two, in turn where they are equal.
//!
//! In: addresses. Out: an endpoint, counted as busy until the guard is dropped. Endpoints that stay keep their connections when others
//! come and go; those that go take theirs with them once the last request is answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::endpoints::Found;
use crate::upstream::Spare;

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    busy: AtomicUsize,
    /// Connections that wait for requests, for each worker.
    pub(crate) spare: Vec<Mutex<Spare>>,
}

/// The endpoints of a port.
#[derive(Default)]
pub(crate) struct Backends {
    all: Vec<Arc<Endpoint>>,
    next: AtomicUsize,
    /// How many there are that are not for us.
    pub(crate) elsewhere: usize,
}

/// An endpoint that has one thing more to do while this lives.
pub(crate) struct Busy(Arc<Endpoint>);

impl Backends {
    /// These endpoints; those that are known stay who they are.
    pub(crate) fn renewed(&self, found: &Found, workers: usize) -> Self {
        let known = |address: &SocketAddr| self.all.iter().find(|endpoint| endpoint.address == *address).cloned();
        let fresh = |address: &SocketAddr| {
            Arc::new(Endpoint {
                address: *address,
                busy: AtomicUsize::new(0),
                spare: (0..workers).map(|_| Mutex::default()).collect(),
            })
        };
        let all = found.usable.iter().map(|address| known(address).unwrap_or_else(|| fresh(address))).collect();
        Self { all, next: AtomicUsize::new(self.next.load(Relaxed)), elsewhere: found.elsewhere }
    }

    /// The endpoint for the next request, none of those that were tried for it.
    pub(crate) fn choose(&self, tried: &[SocketAddr]) -> Option<Busy> {
        let count = self.all.len();
        if count == 0 {
            return None;
        }
        let start = self.next.fetch_add(1, Relaxed) % count;
        let chosen = if tried.is_empty() {
            let (first, second) = (&self.all[start], &self.all[(start + count / 2) % count]);
            if second.busy.load(Relaxed) < first.busy.load(Relaxed) { second } else { first }
        } else {
            let turn = self.all[start..].iter().chain(&self.all[..start]);
            turn.filter(|one| !tried.contains(&one.address)).min_by_key(|one| one.busy.load(Relaxed))?
        };
        chosen.busy.fetch_add(1, Relaxed);
        Some(Busy(Arc::clone(chosen)))
    }

    pub(crate) fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }
}

impl std::ops::Deref for Busy {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(count: u8) -> Backends {
        let usable = (1..=count).map(|last| SocketAddr::from(([10, 0, 0, last], 80))).collect();
        Backends::default().renewed(&Found { usable, elsewhere: 0 }, 1)
    }

    fn last(busy: &Busy) -> u8 {
        match busy.address.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => 0,
        }
    }

    #[test]
    fn equals_take_turns() {
        let three = backends(3);
        let order: Vec<u8> = (0..6).filter_map(|_| three.choose(&[]).as_ref().map(last)).collect();
        assert_eq!(order, [1, 2, 3, 1, 2, 3]);
        assert!(backends(0).choose(&[]).is_none());
    }

    #[test]
    fn the_busy_are_spared() {
        let two = backends(2);
        let first = two.choose(&[]).expect("one");
        let others: Vec<u8> = (0..4).filter_map(|_| two.choose(&[]).as_ref().map(last)).collect();
        assert_eq!((last(&first), others), (1, vec![2, 2, 2, 2]));
        drop(first);
        let again: Vec<u8> = (0..2).filter_map(|_| two.choose(&[]).as_ref().map(last)).collect();
        assert!(again.contains(&1) && again.contains(&2), "{again:?}");
    }

    #[test]
    fn who_was_tried_is_not_tried_again() {
        let two = backends(2);
        let first = two.choose(&[]).expect("one").address;
        let second = two.choose(&[first]).expect("another").address;
        assert_ne!(first, second);
        assert!(two.choose(&[first, second]).is_none());
    }

    #[test]
    fn who_stays_is_the_same() {
        let two = backends(2);
        let held = two.choose(&[]).expect("one");
        let usable = [held.address, SocketAddr::from(([10, 0, 0, 9], 80))].into_iter().collect();
        let renewed = two.renewed(&Found { usable, elsewhere: 0 }, 1);
        assert!(renewed.all().iter().any(|one| Arc::ptr_eq(one, &held.0)));
        assert_eq!(renewed.all().len(), 2);
    }
}
