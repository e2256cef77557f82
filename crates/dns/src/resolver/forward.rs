//! Upstreams for the names below one: who is asked, in which order, and when the next one.
//!
//! In: questions. Out: answers, or why there is none, always before the deadline. A slow upstream does not hold a question
//! up: after a multiple of its usual time the next one is asked beside it, and the first answer counts.

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

/// Tries for one question.
const MAX_TRIES: usize = 12;
/// Questions under way when the configuration does not say.
pub(super) const DEFAULT_CONCURRENT: usize = 4096;

/// Some upstreams.
pub(super) struct Group {
    pub(super) from: Name,
    pub(super) except: Vec<Name>,
    pub(super) upstreams: Vec<Arc<Upstream>>,
    pub(super) policy: Policy,
    pub(super) failfast: bool,
    pub(super) turn: AtomicUsize,
    pub(super) permits: Semaphore,
    pub(super) counters: Arc<Counters>,
}

/// Nobody knew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Nobody(pub(super) Extended);

impl Group {
    /// Whether a lower-cased name is asked for here.
    pub(super) fn covers(&self, lower: &[u8]) -> bool {
        self.from.covers(lower) && !self.except.iter().any(|name| name.covers(lower))
    }

    /// Asks until somebody answers.
    pub(super) async fn ask(&self, outgoing: Outgoing, deadline: Instant) -> Result<Unpacked, Nobody> {
        let Ok(_permit) = self.permits.try_acquire() else {
            count(&self.counters.rejected);
            return Err(nobody(Extended::NO_REACHABLE_AUTHORITY, "too many questions are under way"));
        };
        let order = self.order();
        if order.is_empty() {
            return Err(self.why_nobody());
        }
        Race { group: self, order, outgoing: Arc::new(outgoing), next: 0, tries: JoinSet::new() }.run(deadline).await
    }

    /// Who is asked, first to last.
    fn order(&self) -> Vec<Arc<Upstream>> {
        let usable = self.upstreams.iter().filter(|upstream| upstream.unusable().is_none()).cloned();
        let (down, mut up): (Vec<_>, Vec<_>) = usable.partition(|upstream| upstream.is_down());
        if up.is_empty() {
            // Perhaps they are back already; failing without a try would make an outage longer than it is.
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
                // The better of two: quick ones more often, slow ones often enough to notice when they are no longer slow.
                if up.len() > 1 && up[1].time() * 2 < up[0].time() {
                    up.swap(0, 1);
                }
            }
        }
        up.extend(shuffled(down));
        up
    }

    fn why_nobody(&self) -> Nobody {
        match self.upstreams.iter().find_map(|upstream| Some((upstream.address, upstream.unusable()?))) {
            Some((address, why)) => nobody(Extended::NO_REACHABLE_AUTHORITY, format!("{address}: {why}")),
            None if self.upstreams.is_empty() => nobody(Extended::NO_REACHABLE_AUTHORITY, "there is no upstream"),
            None => nobody(Extended::NO_REACHABLE_AUTHORITY, "all upstreams are down"),
        }
    }
}

fn nobody(code: u16, text: impl Into<String>) -> Nobody {
    Nobody(Extended::new(code, text))
}

fn shuffled(mut list: Vec<Arc<Upstream>>) -> Vec<Arc<Upstream>> {
    fastrand::shuffle(&mut list);
    list
}

/// One question on its way.
struct Race<'a> {
    group: &'a Group,
    order: Vec<Arc<Upstream>>,
    outgoing: Arc<Outgoing>,
    /// Tries that were begun.
    next: usize,
    tries: JoinSet<Result<Unpacked, Failure>>,
}

impl Race<'_> {
    async fn run(mut self, deadline: Instant) -> Result<Unpacked, Nobody> {
        let mut unhelpful = None;
        let mut failure = None;
        self.begin();
        loop {
            let patience = self.order[(self.next - 1) % self.order.len()].hedge_after();
            tokio::select! {
                Some(done) = self.tries.join_next() => match done {
                    Ok(Ok(answer)) if is_helpful(&answer) => return Ok(answer),
                    Ok(Ok(answer)) => {
                        unhelpful.get_or_insert(answer);
                        // Whoever said that he cannot help is not asked twice.
                        if self.next < self.order.len() {
                            self.begin();
                        }
                    }
                    Ok(Err(error)) => {
                        failure = Some(error.to_string());
                        self.begin();
                    }
                    Err(error) => failure = Some(error.to_string()),
                },
                () = sleep(patience), if self.has_more() && !self.tries.is_empty() => {
                    count(&self.group.counters.hedged);
                    self.begin();
                }
                () = sleep_until(deadline) => {
                    let text = failure.unwrap_or_else(|| "no upstream answered in time".into());
                    return unhelpful.ok_or_else(|| nobody(Extended::NO_REACHABLE_AUTHORITY, text));
                }
            }
            if self.tries.is_empty() {
                let text = failure.unwrap_or_default();
                return unhelpful.ok_or_else(|| nobody(Extended::NETWORK_ERROR, text));
            }
        }
    }

    fn has_more(&self) -> bool {
        self.next < (self.order.len() * 2).min(MAX_TRIES)
    }

    fn begin(&mut self) {
        if self.has_more() {
            let upstream = self.order[self.next % self.order.len()].clone();
            self.next += 1;
            self.tries.spawn(upstream.ask(self.outgoing.clone()));
        }
    }
}

/// Whether nobody else needs to be asked.
fn is_helpful(answer: &Unpacked) -> bool {
    matches!(answer.rcode, rcode::NOERROR | rcode::NXDOMAIN)
}
