//! Forwarding resolver for names outside the cluster zones.
//!
//! In: queries as received. Out: complete replies within a time limit; SERVFAIL with an extended error if upstreams
//! fail. A query passes these stages in the order of CoreDNS: acl → rewrite → autopath → template → hosts → kubernetes
//! → cache → forward. Stages that do not wait run in [`Resolver::cached`], on the listener threads; the others in
//! [`Resolver::resolve`]. Queries for names in the cluster zones get here only if rules exist for them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::config::{Action, Name};
use crate::forward::{BoxFuture, ClientAddr, RuleDecision};
use answer::{Answer, Unpacked};
use cache::{Entry, Key, KeyRef};
use inflight::PendingResult;
use loop_detection::LoopDetector;
use message::{Extended, Outgoing, Query, flag, rcode};
use rate_limit::Decision;
use reply::{ReplyOptions, Ttl};
use server_block::{CacheLookup, MetricHandles, ServerBlock};
use stats::{Counters, count};
use upstream_metrics::UpstreamMetricsRegistry;

mod answer;
mod autopath;
mod cache;
mod forwarder;
mod hosts;
mod inflight;
mod load;
mod local;
mod log;
mod loop_detection;
mod message;
mod metrics;
mod rate_limit;
mod reply;
mod rewrite;
mod rules;
mod server_block;
mod stats;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;
mod udp;
mod upstream;
mod upstream_group;
mod upstream_metrics;

pub use crate::forward::{Lookup, Request, Transport};
pub use crate::wire::Record;
pub use forwarder::ClusterZones;
pub use load::{Clock, Config, LoadError, LocalAnswer, LocalZones};
pub use stats::{Stats, UpstreamStats};
pub use tls::TlsError;

/// Forwarding resolver.
pub struct Resolver {
    me: Weak<Self>,
    config: Config,
    server_blocks: Vec<ServerBlock>,
    /// Listen addresses of the server blocks.
    listeners: Vec<SocketAddr>,
    /// Whether rules may change answers for names in the cluster zones.
    has_cluster_rules: bool,
    /// Whether any block has `autopath`.
    expands_search_path: bool,
    /// Whether any block has `log`.
    logs: bool,
    inflight: Mutex<HashMap<(usize, Key), PendingResult>>,
    loop_detector: LoopDetector,
    counters: Arc<Counters>,
    upstream_metrics: Arc<UpstreamMetricsRegistry>,
    runtime: Handle,
}

/// Resolved answer and how to write it.
struct ResolvedAnswer {
    entry: Arc<Entry>,
    ttl: Ttl,
    from_cache: bool,
    extended: Option<Extended>,
}

impl ResolvedAnswer {
    fn fresh(entry: Arc<Entry>, extended: Option<Extended>) -> Self {
        Self { entry, ttl: Ttl::Aged(0), from_cache: false, extended }
    }
}

/// Result of the stages that need neither cache nor upstreams.
enum QuickResult {
    /// Reply; empty means that no reply is sent.
    Reply(Vec<u8>),
    /// Answer to write.
    Answer(Answer, Option<Extended>),
    /// A rewrite rule of this block applies; resolve.
    Rewrite(usize),
    /// Resolve in this block.
    Resolve(usize),
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Resolver {
    /// Creates a resolver; its tasks run on `runtime` and stop when it is dropped.
    #[must_use]
    pub fn new(config: Config, runtime: Handle) -> Arc<Self> {
        Self::build(config, runtime, None)
    }

    /// Creates a resolver that replaces `old`: blocks with unchanged upstreams keep their cache.
    #[must_use]
    pub fn replacing(old: &Self, config: Config) -> Arc<Self> {
        Self::build(config, old.runtime.clone(), Some(old))
    }

    fn build(config: Config, runtime: Handle, old: Option<&Self>) -> Arc<Self> {
        let known: &[ServerBlock] = old.map_or(&[], |old| &old.server_blocks);
        let counters = old.map(|old| old.counters.clone()).unwrap_or_default();
        let upstream_metrics = old.map(|old| old.upstream_metrics.clone()).unwrap_or_default();
        let metrics = MetricHandles { counters: &counters, upstream_metrics: &upstream_metrics };
        let server_blocks: Vec<ServerBlock> =
            config.server.blocks.iter().map(|block| ServerBlock::new(block, &config, known, metrics)).collect();
        // Invalid addresses were rejected at startup.
        let listeners = config.server.listen_addresses().unwrap_or_default();
        let resolver = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            has_cluster_rules: server_block::has_cluster_rules(&server_blocks, &listeners),
            expands_search_path: server_blocks.iter().any(|server_block| server_block.block.autopath.is_some()),
            logs: server_blocks.iter().any(|server_block| !server_block.block.log.is_empty()),
            server_blocks,
            listeners,
            inflight: Mutex::default(),
            loop_detector: LoopDetector::default(),
            counters,
            upstream_metrics,
            config,
            runtime,
        });
        loop_detection::start(&resolver);
        resolver.watch_hosts_files();
        resolver
    }

    /// Answers without waiting: true if `out` has the reply (empty means that no reply is sent), false if
    /// [`Self::resolve`] must be called.
    pub fn cached(&self, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> bool {
        out.clear();
        let query = match Query::read(request.message) {
            Ok(query) => query,
            Err(error) => {
                out.extend(reply::invalid_query(error));
                return true;
            }
        };
        match self.quick_result(&query, request) {
            QuickResult::Reply(reply) => out.extend(reply),
            QuickResult::Answer(answer, extended) => {
                if self.may_answer(&query, request, now, out) {
                    self.write(out, &query, request, &answer, Ttl::Aged(0), false, extended.as_ref());
                }
            }
            QuickResult::Rewrite(_) => return false,
            QuickResult::Resolve(index) => {
                let server_block = &self.server_blocks[index];
                let lower = query.name.as_wire();
                if self.search_path(server_block, lower, query.qtype, request.from.ip).is_some() {
                    return false;
                }
                let Some(block_cache) = server_block.block_cache(lower) else { return false };
                let CacheLookup::Fresh(entry) = block_cache.find(KeyRef::of(&query), now) else { return false };
                self.record_hit(index, KeyRef::of(&query), &entry, now);
                if self.may_answer(&query, request, now, out) {
                    let seconds = if block_cache.config.keep_ttl { 0 } else { entry.seconds(now) };
                    self.write(out, &query, request, &entry.answer, Ttl::Aged(seconds), true, None);
                }
            }
        }
        true
    }

    /// Resolves a query within the time limit. An empty reply means that no reply is sent.
    pub async fn resolve(self: &Arc<Self>, request: Request<'_>) -> Vec<u8> {
        let query = match Query::read(request.message) {
            Ok(query) => query,
            Err(error) => return reply::invalid_query(error),
        };
        let mut out = Vec::new();
        let quick = self.quick_result(&query, &request);
        if let QuickResult::Reply(reply) = quick {
            return reply;
        }
        if !self.may_answer(&query, &request, (self.config.clock)(), &mut out) {
            return out;
        }
        match quick {
            QuickResult::Reply(reply) => reply,
            QuickResult::Answer(answer, extended) => {
                self.write(&mut out, &query, &request, &answer, Ttl::Aged(0), false, extended.as_ref());
                out
            }
            QuickResult::Rewrite(server_block) | QuickResult::Resolve(server_block) => {
                self.resolve_slow(server_block, &query, &request).await
            }
        }
    }

    /// Whether [`Self::resolve`] expands the client's search path for this query, including names in the cluster zones
    /// that do not exist.
    #[must_use]
    pub fn has_search_path(&self, request: &Request<'_>) -> bool {
        let Ok(query) = Query::read(request.message) else { return false };
        let lower = query.name.as_wire();
        let server_block = self.server_block(lower, request.from).map(|index| &self.server_blocks[index]);
        server_block
            .is_some_and(|server_block| self.search_path(server_block, lower, query.qtype, request.from.ip).is_some())
    }

    /// Records of a name and type, for CNAME targets.
    pub async fn lookup(self: &Arc<Self>, name: &[u8], qtype: u16, from: ClientAddr) -> Lookup {
        self.lookup_from(name, qtype, from, 0).await
    }

    /// Server block for a name among those of the listener. With a single listener, or a listener that no block
    /// configures (flags), all blocks are considered.
    fn server_block(&self, lower: &[u8], from: ClientAddr) -> Option<usize> {
        let listener = Some(from.listener).filter(|at| self.listeners.len() > 1 && self.listeners.contains(at));
        let depths = self
            .server_blocks
            .iter()
            .enumerate()
            .filter_map(|(index, server_block)| Some((server_block.depth(lower, listener)?, index)));
        depths.max_by_key(|(depth, index)| (*depth, std::cmp::Reverse(*index))).map(|(_, index)| index)
    }

    /// Stages that need neither cache nor upstreams.
    fn quick_result(&self, query: &Query<'_>, request: &Request<'_>) -> QuickResult {
        if let Some(reply) = reply::rejected(query) {
            return QuickResult::Reply(reply);
        }
        let lower = query.name.as_wire();
        let refuse = |text: &str| {
            let extended = Extended::new(Extended::NOT_AUTHORITATIVE, text);
            QuickResult::Reply(reply::code(query, rcode::REFUSED, Some(&extended)))
        };
        if self.loop_detector.is_own_probe(lower, query.qtype) {
            return refuse("forwarding loop: this query came from here");
        }
        let Some(index) = self.server_block(lower, request.from) else {
            return refuse("no server block for this name");
        };
        let server_block = &self.server_blocks[index];
        let action = rules::admission(&server_block.block.acl, &server_block.zones, query, request.from.ip);
        if action != Action::Allow {
            count(&self.counters.denied);
            let denial = rules::denial(action);
            return QuickResult::Reply(
                denial.map_or_else(Vec::new, |(rcode, why)| reply::code(query, rcode, Some(&why))),
            );
        }
        if rewrite::apply(&server_block.block.rewrites, lower).is_some() {
            return QuickResult::Rewrite(index);
        }
        match self.static_answer(server_block, lower, query.qtype, query.qclass) {
            Some((unpacked, extended)) => QuickResult::Answer(Answer::pack(lower, &unpacked), extended),
            None => QuickResult::Resolve(index),
        }
    }

    /// Answer of `template` or `hosts`.
    fn static_answer(
        &self,
        server_block: &ServerBlock,
        lower: &[u8],
        qtype: u16,
        qclass: u16,
    ) -> Option<(Unpacked, Option<Extended>)> {
        if let Some(ruled) = rules::template(&server_block.block.templates, &server_block.zones, lower, qtype, qclass) {
            let rules::Ruled { rcode, extended, zone } = ruled;
            if let Some(zone) = zone {
                self.counters.by_template(zone, qclass, qtype);
            }
            return Some((Unpacked { rcode, authoritative: true, ..Unpacked::default() }, extended));
        }
        let unpacked = server_block.hosts.as_ref()?.answer(lower, qtype)?;
        let failed = unpacked.rcode == rcode::SERVFAIL;
        let why = || Extended::new(Extended::OTHER, "not found in `hosts`, and no fallthrough");
        Some((unpacked, failed.then(why)))
    }

    /// Applies the response rate limit; if exceeded, `out` has the reply to send instead.
    fn may_answer(&self, query: &Query<'_>, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> bool {
        let server_block =
            self.server_block(query.name.as_wire(), request.from).map(|index| &self.server_blocks[index]);
        let limiter = server_block
            .and_then(|server_block| server_block.limiter.as_ref())
            .filter(|_| request.transport == Transport::Udp);
        let Some(limiter) = limiter else { return true };
        match limiter.check(request.from.ip, now) {
            Decision::Answer => return true,
            Decision::Truncate => {
                *out = reply::code(query, rcode::NOERROR, None);
                out[2] |= u8::try_from(flag::TC >> 8).expect("a bit of the first byte");
            }
            Decision::Drop => out.clear(),
        }
        count(&self.counters.limited);
        false
    }

    /// Stages that may wait.
    async fn resolve_slow(self: &Arc<Self>, index: usize, query: &Query<'_>, request: &Request<'_>) -> Vec<u8> {
        let server_block = &self.server_blocks[index];
        let mut out = Vec::new();
        let lower = query.name.as_wire();
        if let Some(rewritten) = rewrite::apply(&server_block.block.rewrites, lower) {
            let outgoing = Outgoing::of(query, &rewritten.name);
            let unpacked = self.resolve_rewritten(&rewritten, &outgoing, request.from, 0).await;
            let answer = Answer::pack(lower, &unpacked);
            self.write(&mut out, query, request, &answer, Ttl::Aged(0), false, None);
            return out;
        }
        if let Some(path) = self.search_path(server_block, lower, query.qtype, request.from.ip)
            && let Some(unpacked) = self.resolve_search_path(&path, query, request.from).await
        {
            count(&self.counters.expanded);
            let answer = Answer::pack(lower, &unpacked);
            self.write(&mut out, query, request, &answer, Ttl::Aged(0), false, None);
            return out;
        }
        match self.resolve_key(index, &KeyRef::of(query).to_key()).await {
            Ok(resolved) => {
                let ResolvedAnswer { entry, ttl, from_cache, extended } = resolved;
                self.write(&mut out, query, request, &entry.answer, ttl, from_cache, extended.as_ref());
                out
            }
            Err(upstream_error) => {
                self.fail(index, lower, query.qtype, &upstream_error.0);
                reply::code(query, code_of(&upstream_error.0), Some(&upstream_error.0))
            }
        }
    }

    /// Counts a failure and logs it if the block has `errors`.
    fn fail(&self, server_block: usize, lower: &[u8], qtype: u16, why: &Extended) {
        count(&self.counters.failed);
        if self.server_blocks[server_block].block.errors {
            let name = Name::from_wire(lower).map(|name| name.to_string()).unwrap_or_default();
            tracing::warn!(name, qtype, reason = why.text, "failed to resolve query");
        }
    }

    /// Counts a cache hit and prefetches a popular answer that is about to expire.
    fn record_hit(&self, server_block: usize, key: KeyRef<'_>, entry: &Entry, now: Instant) {
        let Some(block_cache) = &self.server_blocks[server_block].block_cache else { return };
        let has_data = entry.answer.rcode == rcode::NOERROR && entry.answer.counts[0] > 0;
        let hits = if has_data { &block_cache.counters.success } else { &block_cache.counters.denial };
        hits.count();
        let Some(prefetch) = block_cache.config.prefetch else { return };
        let millis = entry.millis(now);
        let gap = millis.saturating_sub(entry.last.swap(millis, Ordering::Relaxed));
        let hits = if u128::from(gap) > prefetch.gap.as_millis() {
            entry.hits.store(1, Ordering::Relaxed);
            1
        } else {
            entry.hits.fetch_add(1, Ordering::Relaxed) + 1
        };
        let left = entry.ttl.saturating_sub(entry.age(now));
        if hits >= prefetch.hits && left * 100 <= entry.ttl * u32::from(prefetch.percent) {
            // Reset the hit count so that only one prefetch starts.
            entry.hits.store(0, Ordering::Relaxed);
            count(&block_cache.counters.prefetched);
            drop(self.start_or_join(server_block, &key.to_key()));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "reply, request and answer options")]
    fn write(
        &self,
        out: &mut Vec<u8>,
        query: &Query<'_>,
        request: &Request<'_>,
        answer: &Answer,
        ttl: Ttl,
        from_cache: bool,
        extended: Option<&Extended>,
    ) {
        let server_block =
            self.server_block(query.name.as_wire(), request.from).map(|index| &self.server_blocks[index].block);
        let limit = reply::limit(request.transport, query.edns, server_block.and_then(|block| block.bufsize));
        let rotate = if server_block.is_some_and(|block| block.loadbalance) { fastrand::usize(..) } else { 0 };
        reply::write(out, query, answer, ReplyOptions { ttl, limit, from_cache, rotate, extended });
    }

    /// Reloads hosts files while the resolver exists.
    fn watch_hosts_files(self: &Arc<Self>) {
        for (index, server_block) in self.server_blocks.iter().enumerate() {
            let Some((path, interval)) = server_block.hosts.as_ref().and_then(hosts::HostList::file) else { continue };
            let me = self.me.clone();
            let mut text = self.config.hosts.get(&path).cloned().unwrap_or_default();
            self.runtime.spawn(async move {
                loop {
                    tokio::time::sleep(interval).await;
                    let Some(resolver) = me.upgrade() else { return };
                    let Ok(new) = tokio::fs::read_to_string(&path).await else { continue };
                    if new != text
                        && let Some(hosts) = &resolver.server_blocks[index].hosts
                    {
                        hosts.load(&new);
                        text = new;
                    }
                }
            });
        }
    }
}

/// RCODE of a failure: REFUSED if no upstream is configured for the name, otherwise SERVFAIL.
fn code_of(extended: &Extended) -> u16 {
    if extended.code == Extended::NOT_AUTHORITATIVE { rcode::REFUSED } else { rcode::SERVFAIL }
}
