//! Keeps one watch alive: decides what follows the end of each attempt.
//!
//! In: the [`End`] of an [`Attempt`]. Out: the next attempt. Without a position the list is requested, with one the watch resumes there.
//!
//! | end | then |
//! |---|---|
//! | finished, or idle for long | resume at the position, at once |
//! | position expired (410) | relist, at once |
//! | disconnected, refused, malformed | resume at the position after a backoff, with the kubeconfig read again |
//! | malformed three times in a row | relist: one event may be undecodable |
//! | the server has no streaming lists | list in pages, then watch |
//! | streaming list failed twice in a row | the same: a proxy may cut long streams |

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Remote;
use super::attempt::{Attempt, Listing};
use crate::watch::{Event, Selection, WatchSender};

/// Malformed attempts in a row before a relist.
const MAX_MALFORMED: u32 = 3;
/// Failed streaming lists in a row before lists are requested in pages.
const MAX_STREAM_FAILURES: u32 = 2;
/// Refusals in a row after which an object that was listed counts as deleted.
const MAX_REFUSALS: u32 = 3;
/// A watch that ends sooner and without an event has failed.
const MIN_DURATION: Duration = Duration::from_secs(1);

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum End {
    /// The consumer dropped the watch.
    Dropped,
    /// The server ended it, or it was idle for long.
    Finished,
    /// The position is no longer in the history of the server.
    Expired(String),
    /// The server cannot list in this way.
    FallBack(Listing),
    /// The server does not serve the kind, or forbids it.
    NotServed { code: u16, reason: String },
    /// Another error response, perhaps with `Retry-After`.
    Refused { code: u16, reason: String, retry_after: Duration },
    /// The connection failed.
    Disconnected(String),
    /// The response cannot be decoded.
    Malformed(String),
}

/// The state of a watch across attempts.
pub(super) struct State {
    pub(super) selection: Selection,
    pub(super) out: WatchSender,
    /// The resourceVersion up to which events were delivered; none before a list is complete.
    pub(super) position: Option<String>,
    pub(super) listing: Listing,
    /// When the server last sent something.
    pub(super) heard: Instant,
    /// Whether this attempt has delivered something.
    pub(super) progress: bool,
}

/// Runs until the consumer drops the watch.
pub(super) async fn run(remote: Remote, selection: Selection, out: WatchSender) {
    let (position, heard) = (None, Instant::now());
    let mut state = State { selection, out, position, listing: Listing::Streamed, heard, progress: false };
    let mut backoff = Backoff::new(remote.timing.min_backoff, remote.timing.max_backoff);
    let (mut malformed, mut stream_failures, mut refusals, mut listed, mut absent) = (0, 0, 0, false, false);
    loop {
        let begun = Instant::now();
        state.progress = false;
        let end = Attempt::new(&remote, &mut state).run().await;
        let lasted = begun.elapsed();
        listed |= state.position.is_some();
        absent &= !listed;
        refusals = if matches!(end, End::NotServed { .. }) { refusals + 1 } else { 0 };
        if state.progress {
            backoff.reset();
            (malformed, stream_failures) = (0, 0);
        }
        tracing::debug!(watch = %state.selection, ?end, ?lasted, position = ?state.position, "watch request ended");
        if failed_stream(&state, &end, begun) {
            stream_failures += 1;
            if stream_failures >= MAX_STREAM_FAILURES {
                state.listing = Listing::Pages;
            }
        }
        let (reason, wait) = match end {
            End::Dropped => return,
            End::Finished if state.progress || lasted >= MIN_DURATION => continue,
            End::FallBack(listing) => {
                state.listing = listing;
                continue;
            }
            End::Expired(reason) => {
                state.position = None;
                // Without progress a backoff, or a server without history would be polled in a tight loop.
                (reason, if state.progress { Duration::ZERO } else { backoff.next() })
            }
            End::NotServed { code, reason }
                if state.selection.is_empty_at(code) && (!listed || is_gone(&state, refusals)) =>
            {
                (state.position, listed) = (None, false);
                if !std::mem::replace(&mut absent, true) && !send_empty(&state, &reason).await {
                    return;
                }
                sleep(remote.timing.not_served).await;
                continue;
            }
            End::Finished => ("the server ends the watch at once".to_owned(), backoff.next()),
            End::NotServed { reason, .. } | End::Disconnected(reason) => (reason, backoff.next()),
            End::Refused { reason, retry_after, .. } => (reason, backoff.next().max(retry_after)),
            End::Malformed(reason) => {
                malformed += 1;
                if malformed % MAX_MALFORMED == 0 {
                    state.position = None;
                }
                (reason, backoff.next())
            }
        };
        state.out.failed(state.heard, &reason);
        sleep(wait).await;
        remote.server.reread();
    }
}

/// Whether this was a streaming list that a server, or a proxy in front of it, refused or cut. A server that cannot be reached did neither.
fn failed_stream(state: &State, end: &End, begun: Instant) -> bool {
    let failed = match end {
        End::Disconnected(_) => state.heard > begun,
        End::Refused { code: 500.., .. } => true,
        _ => false,
    };
    failed && state.position.is_none() && state.listing == Listing::Streamed
}

/// Whether an object that was listed is there no longer: servers forbid to read what their rules do not know.
fn is_gone(state: &State, refusals: u32) -> bool {
    state.selection.is_single() && refusals >= MAX_REFUSALS
}

/// A kind that the server does not serve has no objects.
async fn send_empty(state: &State, reason: &str) -> bool {
    tracing::info!(watch = %state.selection, reason, "kind not served, treating it as empty");
    state.out.send(Event::Init).await && state.out.send(Event::InitDone).await
}

/// Exponential backoff with jitter: each delay is between half and all of the current limit.
struct Backoff {
    min: Duration,
    max: Duration,
    current: Duration,
}

impl Backoff {
    const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, current: min }
    }

    const fn reset(&mut self) {
        self.current = self.min;
    }

    fn next(&mut self) -> Duration {
        let delay = self.current;
        self.current = (self.current * 2).min(self.max);
        delay.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_a_limit_and_resets() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(10));
        let mut backoff = Backoff::new(min, max);
        let mut limit = min;
        for _ in 0..20 {
            let next = backoff.next();
            assert!(next >= limit / 2 && next <= limit, "{next:?} of {limit:?}");
            limit = (limit * 2).min(max);
        }
        assert_eq!(limit, max);
        backoff.reset();
        assert!(backoff.next() <= min);
    }
}
