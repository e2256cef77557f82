//! Leaky buckets by key, in bounded memory.
//!
//! In: a key, the burst, the time. Out: whether a request fits. A bucket is one number: the time at which it will be
//! empty. A table has sets of eight buckets and grows while the budget of the node allows it; then a new key takes the
//! place of the bucket of its set that will be empty first. Keys are hashed with a secret, so that clients cannot choose
//! which bucket they displace.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

/// Tables of a zone, each with a lock.
const SHARDS: usize = 16;
/// Buckets of a set.
const WAYS: usize = 8;
/// Sets of a new table: these are always available.
const FIRST_SETS: usize = 8;
/// Sets of a full table: 65 536 buckets in a zone, 1 MiB.
const MAX_SETS: usize = 512;
/// Sets that the zones of a node may have in addition to their first: 16 MiB.
const MAX_GROWN: usize = 128 * 1024;

/// A bucket.
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// Hash of its key; 0 if it is unused.
    key: u64,
    /// When it will be empty, in nanoseconds since the start.
    empty_at: u64,
}

type Set = [Bucket; WAYS];

/// Sets of all zones beyond the first.
#[derive(Clone, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

/// The buckets of a zone.
pub(super) struct Buckets {
    /// Nanoseconds in which one request leaves a bucket.
    interval: u64,
    hasher: RandomState,
    shards: [Mutex<Vec<Set>>; SHARDS],
    budget: Budget,
}

impl Budget {
    fn take(&self, sets: usize) -> bool {
        let fits = |used: usize| used.checked_add(sets).filter(|used| *used <= MAX_GROWN);
        self.0.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
}

impl Buckets {
    pub(super) fn new(interval: Duration, budget: Budget) -> Self {
        Self { interval: nanos(interval).max(1), hasher: RandomState::new(), shards: Default::default(), budget }
    }

    /// Whether a request with this key would fit.
    pub(super) fn has_room(&self, key: &impl Hash, burst: u32, now: Duration) -> bool {
        let (hash, now) = (self.hash(key), nanos(now));
        let sets = self.shard(hash).lock();
        let Some(set) = sets.get(index(hash, sets.len())) else { return true };
        let bucket = set.iter().find(|bucket| bucket.key == hash);
        bucket.is_none_or(|bucket| self.fits(bucket, burst, now))
    }

    /// Counts a request; false if it does not fit.
    pub(super) fn take(&self, key: &impl Hash, burst: u32, now: Duration) -> bool {
        let (hash, now) = (self.hash(key), nanos(now));
        let mut sets = self.shard(hash).lock();
        let Some(bucket) = self.bucket(&mut sets, hash, now) else { return true };
        if bucket.key != hash {
            *bucket = Bucket { key: hash, empty_at: now };
        }
        let fits = self.fits(bucket, burst, now);
        if fits {
            bucket.empty_at = bucket.empty_at.max(now).saturating_add(self.interval);
        }
        fits
    }

    fn fits(&self, bucket: &Bucket, burst: u32, now: u64) -> bool {
        bucket.empty_at.saturating_sub(now) <= self.interval.saturating_mul(burst.into())
    }

    /// The bucket of a key, or the one that it replaces.
    fn bucket<'a>(&self, sets: &'a mut Vec<Set>, hash: u64, now: u64) -> Option<&'a mut Bucket> {
        if sets.is_empty() {
            sets.resize(FIRST_SETS, Set::default());
        }
        while !has_place(sets.get(index(hash, sets.len()))?, hash, now) && sets.len() < MAX_SETS {
            if !self.budget.take(sets.len()) {
                break;
            }
            grow(sets);
        }
        let at = index(hash, sets.len());
        let set = sets.get_mut(at)?;
        match set.iter().position(|bucket| bucket.key == hash) {
            Some(place) => set.get_mut(place),
            None => set.iter_mut().min_by_key(|bucket| bucket.empty_at),
        }
    }

    fn hash(&self, key: &impl Hash) -> u64 {
        self.hasher.hash_one(key).max(1)
    }

    fn shard(&self, hash: u64) -> &Mutex<Vec<Set>> {
        // There are 16 shards, and this is less than 16.
        &self.shards[usize::try_from(hash >> 60).unwrap_or_default() % SHARDS]
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let grown: usize = self.shards.iter_mut().map(|sets| sets.get_mut().len().saturating_sub(FIRST_SETS)).sum();
        self.budget.0.fetch_sub(grown, Relaxed);
    }
}

/// Whether a set has the bucket of a key, or one that is empty.
fn has_place(set: &Set, hash: u64, now: u64) -> bool {
    set.iter().any(|bucket| bucket.key == hash || bucket.empty_at <= now)
}

/// Doubles the number of sets: each is divided into two.
fn grow(sets: &mut Vec<Set>) {
    let before = std::mem::take(sets);
    let count = before.len() * 2;
    sets.resize(count, Set::default());
    for bucket in before.into_iter().flatten().filter(|bucket| bucket.key != 0) {
        let free = sets.get_mut(index(bucket.key, count)).and_then(|set| set.iter_mut().find(|one| one.key == 0));
        if let Some(free) = free {
            *free = bucket;
        }
    }
}

/// The set of a key; `count` is a power of two, or zero.
fn index(hash: u64, count: usize) -> usize {
    usize::try_from(hash & 0xffff_ffff).unwrap_or_default() & count.wrapping_sub(1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let buckets = Buckets::new(millis(100), Budget::default());
        let admitted = |at: u64| (0..20).filter(|_| buckets.take(&"one", 5, millis(at))).count();
        // As nginx: one request, and the burst.
        assert_eq!(admitted(0), 6);
        assert_eq!(admitted(99), 0);
        assert_eq!(admitted(100), 1);
        assert_eq!(admitted(400), 3);
        assert_eq!(admitted(100_000), 6);
        assert!(buckets.take(&"two", 0, millis(100_000)), "other keys have their own");
        assert!(!buckets.take(&"two", 0, millis(100_099)));
    }

    #[test]
    fn looking_counts_nothing() {
        let buckets = Buckets::new(millis(100), Budget::default());
        for _ in 0..5 {
            assert!(buckets.has_room(&1, 0, millis(0)));
        }
        assert!(buckets.take(&1, 0, millis(0)));
        assert!(!buckets.has_room(&1, 0, millis(50)) && buckets.has_room(&1, 0, millis(100)));
    }

    #[test]
    fn memory_is_bounded_and_full_buckets_stay() {
        let budget = Budget::default();
        let buckets = Buckets::new(millis(1000), budget.clone());
        // A client far beyond its rate.
        for _ in 0..50 {
            buckets.take(&"offender", 1000, millis(0));
        }
        for key in 0..200_000_u32 {
            buckets.take(&key, 0, millis(0));
        }
        let sets: usize = buckets.shards.iter().map(|sets| sets.lock().len()).sum();
        assert_eq!(sets, SHARDS * MAX_SETS);
        assert_eq!(budget.0.load(Relaxed), SHARDS * (MAX_SETS - FIRST_SETS));
        assert!(!buckets.take(&"offender", 10, millis(0)), "it was not displaced by emptier buckets");
        drop(buckets);
        assert_eq!(budget.0.load(Relaxed), 0);
    }

    #[test]
    fn without_a_budget_a_zone_keeps_its_first_buckets() {
        let budget = Budget::default();
        assert!(budget.take(MAX_GROWN) && !budget.take(1));
        let buckets = Buckets::new(millis(1000), budget.clone());
        for key in 0..10_000_u32 {
            buckets.take(&key, 0, millis(0));
        }
        assert!(buckets.shards.iter().all(|sets| sets.lock().len() == FIRST_SETS));
        drop(buckets);
        assert_eq!(budget.0.load(Relaxed), MAX_GROWN);
    }

    proptest! {
        /// The excess of nginx: falls with the time, grows by one with each request that is admitted.
        #[test]
        fn decisions_are_those_of_limit_req(burst in 0_u32..5, gaps in prop::collection::vec(0_u64..40, 1..60)) {
            let buckets = Buckets::new(millis(10), Budget::default());
            let (mut now, mut excess) = (0, None::<(u64, i64)>);
            for gap in gaps {
                now += gap;
                let next = excess.map_or(0, |(last, excess)| (excess - 100 * i64::try_from(now - last).expect("small")).max(-1000) + 1000).max(0);
                let admits = next <= i64::from(burst) * 1000;
                if admits {
                    excess = Some((now, next));
                }
                prop_assert_eq!(buckets.take(&0, burst, millis(now)), admits, "at {}", now);
            }
        }
    }
}
