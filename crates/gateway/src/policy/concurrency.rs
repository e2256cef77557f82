//! Requests in progress by client.
//!
//! In: clients. Out: a guard for each request, which counts until it is dropped. A client has an entry only while it has
//! requests, so their number is bounded by that of connections and streams.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maps of a zone, each with a lock.
const SHARDS: usize = 16;

/// Requests in progress.
#[derive(Default)]
pub(super) struct Counts {
    hasher: RandomState,
    shards: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
}

/// A request in progress.
pub(crate) struct InUse {
    counts: Arc<Counts>,
    client: IpAddr,
}

impl Counts {
    /// Counts a request; none if the client has as many as it may.
    pub(super) fn enter(self: &Arc<Self>, client: IpAddr, limit: u32) -> Option<InUse> {
        let mut counts = self.shard(client).lock();
        let count = counts.get(&client).copied().unwrap_or_default();
        (count < limit).then_some(())?;
        counts.insert(client, count + 1);
        drop(counts);
        Some(InUse { counts: Arc::clone(self), client })
    }

    fn shard(&self, client: IpAddr) -> &Mutex<HashMap<IpAddr, u32>> {
        // Less than 16, the number of shards.
        &self.shards[usize::try_from(self.hasher.hash_one(client) >> 60).unwrap_or_default() % SHARDS]
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.counts.shard(self.client).lock().entry(self.client) {
            match entry.get() {
                2.. => *entry.get_mut() -= 1,
                _ => drop(entry.remove()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_until_their_guards_are_dropped() {
        let counts = Arc::new(Counts::default());
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().expect("an address"));
        let first = counts.enter(one, 2).expect("room");
        let second = counts.enter(one, 2).expect("room");
        assert!(counts.enter(one, 2).is_none());
        assert!(counts.enter(two, 2).is_some(), "another client");
        drop(first);
        assert!(counts.enter(one, 2).is_some());
        drop(second);
        assert!(counts.shards.iter().all(|shard| shard.lock().is_empty()));
        assert!(counts.enter(one, 0).is_none());
    }
}
