//! Coalescing of equal queries, and cache access.
//!
//! In: a cache key. Out: its answer, for every task that waits for it. The upstream query is a separate task, so that
//! it continues when a client disconnects.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::answer::Answer;
use super::cache::{Entry, Key};
use super::message::{Extended, Outgoing, rcode};
use super::reply::Ttl;
use super::server_block::{CacheLookup, is_answer};
use super::stats::count;
use super::upstream_group::UpstreamError;
use super::{ResolvedAnswer, Resolver};
use crate::config::Name;

/// How long a stale answer is served without a new attempt after upstreams failed.
const STALE_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// TTL of stale answers in seconds (RFC 8767).
const STALE_TTL: u32 = 30;

/// Result of an upstream query.
type UpstreamResult = Result<Arc<Entry>, UpstreamError>;
/// Receiver of the result.
pub(super) type PendingResult = watch::Receiver<Option<UpstreamResult>>;

impl Resolver {
    /// Answer from the cache or from upstreams, or a stale one.
    pub(super) async fn resolve_key(
        self: &Arc<Self>,
        server_block: usize,
        key: &Key,
    ) -> Result<ResolvedAnswer, UpstreamError> {
        let now = (self.config.clock)();
        let block_cache = self.server_blocks[server_block].block_cache(&key.name);
        let found = block_cache.map_or(CacheLookup::Miss, |block_cache| block_cache.find(key.as_ref(), now));
        let old = match found {
            CacheLookup::Fresh(entry) => return Ok(self.hit(server_block, key, entry, now)),
            CacheLookup::Stale(entry) => entry,
            CacheLookup::Miss => {
                self.missed(server_block, key);
                return wait_for_result(self.start_or_join(server_block, key))
                    .await
                    .map(|entry| ResolvedAnswer::fresh(entry, None));
            }
        };
        self.missed(server_block, key);
        let retry_suppressed = old.millis(now) < old.retry_after.load(std::sync::atomic::Ordering::Relaxed);
        let verify = block_cache.is_some_and(|block_cache| block_cache.config.stale_verify);
        if !retry_suppressed {
            let waiting = self.start_or_join(server_block, key);
            if verify
                && let Ok(Ok(entry)) = timeout(self.config.stale_timeout, wait_for_result(waiting)).await
                && is_answer(&entry.answer)
            {
                return Ok(ResolvedAnswer::fresh(entry, None));
            }
            let until = old.millis(now) + u64::try_from(STALE_RETRY_INTERVAL.as_millis()).unwrap_or(0);
            old.retry_after.store(until, std::sync::atomic::Ordering::Relaxed);
        }
        if let Some(block_cache) = block_cache {
            count(&block_cache.counters.stale);
        }
        let code = if old.answer.rcode == rcode::NXDOMAIN { Extended::STALE_NXDOMAIN } else { Extended::STALE };
        let extended = Some(Extended::new(code, "upstreams failed, serving a stale answer"));
        Ok(ResolvedAnswer { entry: old, ttl: Ttl::Fixed(STALE_TTL), from_cache: true, extended })
    }

    fn missed(&self, server_block: usize, key: &Key) {
        let block_cache = self.server_blocks[server_block].block_cache(&key.name);
        count(block_cache.map_or(&self.counters.misses, |block_cache| &block_cache.counters.misses));
    }

    /// Answer from the cache.
    pub(super) fn hit(
        &self,
        server_block: usize,
        key: &Key,
        entry: Arc<Entry>,
        now: std::time::Instant,
    ) -> ResolvedAnswer {
        self.record_hit(server_block, key.as_ref(), &entry, now);
        let keep = self.server_blocks[server_block]
            .block_cache
            .as_ref()
            .is_some_and(|block_cache| block_cache.config.keep_ttl);
        let ttl = Ttl::Aged(if keep { 0 } else { entry.seconds(now) });
        ResolvedAnswer { entry, ttl, from_cache: true, extended: None }
    }

    /// Joins the upstream query for a key, or starts it.
    pub(super) fn start_or_join(&self, server_block: usize, key: &Key) -> PendingResult {
        let mut inflight = self.inflight.lock();
        let inflight_key = (server_block, key.clone());
        if let Some(waiting) = inflight.get(&inflight_key) {
            count(&self.counters.coalesced);
            return waiting.clone();
        }
        let (sender, waiting) = watch::channel(None);
        inflight.insert(inflight_key.clone(), waiting.clone());
        drop(inflight);
        let Some(resolver) = self.me.upgrade() else { return waiting };
        self.runtime.spawn(async move {
            let guard = InflightGuard { resolver: &resolver, key: &inflight_key };
            let result = resolver.query_upstreams(inflight_key.0, &inflight_key.1).await;
            // Remove it from the map before publishing the result: later queries must not join a completed one.
            drop(guard);
            sender.send_replace(Some(result));
        });
        waiting
    }

    async fn query_upstreams(&self, server_block: usize, key: &Key) -> UpstreamResult {
        let server_block = &self.server_blocks[server_block];
        let upstream_error = |text| UpstreamError(Extended::new(Extended::NOT_AUTHORITATIVE, text));
        let group =
            server_block.group(&key.name).ok_or_else(|| upstream_error("no upstream is configured for this name"))?;
        let outgoing = Outgoing {
            name: Name::from_wire(&key.name).ok_or_else(|| upstream_error("invalid name"))?,
            qtype: key.qtype,
            qclass: key.qclass,
            recursion: true,
            dnssec: key.dnssec,
            checking_disabled: key.checking_disabled,
        };
        let answer = group.query(outgoing, Instant::now() + self.config.query_timeout).await?;
        let now = (self.config.clock)();
        Ok(match server_block.block_cache(&key.name) {
            Some(block_cache) => block_cache.insert(key, answer, now),
            None => Arc::new(Entry::new(Answer::pack(&key.name, &answer), now, Duration::ZERO)),
        })
    }
}

/// Waits for the result of an upstream query.
async fn wait_for_result(mut waiting: PendingResult) -> UpstreamResult {
    let cancelled_error = || UpstreamError(Extended::new(Extended::NETWORK_ERROR, "the query was cancelled"));
    let result = waiting.wait_for(Option::is_some).await.map_err(|_| cancelled_error())?;
    result.clone().unwrap_or_else(|| Err(cancelled_error()))
}

/// Removes an upstream query from the map when dropped.
struct InflightGuard<'a> {
    resolver: &'a Resolver,
    key: &'a (usize, Key),
}

impl Drop for InflightGuard<'_> {
    fn drop(&mut self) {
        self.resolver.inflight.lock().remove(self.key);
    }
}
