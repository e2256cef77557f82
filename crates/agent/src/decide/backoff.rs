//! Restart backoff: none, 10 s, 20 s, … at most 5 minutes; reset after an instance that ran for 10 minutes.

use jiff::{SignedDuration, Timestamp};

const MIN_SECONDS: u32 = 10;
const MAX_SECONDS: u32 = 300;
/// The backoff is reset after an instance that ran this long.
const RESET_AFTER: SignedDuration = SignedDuration::from_secs(600);

/// When the next instance starts.
#[must_use]
pub fn until(finished: Timestamp, seconds: u32) -> Timestamp {
    finished.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MAX)
}

/// The backoff after the next failure, in seconds, given the current one.
#[must_use]
pub fn next(before: u32) -> u32 {
    if before == 0 { MIN_SECONDS } else { (before * 2).min(MAX_SECONDS) }
}

/// The backoff after an instance exited, given the one that was planned when it started.
#[must_use]
pub fn after_run(planned: u32, started: Option<Timestamp>, finished: Timestamp) -> u32 {
    let is_long_run = started.is_some_and(|started| finished.duration_since(started) >= RESET_AFTER);
    if is_long_run { 0 } else { planned }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_five_minutes_and_is_reset_after_ten() {
        let mut waits = vec![0];
        for _ in 0..7 {
            waits.push(next(*waits.last().expect("one")));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        let started = Timestamp::UNIX_EPOCH;
        let later = |seconds| until(started, seconds);
        assert_eq!(after_run(160, Some(started), later(599)), 160);
        assert_eq!(after_run(160, Some(started), later(600)), 0);
        assert_eq!(after_run(160, None, later(600)), 160);
    }
}
