//! Counts of what the resolver did, for the metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Resolver;
use crate::config::Name;
use crate::wire::rtype;

/// Counters inside; a resolver that takes the place of another goes on with them.
#[derive(Default)]
pub(super) struct Counters {
    /// Questions without a memory that somebody had to be asked for.
    pub(super) misses: AtomicU64,
    pub(super) coalesced: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) walked: AtomicU64,
    /// Questions over the rate of their client.
    pub(super) limited: AtomicU64,
    /// Questions over the limit of a `forward`, asked of a second upstream, and asked of one that is down.
    pub(super) rejected: AtomicU64,
    pub(super) hedged: AtomicU64,
    pub(super) broken: AtomicU64,
    /// Answers by templates: zone, class, type. What is not counted by name is one kind, so that nobody makes it long.
    pub(super) templates: Mutex<BTreeMap<(String, u16, u16), u64>>,
}

impl Counters {
    /// Counts an answer by a template.
    pub(super) fn by_template(&self, zone: &Name, class: u16, qtype: u16) {
        let class = if matches!(class, 1 | 3) { class } else { 0 };
        let qtype = if rtype::text(qtype).is_some() { qtype } else { 0 };
        *self.templates.lock().entry((zone.to_string(), class, qtype)).or_default() += 1;
    }
}

/// What a memory was used for.
#[derive(Default)]
pub(super) struct Uses {
    /// Hits with data and without, which threads count that must not wait for each other.
    pub(super) success: Striped,
    pub(super) denial: Striped,
    pub(super) misses: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) prefetched: AtomicU64,
}

/// A counter with several places, each in a cache line of its own: threads that count at once seldom use the same.
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

/// What the resolver did since it began.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Questions answered from memory with data.
    pub success_hits: u64,
    /// Questions answered from memory without data.
    pub denial_hits: u64,
    /// Questions somebody had to be asked for.
    pub misses: u64,
    /// Answers given after their time.
    pub stale: u64,
    /// Answers asked for anew before their time.
    pub prefetched: u64,
    /// Questions that joined an equal one under way.
    pub coalesced: u64,
    /// Questions nobody answered.
    pub failed: u64,
    /// Questions an `acl` denied.
    pub denied: u64,
    /// Questions for which the search path was walked with success.
    pub walked: u64,
    /// Questions over the rate of their client.
    pub limited: u64,
    /// Questions over the limit of a `forward`.
    pub rejected: u64,
    /// Questions asked of a second upstream because the first was slow.
    pub hedged: u64,
    /// Remembered answers with data: number, bytes, and how many had to go.
    pub success_cache: (usize, usize, u64),
    /// The same without data.
    pub denial_cache: (usize, usize, u64),
    /// Each upstream.
    pub upstreams: Vec<UpstreamStats>,
}

/// What is known of an upstream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamStats {
    /// Where.
    pub address: SocketAddr,
    /// Questions.
    pub asked: u64,
    /// Questions without an answer.
    pub failed: u64,
    /// Smoothed time to an answer.
    pub time: Duration,
    /// Whether it is avoided because it failed.
    pub down: bool,
    /// Why it is not asked at all.
    pub unusable: Option<String>,
}

impl Resolver {
    /// The counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let mut out = Stats {
            misses: read(&counters.misses),
            coalesced: read(&counters.coalesced),
            failed: read(&counters.failed),
            denied: read(&counters.denied),
            walked: read(&counters.walked),
            rejected: read(&counters.rejected),
            hedged: read(&counters.hedged),
            limited: read(&counters.limited),
            ..Stats::default()
        };
        let add = |sum: &mut (usize, usize, u64), more: (usize, usize, u64)| {
            *sum = (sum.0 + more.0, sum.1 + more.1, sum.2 + more.2);
        };
        for site in self.sites.iter() {
            if let Some(store) = &site.store {
                let uses = &store.uses;
                out.success_hits += uses.success.sum();
                out.denial_hits += uses.denial.sum();
                out.misses += read(&uses.misses);
                out.stale += read(&uses.stale);
                out.prefetched += read(&uses.prefetched);
                add(&mut out.success_cache, store.success.usage());
                add(&mut out.denial_cache, store.denial.usage());
            }
            for group in &site.groups {
                out.upstreams.extend(group.upstreams.iter().map(|upstream| UpstreamStats {
                    address: upstream.address,
                    asked: read(&upstream.asked),
                    failed: read(&upstream.failed),
                    time: upstream.time(),
                    down: upstream.is_down(),
                    unusable: upstream.unusable(),
                }));
            }
        }
        out
    }

    /// Upstreams that cannot be asked, and why; readiness tells them.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let groups = || self.sites.iter().flat_map(|site| &site.groups);
        let empty = groups().filter(|group| group.upstreams.is_empty());
        let empty = empty.map(|group| format!("forward: {} has no upstream; name one", group.from));
        let upstreams = groups().flat_map(|group| &group.upstreams);
        let unusable =
            upstreams.filter_map(|upstream| Some(format!("forward: {}: {}", upstream.address, upstream.unusable()?)));
        empty.chain(unusable).collect()
    }
}
