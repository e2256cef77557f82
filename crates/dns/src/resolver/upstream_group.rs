//! Group of upstreams of one `forward` directive.
//!
//! In: queries. Out: an answer or an error before the deadline. If an upstream is slower than a multiple of its usual
//! latency, the next one is queried in parallel and the first answer is used (hedging).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::answer::Unpacked;
use super::message::{Extended, Outgoing, rcode};
use super::stats::{Counters, count};
use super::upstream::{Failure, Upstream};
use crate::config::{Name, Policy};

/// Maximum number of attempts per query.
const MAX_TRIES: usize = 12;
/// Default of `max_concurrent`.
pub(super) const DEFAULT_CONCURRENT: usize = 4096;

/// Upstreams of a `forward` directive.
pub(super) struct UpstreamGroup {
    pub(super) from: Name,
    pub(super) except: Vec<Name>,
    pub(super) upstreams: Vec<Arc<Upstream>>,
    pub(super) policy: Policy,
    pub(super) failfast: bool,
    pub(super) turn: AtomicUsize,
    pub(super) permits: Semaphore,
    pub(super) counters: Arc<Counters>,
}

/// No upstream answered; with the extended DNS error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UpstreamError(pub(super) Extended);

impl UpstreamGroup {
    /// Whether a lower-cased name belongs to this group.
    pub(super) fn covers(&self, lower: &[u8]) -> bool {
        self.from.covers(lower) && !self.except.iter().any(|name| name.covers(lower))
    }

    /// Queries upstreams until one answers.
    pub(super) async fn query(&self, outgoing: Outgoing, deadline: Instant) -> Result<Unpacked, UpstreamError> {
        let Ok(_permit) = self.permits.try_acquire() else {
            count(&self.counters.rejected);
            return Err(upstream_error(Extended::NO_REACHABLE_AUTHORITY, "max_concurrent queries are in flight"));
        };
        let order = self.order();
        if order.is_empty() {
            return Err(self.unavailable());
        }
        HedgedQuery { group: self, order, outgoing: Arc::new(outgoing), next: 0, tries: JoinSet::new() }
            .run(deadline)
            .await
    }

    /// Upstreams in the order in which they are tried.
    fn order(&self) -> Vec<Arc<Upstream>> {
        let usable = self.upstreams.iter().filter(|upstream| upstream.unusable().is_none()).cloned();
        let (down, mut up): (Vec<_>, Vec<_>) = usable.partition(|upstream| upstream.is_down());
        if up.is_empty() {
            // All are down: try them anyway, as they may have recovered.
            if self.failfast || down.is_empty() {
                return Vec::new();
            }
            count(&self.counters.broken);
            return shuffled(down);
        }
        match self.policy {
            Policy::Sequential => {}
            Policy::RoundRobin => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed) % up.len();
                up.rotate_left(turn);
            }
            Policy::Random => {
                up = shuffled(up);
                // Power of two choices: faster upstreams are preferred, slow ones are still measured.
                if up.len() > 1 && up[1].time() * 2 < up[0].time() {
                    up.swap(0, 1);
                }
            }
        }
        up.extend(shuffled(down));
        up
    }

    fn unavailable(&self) -> UpstreamError {
        match self.upstreams.iter().find_map(|upstream| Some((upstream.address, upstream.unusable()?))) {
            Some((address, why)) => upstream_error(Extended::NO_REACHABLE_AUTHORITY, format!("{address}: {why}")),
            None if self.upstreams.is_empty() => {
                upstream_error(Extended::NO_REACHABLE_AUTHORITY, "no upstream is configured")
            }
            None => upstream_error(Extended::NO_REACHABLE_AUTHORITY, "all upstreams are down"),
        }
    }
}

fn upstream_error(code: u16, text: impl Into<String>) -> UpstreamError {
    UpstreamError(Extended::new(code, text))
}

fn shuffled(mut list: Vec<Arc<Upstream>>) -> Vec<Arc<Upstream>> {
    fastrand::shuffle(&mut list);
    list
}

/// Query with its attempts.
struct HedgedQuery<'a> {
    group: &'a UpstreamGroup,
    order: Vec<Arc<Upstream>>,
    outgoing: Arc<Outgoing>,
    /// Number of attempts started.
    next: usize,
    tries: JoinSet<Result<Unpacked, Failure>>,
}

impl HedgedQuery<'_> {
    async fn run(mut self, deadline: Instant) -> Result<Unpacked, UpstreamError> {
        let mut inconclusive = None;
        let mut failure = None;
        self.start_attempt();
        loop {
            let stale_timeout = self.order[(self.next - 1) % self.order.len()].hedge_after();
            tokio::select! {
                Some(done) = self.tries.join_next() => match done {
                    Ok(Ok(answer)) if is_conclusive(&answer) => return Ok(answer),
                    Ok(Ok(answer)) => {
                        inconclusive.get_or_insert(answer);
                        // An upstream that gave a negative result is not retried.
                        if self.next < self.order.len() {
                            self.start_attempt();
                        }
                    }
                    Ok(Err(error)) => {
                        failure = Some(error.to_string());
                        self.start_attempt();
                    }
                    Err(error) => failure = Some(error.to_string()),
                },
                () = sleep(stale_timeout), if self.has_more() && !self.tries.is_empty() => {
                    count(&self.group.counters.hedged);
                    self.start_attempt();
                }
                () = sleep_until(deadline) => {
                    let text = failure.unwrap_or_else(|| "upstreams timed out".into());
                    return inconclusive.ok_or_else(|| upstream_error(Extended::NO_REACHABLE_AUTHORITY, text));
                }
            }
            if self.tries.is_empty() {
                let text = failure.unwrap_or_default();
                return inconclusive.ok_or_else(|| upstream_error(Extended::NETWORK_ERROR, text));
            }
        }
    }

    fn has_more(&self) -> bool {
        self.next < (self.order.len() * 2).min(MAX_TRIES)
    }

    fn start_attempt(&mut self) {
        if self.has_more() {
            let upstream = self.order[self.next % self.order.len()].clone();
            self.next += 1;
            self.tries.spawn(upstream.query(self.outgoing.clone()));
        }
    }
}

/// Whether no other upstream needs to be queried.
fn is_conclusive(answer: &Unpacked) -> bool {
    matches!(answer.rcode, rcode::NOERROR | rcode::NXDOMAIN)
}
