//! Concurrent resources per client: connections, or queries in flight to upstreams.
//!
//! In: a client. Out: a [`Slot`], counted until it is dropped; `None` if the client, its network or the total is at its
//! limit. Only clients that hold a slot are stored, so memory is bounded by the number of slots.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{NETWORK_SHARE, network_of};

/// Counted entity: an address, or the /64 of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Holder {
    Address(IpAddr),
    Network(u64),
}

/// Concurrent resources per client.
#[derive(Debug)]
pub(in crate::serve) struct Slots {
    /// Limits in total and per client.
    all: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    each: HashMap<Holder, usize>,
}

/// Slot held by a client.
#[derive(Debug)]
pub(in crate::serve) struct Slot {
    slots: Arc<Slots>,
    client: IpAddr,
}

impl Slots {
    pub(in crate::serve) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, taken: Mutex::default() })
    }

    pub(in crate::serve) fn enter(self: &Arc<Self>, client: IpAddr) -> Option<Slot> {
        let mut taken = self.taken.lock();
        let most = |holder: &Holder| match holder {
            Holder::Address(_) => self.each,
            Holder::Network(_) => self.each.saturating_mul(NETWORK_SHARE as usize),
        };
        let is_full = |holder: &Holder| taken.each.get(holder).copied().unwrap_or(0) >= most(holder);
        if taken.all >= self.all || holders(client).any(|holder| is_full(&holder)) {
            return None;
        }
        taken.all += 1;
        for holder in holders(client) {
            *taken.each.entry(holder).or_default() += 1;
        }
        Some(Slot { slots: self.clone(), client })
    }
}

fn holders(client: IpAddr) -> impl Iterator<Item = Holder> {
    std::iter::once(Holder::Address(client)).chain(network_of(client).map(Holder::Network))
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        taken.all -= 1;
        for holder in holders(self.client) {
            match taken.each.get_mut(&holder) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    taken.each.remove(&holder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_client_and_all_together_are_limited_until_slots_are_dropped() {
        let slots = Slots::new(5, 2);
        let (first, second) = (address("10.0.0.1"), address("10.0.0.2"));
        let mut held: Vec<Slot> = (0..2).map(|_| slots.enter(first).expect("a slot")).collect();
        assert!(slots.enter(first).is_none(), "one too many of the first");
        held.extend((0..2).map(|_| slots.enter(second).expect("the second is unaffected")));
        held.push(slots.enter(address("10.0.0.3")).expect("the fifth"));
        assert!(slots.enter(address("10.0.0.4")).is_none(), "one too many of all");
        held.remove(0);
        assert!(slots.enter(first).is_some());
        held.clear();
        assert!(slots.taken.lock().each.is_empty(), "nobody is remembered");
        assert_eq!(slots.taken.lock().all, 0);
    }

    #[test]
    fn an_ipv6_network_has_its_own_limit() {
        let slots = Slots::new(1000, 2);
        let inside = (0..100).map(|host| address(&format!("2001:db8::{host:x}")));
        let held: Vec<Slot> = inside.filter_map(|client| slots.enter(client)).collect();
        assert_eq!(held.len(), 2 * NETWORK_SHARE as usize);
        assert!(slots.enter(address("2001:db8:0:1::1")).is_some(), "another network");
        assert!(slots.enter(address("192.0.2.1")).is_some(), "IPv4 has none");
    }
}
