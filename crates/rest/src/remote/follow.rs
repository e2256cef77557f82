//! One watch on a server, kept alive: what to ask next, and what to make of how it ended.
//!
//! In: attempts of [`attempt`](super::attempt). Out: the next attempt. Without a position there is a list to get, with one there
//! is a watch to go on with. Every end of an attempt is one of a few ([`End`]), and each has one consequence:
//!
//! | end | then |
//! |---|---|
//! | in order, or silent for long | on from the position, at once |
//! | history is gone | said; list again, at once |
//! | broken, refused, unreadable | said; on from the position after a pause that grows, with the kubeconfig read anew |
//! | unreadable again and again | list again: perhaps it is one event that cannot be read |

use std::time::Duration;

use store::source::{Event, Feeder, What};
use tokio::time::{Instant, sleep};

use super::Remote;
use super::attempt::{Attempt, Listing};

/// So many attempts in a row may end with something that cannot be read before the list is asked for again.
const UNREADABLE: u32 = 3;
/// A watch that ends sooner, and without a word, has failed.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum End {
    /// Nobody listens any more.
    Unheard,
    /// The server ended it, or was silent for long.
    Over,
    /// The position is forgotten.
    Expired(String),
    /// The list cannot be had in this manner.
    Simpler(Listing),
    /// The server has no such kind, or does not show it.
    Absent(String),
    /// It refused otherwise, and perhaps said how long to wait.
    Refused {
        /// The HTTP status.
        code: u16,
        why: String,
        wait: Duration,
    },
    /// The connection failed.
    Broken(String),
    /// What it sent makes no sense.
    Unreadable(String),
}

/// Where a watch is.
pub(super) struct State {
    pub(super) what: What,
    pub(super) out: Feeder,
    /// The resource version up to which everything was handed on; none while there is a list to get.
    pub(super) position: Option<String>,
    pub(super) listing: Listing,
    /// When the server was last heard of.
    pub(super) heard: Instant,
    /// Whether this attempt has brought anything.
    pub(super) progress: bool,
}

/// Follows until nobody listens.
pub(super) async fn run(remote: Remote, what: What, out: Feeder) {
    let (position, heard) = (None, Instant::now());
    let mut state = State { what, out, position, listing: Listing::Streamed, heard, progress: false };
    let mut pause = Pause::new(remote.timing.first_pause, remote.timing.longest_pause);
    let (mut unreadable, mut listed, mut absent) = (0, false, false);
    loop {
        let begun = Instant::now();
        state.progress = false;
        let end = Attempt::new(&remote, &mut state).run().await;
        let lasted = begun.elapsed();
        listed |= state.position.is_some();
        if state.progress {
            pause.reset();
            unreadable = 0;
        }
        tracing::debug!(watch = %state.what, ?end, ?lasted, position = ?state.position, "a request has ended");
        let (why, wait) = match end {
            End::Unheard => return,
            End::Over if state.progress || lasted >= TOO_SHORT => continue,
            End::Simpler(listing) => {
                state.listing = listing;
                continue;
            }
            End::Expired(why) => {
                state.position = None;
                // A server that forgets everything at once would be asked without end.
                (why, if state.progress { Duration::ZERO } else { pause.next() })
            }
            End::Absent(why) if state.what.is_optional() && !listed => {
                if !std::mem::replace(&mut absent, true) && !stand_empty(&state, &why).await {
                    return;
                }
                sleep(remote.timing.absent).await;
                continue;
            }
            End::Over => ("the server ends the watch at once".to_owned(), pause.next()),
            End::Absent(why) | End::Broken(why) => (why, pause.next()),
            End::Refused { why, wait, .. } => (why, pause.next().max(wait)),
            End::Unreadable(why) => {
                unreadable += 1;
                if unreadable % UNREADABLE == 0 {
                    state.position = None;
                }
                (why, pause.next())
            }
        };
        state.out.lost(state.heard, &why);
        sleep(wait).await;
        remote.server.reread();
    }
}

/// A kind that the server does not have is a kind without objects.
async fn stand_empty(state: &State, why: &str) -> bool {
    tracing::info!(watch = %state.what, why, "the server does not have this kind for us; it counts as empty");
    state.out.send(Event::Init).await && state.out.send(Event::InitDone).await
}

/// Pauses that grow, each somewhere between half and whole, so that not all come back at once.
struct Pause {
    first: Duration,
    longest: Duration,
    current: Duration,
}

impl Pause {
    const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, current: first }
    }

    const fn reset(&mut self) {
        self.current = self.first;
    }

    fn next(&mut self) -> Duration {
        let pause = self.current;
        self.current = (self.current * 2).min(self.longest);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_again() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(10));
        let mut pause = Pause::new(first, longest);
        let mut most = first;
        for _ in 0..20 {
            let next = pause.next();
            assert!(next >= most / 2 && next <= most, "{next:?} of {most:?}");
            most = (most * 2).min(longest);
        }
        assert_eq!(most, longest);
        pause.reset();
        assert!(pause.next() <= first);
    }
}
