//! `ratelimit`: UDP response rate limit per client.
//!
//! In: client and time. Out: whether to answer. UDP source addresses can be spoofed to direct our replies at a victim.
//! Every second reply over the limit is sent empty with TC set, so that real clients retry over TCP.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::config::RateLimit;

/// Number of buckets; clients that share one share its tokens.
const BUCKETS: usize = 4096;

/// What a client gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    Answer,
    /// Empty reply with TC set.
    Truncate,
    Drop,
}

/// Token buckets, one word each: milliseconds of the last update, and tokens in thousandths.
#[derive(Debug)]
pub(super) struct Limiter {
    limit: RateLimit,
    began: Instant,
    hasher: RandomState,
    buckets: Box<[AtomicU64]>,
    refused: AtomicU64,
}

impl Limiter {
    pub(super) fn new(limit: RateLimit, now: Instant) -> Self {
        let full = u64::from(limit.burst.max(1)) * 1000;
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(full)).collect();
        Self { limit, began: now, hasher: RandomState::new(), buckets, refused: AtomicU64::new(0) }
    }

    pub(super) fn check(&self, client: IpAddr, now: Instant) -> Decision {
        let client = client.to_canonical();
        if self.limit.exempt.iter().any(|network| network.contains(&client)) || self.take(client, now) {
            return Decision::Answer;
        }
        let count = self.refused.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(2) { Decision::Truncate } else { Decision::Drop }
    }

    fn take(&self, client: IpAddr, now: Instant) -> bool {
        let who = match client {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 64).unwrap_or(0),
        };
        let index = usize::try_from(self.hasher.hash_one(who)).unwrap_or(0) % BUCKETS;
        let passed = now.saturating_duration_since(self.began).as_millis();
        let time = passed & 0xffff_ffff;
        let time = u64::try_from(time).expect("32 bits");
        let bucket = &self.buckets[index];
        let full = (u64::from(self.limit.burst.max(1)) * 1000).min(u64::from(u32::MAX));
        let visit = |old: u64| {
            let (last, tokens) = (old >> 32, old & 0xffff_ffff);
            let gained = time.saturating_sub(last).saturating_mul(u64::from(self.limit.per_second));
            let tokens = tokens.saturating_add(gained).min(full);
            tokens.checked_sub(1000).map(|left| time.max(last) << 32 | left)
        };
        bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, visit).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_gets_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let exempt = vec!["10.0.0.0/8".parse().expect("a range")];
        let limiter = Limiter::new(RateLimit { per_second: 10, burst: 5, exempt }, start);
        let client = "192.0.2.1".parse().expect("an address");
        let answered = |at: Duration, times: usize| {
            (0..times).filter(|_| limiter.check(client, start + at) == Decision::Answer).count()
        };
        assert_eq!(answered(Duration::ZERO, 20), 5);
        assert_eq!(limiter.refused.load(Ordering::Relaxed), 15);
        assert_eq!(answered(Duration::from_millis(300), 20), 3);
        assert_eq!(answered(Duration::from_secs(60), 20), 5);
        let trusted = "10.1.2.3".parse().expect("an address");
        assert!((0..100).all(|_| limiter.check(trusted, start) == Decision::Answer));
        let refusals: Vec<_> = (0..4).map(|_| limiter.check(client, start + Duration::from_secs(60))).collect();
        assert!(refusals.contains(&Decision::Truncate) && refusals.contains(&Decision::Drop), "{refusals:?}");
    }
}
