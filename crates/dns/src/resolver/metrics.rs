//! Metrics of the resolver, with the names of CoreDNS where it has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::Resolver;
use super::server_block::{BlockCache, ServerBlock};
use crate::metrics::encode;
use crate::metrics::encode::{Labels, counters, gauges};
use crate::wire::rtype;

/// Cache metrics of the blocks with the same zones.
#[derive(Default)]
struct CacheMetrics {
    /// Positive and negative answers: entries, hits, evictions.
    kinds: [(u64, u64, u64); 2],
    misses: u64,
    stale: u64,
    prefetched: u64,
}

#[derive(Debug)]
struct ResolverCollector {
    resolver: Arc<Resolver>,
    /// Value of the `server` label.
    server: String,
}

impl Resolver {
    /// Collector of the metrics; `server` is the value of the `server` label.
    #[must_use]
    pub fn collector(self: &Arc<Self>, server: &str) -> Box<dyn Collector> {
        Box::new(ResolverCollector { resolver: self.clone(), server: server.to_owned() })
    }

    /// Metrics in text format; `server` is the value of the `server` label.
    #[must_use]
    pub fn text(self: &Arc<Self>, server: &str) -> String {
        encode([self.collector(server)])
    }
}

impl Collector for ResolverCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.caches(encoder)?;
        self.resolver.upstream_metrics.encode(encoder)?;
        self.totals(encoder)?;
        self.rules(encoder)
    }
}

impl ResolverCollector {
    fn labels(&self, more: impl IntoIterator<Item = (&'static str, String)>) -> Labels {
        std::iter::once(("server", self.server.clone())).chain(more).collect()
    }

    fn caches(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut all: BTreeMap<String, CacheMetrics> = BTreeMap::new();
        for server_block in &self.resolver.server_blocks {
            if let Some(cache) = &server_block.block_cache {
                all.entry(zones(server_block, cache)).or_default().add(cache);
            }
        }
        let labels = |zones: &String| self.labels([("zones", zones.clone()), ("view", String::new())]);
        let by_kind = |value: fn(&(u64, u64, u64)) -> u64| {
            let samples = all.iter().flat_map(|(zones, cache)| {
                ["success", "denial"].into_iter().zip(&cache.kinds).map(move |(kind, counts)| {
                    let mut labels = labels(zones);
                    labels.push(("type", kind.to_owned()));
                    (labels, value(counts))
                })
            });
            samples.collect::<Vec<_>>()
        };
        gauges(encoder, "coredns_cache_entries", "Cached answers", by_kind(|counts| counts.0))?;
        counters(encoder, "coredns_cache_hits", "Cache hits", by_kind(|counts| counts.1))?;
        counters(encoder, "coredns_cache_evictions", "Cache evictions", by_kind(|counts| counts.2))?;
        let each = |value: fn(&CacheMetrics) -> u64| {
            all.iter().map(|(zones, cache)| (labels(zones), value(cache))).collect::<Vec<_>>()
        };
        let requests = each(|cache| cache.kinds[0].1 + cache.kinds[1].1 + cache.misses);
        counters(encoder, "coredns_cache_requests", "Cache lookups", requests)?;
        counters(encoder, "coredns_cache_misses", "Cache misses", each(|cache| cache.misses))?;
        counters(encoder, "coredns_cache_prefetch", "Answers prefetched", each(|cache| cache.prefetched))?;
        counters(encoder, "coredns_cache_served_stale", "Stale answers served", each(|cache| cache.stale))?;
        // Mismatched replies are rejected before they reach the cache.
        counters(encoder, "coredns_cache_drops", "Replies that do not match their query", each(|_| 0))
    }

    fn totals(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let totals = &self.resolver.counters;
        let server = self.labels([]);
        for (name, labels, help, value) in [
            (
                "coredns_forward_healthcheck_broken",
                Labels::new(),
                "Queries sent while all upstreams were down",
                &totals.broken,
            ),
            ("coredns_forward_max_concurrent_rejects", Labels::new(), "Queries over max_concurrent", &totals.rejected),
            ("coredns_autopath_success", server, "Queries answered by search path expansion", &totals.expanded),
            ("waypost_dns_denied", Labels::new(), "Queries denied by acl", &totals.denied),
            ("waypost_dns_limited", Labels::new(), "Queries over the rate limit of their client", &totals.limited),
            ("waypost_dns_failed", Labels::new(), "Queries that no upstream answered", &totals.failed),
            ("waypost_dns_coalesced", Labels::new(), "Queries that joined an equal one in flight", &totals.coalesced),
            ("waypost_dns_hedged", Labels::new(), "Queries sent to a second upstream", &totals.hedged),
        ] {
            counters(encoder, name, help, [(labels, value.load(Relaxed))])?;
        }
        Ok(())
    }

    fn rules(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let templates = self.resolver.counters.templates.lock();
        let matches = templates.iter().map(|((zone, class, qtype), count)| {
            let class = match class {
                1 => "IN",
                3 => "CH",
                _ => "other",
            };
            let qtype = rtype::text(*qtype).unwrap_or("other");
            let more =
                [("zone", zone.clone()), ("view", String::new()), ("class", class.into()), ("type", qtype.into())];
            (self.labels(more), *count)
        });
        counters(encoder, "coredns_template_matches", "Queries answered by template", matches)?;
        let blocks = &self.resolver.server_blocks;
        let entries: usize = blocks.iter().filter_map(|block| block.hosts.as_ref()).map(|hosts| hosts.len()).sum();
        gauges(encoder, "coredns_hosts_entries", "Entries of hosts", [(Labels::new(), entries as u64)])?;
        let directives = |block: &ServerBlock| -> Vec<(String, &'static str)> {
            let zones = block.zones.iter().map(ToString::to_string);
            zones.flat_map(|zone| block.block.directives().map(move |name| (zone.clone(), name))).collect()
        };
        let enabled: BTreeSet<(String, &str)> = blocks.iter().flat_map(directives).collect();
        let enabled = enabled
            .into_iter()
            .map(|(zone, name)| (self.labels([("zone", zone), ("view", String::new()), ("name", name.to_owned())]), 1));
        gauges(encoder, "coredns_plugin_enabled", "Directives of a zone", enabled)
    }
}

impl CacheMetrics {
    fn add(&mut self, cache: &BlockCache) {
        let counters = &cache.counters;
        for (kind, table, hits) in [(0, &cache.success, &counters.success), (1, &cache.denial, &counters.denial)] {
            let (entries, _, evicted) = table.usage();
            let sum = &mut self.kinds[kind];
            *sum = (sum.0 + entries as u64, sum.1 + hits.sum(), sum.2 + evicted);
        }
        self.misses += counters.misses.load(Relaxed);
        self.stale += counters.stale.load(Relaxed);
        self.prefetched += counters.prefetched.load(Relaxed);
    }
}

/// Value of the `zones` label.
fn zones(server_block: &ServerBlock, cache: &BlockCache) -> String {
    let zones = if cache.config.zones.is_empty() { &server_block.zones } else { &cache.config.zones };
    zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
