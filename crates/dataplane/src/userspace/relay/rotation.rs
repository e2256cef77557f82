//! The endpoints of one scope and the order in which connections select them.
//!
//! In: slots with endpoints, the client, endpoints that were tried, open connections. Out: the endpoint of a connection.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use plan::balancing::client_slot;

/// How a slot is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Selection {
    /// Each in turn.
    #[default]
    Turn,
    /// The one whose endpoint has the fewest connections.
    LeastConnections,
    /// By the hash of the client's address; the next ones if it fails.
    Hash,
}

/// Slots with endpoints, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    order: Vec<SocketAddr>,
    /// The slots as they were set, to recognize changes.
    given: Vec<SocketAddr>,
    selection: Selection,
    position: usize,
}

impl Rotation {
    /// Replaces the slots. The order is random, so that the relays of many nodes do not start with the same endpoint, unless
    /// a hash selects the slot.
    pub(super) fn set(&mut self, mut slots: Vec<SocketAddr>, selection: Selection) {
        if selection != Selection::Hash {
            slots.sort_unstable();
        }
        if self.given != slots || self.selection != selection {
            self.given.clone_from(&slots);
            if selection != Selection::Hash {
                fastrand::shuffle(&mut slots);
            }
            (self.order, self.selection, self.position) = (slots, selection, 0);
        }
    }

    /// Whether an endpoint has a slot.
    pub(super) fn contains(&self, endpoint: &SocketAddr) -> bool {
        self.order.contains(endpoint)
    }

    /// The endpoint of a new connection, one that has not been tried.
    pub(super) fn next(
        &mut self,
        client: IpAddr,
        tried: &[SocketAddr],
        open: &HashMap<SocketAddr, usize>,
    ) -> Option<SocketAddr> {
        let count = self.order.len();
        let first = match self.selection {
            Selection::Hash => client_slot(client, u32::try_from(count).ok()?) as usize,
            Selection::Turn | Selection::LeastConnections => self.position,
        };
        let mut slots =
            (0..count).map(|step| (first + step) % count).filter(|slot| !tried.contains(&self.order[*slot]));
        let slot = match self.selection {
            Selection::Turn | Selection::Hash => slots.next(),
            Selection::LeastConnections => {
                slots.min_by_key(|slot| open.get(&self.order[*slot]).copied().unwrap_or_default())
            }
        }?;
        self.position = (slot + 1) % count;
        Some(self.order[slot])
    }

    /// The endpoints, sorted.
    #[cfg(test)]
    pub(super) fn endpoints(&self) -> Vec<SocketAddr> {
        let mut all = self.order.clone();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    #[test]
    fn endpoints_with_several_slots_get_as_many_turns() {
        let mut rotation = Rotation::default();
        rotation.set(vec![at(1), at(1), at(1), at(2)], Selection::Turn);
        let mut turns: Vec<_> =
            (0..8).filter_map(|_| rotation.next([192, 0, 2, 1].into(), &[], &HashMap::new())).collect();
        turns.sort_unstable();
        assert_eq!(turns, [at(1), at(1), at(1), at(1), at(1), at(1), at(2), at(2)]);
    }

    #[test]
    fn a_hash_selects_the_same_slot_on_every_node_and_another_endpoint_if_that_fails() {
        let slots: Vec<SocketAddr> = (0..60).map(|slot| at(slot % 3 + 1)).collect();
        let next = |client: u8, tried: &[SocketAddr]| {
            let mut rotation = Rotation::default();
            rotation.set(slots.clone(), Selection::Hash);
            rotation.next([192, 0, 2, client].into(), tried, &HashMap::new()).expect("an endpoint")
        };
        let all: std::collections::BTreeSet<_> = (1..=40).map(|client| next(client, &[])).collect();
        assert_eq!(all.len(), 3, "clients are spread");
        for client in 1..=40 {
            let first = next(client, &[]);
            assert_eq!(next(client, &[]), first);
            assert_ne!(next(client, &[first]), first);
        }
    }
}
