//! Counters of the resolver.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Resolver;
use crate::config::Name;
use crate::wire::rtype;

/// Counters, kept when the configuration is reloaded.
#[derive(Default)]
pub(super) struct Counters {
    /// Cache misses of queries without a cache.
    pub(super) misses: AtomicU64,
    pub(super) coalesced: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) expanded: AtomicU64,
    /// Queries over the rate limit of their client.
    pub(super) limited: AtomicU64,
    /// Queries over `max_concurrent`, sent to a second upstream, and sent to an upstream that is down.
    pub(super) rejected: AtomicU64,
    pub(super) hedged: AtomicU64,
    pub(super) broken: AtomicU64,
    /// Template answers by zone, class and type. Types without mnemonic are counted as one, which bounds the map.
    pub(super) templates: Mutex<BTreeMap<(String, u16, u16), u64>>,
}

impl Counters {
    /// Counts a template answer.
    pub(super) fn by_template(&self, zone: &Name, class: u16, qtype: u16) {
        let class = if matches!(class, 1 | 3) { class } else { 0 };
        let qtype = if rtype::text(qtype).is_some() { qtype } else { 0 };
        *self.templates.lock().entry((zone.to_string(), class, qtype)).or_default() += 1;
    }
}

/// Counters of a cache.
#[derive(Default)]
pub(super) struct CacheCounters {
    /// Hits of positive and negative answers; striped because all listener threads write them.
    pub(super) success: Striped,
    pub(super) denial: Striped,
    pub(super) misses: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) prefetched: AtomicU64,
}

/// Counter striped over cache lines, to avoid contention.
#[derive(Default)]
pub(super) struct Striped([Stripe; 8]);

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

impl Striped {
    pub(super) fn count(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static PLACE: usize = NEXT.fetch_add(1, Ordering::Relaxed));
        let place = PLACE.with(|place| place % self.0.len());
        count(&self.0[place].0);
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Resolver statistics.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Cache hits with data.
    pub success_hits: u64,
    /// Cache hits of negative answers.
    pub denial_hits: u64,
    /// Queries sent to upstreams.
    pub misses: u64,
    /// Stale answers served.
    pub stale: u64,
    /// Answers prefetched.
    pub prefetched: u64,
    /// Queries that joined an equal one in flight.
    pub coalesced: u64,
    /// Queries that no upstream answered.
    pub failed: u64,
    /// Queries denied by `acl`.
    pub denied: u64,
    /// Queries answered by search path expansion.
    pub expanded: u64,
    /// Queries over the rate limit of their client.
    pub limited: u64,
    /// Queries over `max_concurrent`.
    pub rejected: u64,
    /// Queries sent to a second upstream because the first was slow.
    pub hedged: u64,
    /// Cached positive answers: entries, bytes, evictions.
    pub success_cache: (usize, usize, u64),
    /// Cached negative answers: entries, bytes, evictions.
    pub denial_cache: (usize, usize, u64),
    /// Upstreams.
    pub upstreams: Vec<UpstreamStats>,
}

/// Statistics of an upstream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamStats {
    /// Address.
    pub address: SocketAddr,
    /// Queries sent.
    pub queries: u64,
    /// Queries without an answer.
    pub failed: u64,
    /// Smoothed latency.
    pub time: Duration,
    /// Whether it is down.
    pub down: bool,
    /// Why it is not used.
    pub unusable: Option<String>,
}

impl Resolver {
    /// Current statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let mut out = Stats {
            misses: read(&counters.misses),
            coalesced: read(&counters.coalesced),
            failed: read(&counters.failed),
            denied: read(&counters.denied),
            expanded: read(&counters.expanded),
            rejected: read(&counters.rejected),
            hedged: read(&counters.hedged),
            limited: read(&counters.limited),
            ..Stats::default()
        };
        let add = |sum: &mut (usize, usize, u64), more: (usize, usize, u64)| {
            *sum = (sum.0 + more.0, sum.1 + more.1, sum.2 + more.2);
        };
        for server_block in self.server_blocks.iter() {
            if let Some(block_cache) = &server_block.block_cache {
                let counters = &block_cache.counters;
                out.success_hits += counters.success.sum();
                out.denial_hits += counters.denial.sum();
                out.misses += read(&counters.misses);
                out.stale += read(&counters.stale);
                out.prefetched += read(&counters.prefetched);
                add(&mut out.success_cache, block_cache.success.usage());
                add(&mut out.denial_cache, block_cache.denial.usage());
            }
            for group in &server_block.groups {
                out.upstreams.extend(group.upstreams.iter().map(|upstream| UpstreamStats {
                    address: upstream.address,
                    queries: read(&upstream.queries),
                    failed: read(&upstream.failed),
                    time: upstream.time(),
                    down: upstream.is_down(),
                    unusable: upstream.unusable(),
                }));
            }
        }
        out
    }

    /// Upstreams that cannot be used, with the reason; reported by readiness.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let groups = || self.server_blocks.iter().flat_map(|server_block| &server_block.groups);
        let empty = groups().filter(|group| group.upstreams.is_empty());
        let empty = empty.map(|group| format!("forward: {} has no upstream; configure one", group.from));
        let upstreams = groups().flat_map(|group| &group.upstreams);
        let unusable =
            upstreams.filter_map(|upstream| Some(format!("forward: {}: {}", upstream.address, upstream.unusable()?)));
        empty.chain(unusable).collect()
    }
}
