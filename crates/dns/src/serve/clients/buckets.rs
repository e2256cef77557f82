//! A fixed table of token buckets, one per client, shared by all threads without a lock.
//!
//! In: a hash of the client, a [`Rate`], the time. Out: whether there was a token. A bucket is one word, so that one
//! compare-and-swap takes a token: a tag of the client, and the time at which the bucket will be full again (the generic
//! cell rate algorithm). How far that time lies ahead is the client's debt; without debt a word carries no information and
//! is free for others. A client over its rate writes nothing, so a flood on many threads does not contend for the word.
//!
//! The hash selects a set of eight words, one cache line. When all are taken, the one with the least debt goes to the new
//! client *together with its debt*. So debt is never lost: no client gets more than `rate * time + burst` by having its
//! bucket evicted, and clients suffer from others only when eight clients in their set are in debt at the same time.
//! Which set that is depends on a random key of the process, and cannot be chosen from outside.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Buckets in a set: as many words as fit into a cache line.
const WAYS: usize = 8;
/// Bits of a word that hold a time; the others hold the tag.
const TIME_BITS: u32 = 44;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Nanoseconds in a tick, as a power of two. Times wrap after 3.2 days.
const TICK_SHIFT: u32 = 4;
/// Maximum interval between calls of [`Buckets::sweep`]: less than half the time after which times wrap, so that past
/// times are not mistaken for future ones.
pub(super) const SWEEP_PERIOD: Duration = Duration::from_secs(3600);

/// Time in ticks since the server started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::serve) struct Ticks(u64);

impl Ticks {
    /// Ticks from `began` to `now`.
    pub(in crate::serve) fn between(began: Instant, now: Instant) -> Self {
        Self(ticks_of(now.saturating_duration_since(began)))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "584 years fit")]
const fn ticks_of(duration: Duration) -> u64 {
    duration.as_nanos() as u64 >> TICK_SHIFT
}

/// Refill rate and capacity of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    /// Ticks per token.
    interval: u64,
    /// Ticks to refill an empty bucket.
    depth: u64,
}

impl Rate {
    /// `tokens` per second, with a burst of the same size.
    pub(super) fn per_second(tokens: u32) -> Self {
        Self::new(tokens, Duration::from_secs(1))
    }

    /// `tokens` per period, with a burst of the same size.
    pub(super) fn new(tokens: u32, period: Duration) -> Self {
        let tokens = u64::from(tokens.max(1));
        // Rounded up: a client may get slightly less than its rate, never more.
        let interval = ticks_of(period).div_ceil(tokens).max(1);
        Self { interval, depth: interval * tokens }
    }
}

/// One cache line of buckets.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// Table of token buckets.
#[derive(Debug)]
pub(super) struct Buckets {
    hasher: RandomState,
    sets: Box<[Set]>,
}

impl Buckets {
    /// Creates a table; `sets` is rounded up to a power of two.
    pub(super) fn new(sets: usize) -> Self {
        let sets = (0..sets.next_power_of_two()).map(|_| Set::default()).collect();
        Self { hasher: RandomState::new(), sets }
    }

    /// Takes a token from the bucket of a client. Addresses are 128-bit and networks 64-bit integers, so their hashes
    /// differ.
    pub(super) fn take(&self, client: impl std::hash::Hash, rate: Rate, now: Ticks) -> bool {
        self.take_hashed(self.hasher.hash_one(client), rate, now)
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of sets")]
    fn take_hashed(&self, hash: u64, rate: Rate, now: Ticks) -> bool {
        // 0 marks an empty word.
        let tag = (hash >> TIME_BITS).max(1);
        let set = &self.sets[hash as usize & (self.sets.len() - 1)];
        // Lock-free: each failed iteration means that another thread succeeded.
        loop {
            let (way, word) = set.find(tag, rate, now);
            let debt = debt(word, rate, now) + rate.interval;
            if debt > rate.depth {
                return false;
            }
            let next = tag << TIME_BITS | (now.0 + debt) & TIME_MASK;
            if set.0[way].compare_exchange_weak(word, next, Relaxed, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Clears words without debt before their times wrap into the future.
    pub(super) fn sweep(&self, now: Ticks) {
        for word in self.sets.iter().flat_map(|set| &set.0) {
            let old = word.load(Relaxed);
            if old != 0 && is_free(old, now) {
                // On failure another thread has just used the word.
                let _ = word.compare_exchange(old, 0, Relaxed, Relaxed);
            }
        }
    }
}

impl Set {
    /// Bucket of a client, or the one with the least debt.
    fn find(&self, tag: u64, rate: Rate, now: Ticks) -> (usize, u64) {
        let words: [u64; WAYS] = std::array::from_fn(|way| self.0[way].load(Relaxed));
        let own = words.iter().position(|word| word >> TIME_BITS == tag);
        let way =
            own.unwrap_or_else(|| (0..WAYS).min_by_key(|way| debt(words[*way], rate, now)).expect("a set has buckets"));
        (way, words[way])
    }
}

/// Ticks until a bucket is full; at most its depth, also if another thread read the clock later.
fn debt(word: u64, rate: Rate, now: Ticks) -> u64 {
    if is_free(word, now) { 0 } else { (word.wrapping_sub(now.0) & TIME_MASK).min(rate.depth) }
}

/// Whether a word is empty or its time has passed. Times wrap, so the half before `now` counts as past.
const fn is_free(word: u64, now: Ticks) -> bool {
    word == 0 || word.wrapping_sub(now.0) & TIME_MASK > TIME_MASK / 2
}

#[cfg(test)]
mod tests;
