//! What the resolver counts, as text, under the names that dashboards of CoreDNS know.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::Resolver;
use super::site::{Site, Store};
use crate::metrics::head;
use crate::wire::rtype;

/// The figures of the memory with one list of zones.
#[derive(Default)]
struct Memory {
    /// Answers with data, and without: how many are kept, asked for, thrown away.
    kinds: [(usize, u64, u64); 2],
    misses: u64,
    stale: u64,
    prefetched: u64,
}

impl Resolver {
    /// All figures, for a server of this name.
    #[must_use]
    pub fn text(&self, server: &str) -> String {
        let mut out = String::new();
        self.memory(&mut out, server);
        let counters = &self.counters;
        self.ledger.write(&mut out);
        let labelled = format!("{{server=\"{server}\"}}");
        for (name, labels, help, value) in [
            (
                "coredns_forward_healthcheck_broken_total",
                "",
                "Questions that had only upstreams to go to which are down",
                counters.broken.load(Relaxed),
            ),
            (
                "coredns_forward_max_concurrent_rejects_total",
                "",
                "Questions over the limit of a forward",
                counters.rejected.load(Relaxed),
            ),
            (
                "coredns_autopath_success_total",
                &labelled,
                "Questions for which a search path was walked",
                counters.walked.load(Relaxed),
            ),
            ("waypost_dns_denied_total", "", "Questions that an acl denied", counters.denied.load(Relaxed)),
            (
                "waypost_dns_limited_total",
                "",
                "Questions over the rate of their client",
                counters.limited.load(Relaxed),
            ),
            ("waypost_dns_failed_total", "", "Questions that nobody answered", counters.failed.load(Relaxed)),
            (
                "waypost_dns_coalesced_total",
                "",
                "Questions that joined an equal one under way",
                counters.coalesced.load(Relaxed),
            ),
            (
                "waypost_dns_hedged_total",
                "",
                "Questions asked of a second upstream because the first was slow",
                counters.hedged.load(Relaxed),
            ),
        ] {
            head(&mut out, name, help, "counter");
            let _ = writeln!(out, "{name}{labels} {value}");
        }
        self.rules(&mut out, server);
        out
    }

    fn memory(&self, out: &mut String, server: &str) {
        let mut all: BTreeMap<String, Memory> = BTreeMap::new();
        for site in &self.sites {
            if let Some(store) = &site.store {
                all.entry(zones(site, store)).or_default().add(store);
            }
        }
        let mut each = |name: &str, help: &str, kind: &str, by_kind: bool, value: &dyn Fn(&Memory, usize) -> u64| {
            head(out, name, help, kind);
            for (zones, memory) in &all {
                let labels = format!("server=\"{server}\",zones=\"{zones}\",view=\"\"");
                for (place, text) in ["success", "denial"].into_iter().enumerate().take(if by_kind { 2 } else { 1 }) {
                    let own = if by_kind { format!(",type=\"{text}\"") } else { String::new() };
                    let _ = writeln!(out, "{name}{{{labels}{own}}} {}", value(memory, place));
                }
            }
        };
        let hits = |memory: &Memory| memory.kinds[0].1 + memory.kinds[1].1;
        each("coredns_cache_entries", "Answers that are remembered", "gauge", true, &|memory, kind| {
            memory.kinds[kind].0 as u64
        });
        each("coredns_cache_hits_total", "Questions answered from memory", "counter", true, &|memory, kind| {
            memory.kinds[kind].1
        });
        each("coredns_cache_evictions_total", "Answers that had to make room", "counter", true, &|memory, kind| {
            memory.kinds[kind].2
        });
        each("coredns_cache_requests_total", "Questions that memory was asked for", "counter", false, &|memory, _| {
            hits(memory) + memory.misses
        });
        each(
            "coredns_cache_misses_total",
            "Questions that somebody had to be asked for",
            "counter",
            false,
            &|memory, _| memory.misses,
        );
        each(
            "coredns_cache_prefetch_total",
            "Answers asked for anew before their end",
            "counter",
            false,
            &|memory, _| memory.prefetched,
        );
        each("coredns_cache_served_stale_total", "Answers given after their end", "counter", false, &|memory, _| {
            memory.stale
        });
        // An answer to another question is none: it does not come so far.
        each("coredns_cache_drops_total", "Answers to other questions", "counter", false, &|_, _| 0);
    }

    fn rules(&self, out: &mut String, server: &str) {
        let name = "coredns_template_matches_total";
        head(out, name, "Questions that a template answered", "counter");
        for ((zone, class, kind), count) in self.counters.templates.lock().iter() {
            let class = match class {
                1 => "IN",
                3 => "CH",
                _ => "other",
            };
            let kind = rtype::text(*kind).unwrap_or("other");
            let labels = format!("server=\"{server}\",zone=\"{zone}\",view=\"\",class=\"{class}\",type=\"{kind}\"");
            let _ = writeln!(out, "{name}{{{labels}}} {count}");
        }
        let name = "coredns_hosts_entries";
        head(out, name, "Names and addresses by hand", "gauge");
        let entries: usize = self.sites.iter().filter_map(|site| site.hosts.as_ref()).map(|hosts| hosts.len()).sum();
        let _ = writeln!(out, "{name}{{}} {entries}");
        let name = "coredns_plugin_enabled";
        head(out, name, "What is configured for a zone", "gauge");
        let mut enabled: Vec<String> = Vec::new();
        for site in &self.sites {
            for (zone, directive) in
                site.zones.iter().flat_map(|zone| site.block.directives().map(move |it| (zone, it)))
            {
                enabled.push(format!("{name}{{server=\"{server}\",zone=\"{zone}\",view=\"\",name=\"{directive}\"}} 1"));
            }
        }
        enabled.sort_unstable();
        enabled.dedup();
        enabled.iter().for_each(|line| {
            let _ = writeln!(out, "{line}");
        });
    }
}

impl Memory {
    fn add(&mut self, store: &Store) {
        let uses = &store.uses;
        for (kind, table, hits) in [(0, &store.success, &uses.success), (1, &store.denial, &uses.denial)] {
            let (entries, _, evicted) = table.usage();
            let sum = &mut self.kinds[kind];
            *sum = (sum.0 + entries, sum.1 + hits.sum(), sum.2 + evicted);
        }
        self.misses += uses.misses.load(Relaxed);
        self.stale += uses.stale.load(Relaxed);
        self.prefetched += uses.prefetched.load(Relaxed);
    }
}

/// The zones that a memory is for, in one text.
fn zones(site: &Site, store: &Store) -> String {
    let zones = if store.config.zones.is_empty() { &site.zones } else { &store.config.zones };
    zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
