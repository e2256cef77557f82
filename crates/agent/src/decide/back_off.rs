//! How long a container that has ended waits before it begins again: not at all, 10 seconds, 20, … five minutes; anew after it has run
//! for ten minutes.

use jiff::{SignedDuration, Timestamp};

const FIRST: u32 = 10;
const LONGEST: u32 = 300;
/// Who has run for so long has done well.
const WELL: SignedDuration = SignedDuration::from_secs(600);

/// When it begins again.
#[must_use]
pub fn until(finished: Timestamp, seconds: u32) -> Timestamp {
    finished.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(Timestamp::MAX)
}

/// How long an instance that begins now will wait after its end, given how long the one before it had waited.
#[must_use]
pub fn next(before: u32) -> u32 {
    if before == 0 { FIRST } else { (before * 2).min(LONGEST) }
}

/// How long an instance that has ended waits, given what was meant for it when it began.
#[must_use]
pub fn after_run(meant: u32, started: Option<Timestamp>, finished: Timestamp) -> u32 {
    let well = started.is_some_and(|started| finished.duration_since(started) >= WELL);
    if well { 0 } else { meant }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_five_minutes_and_are_forgotten_after_ten() {
        let mut waits = vec![0];
        for _ in 0..7 {
            waits.push(next(*waits.last().expect("one")));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        let began = Timestamp::UNIX_EPOCH;
        let later = |seconds| until(began, seconds);
        assert_eq!(after_run(160, Some(began), later(599)), 160);
        assert_eq!(after_run(160, Some(began), later(600)), 0);
        assert_eq!(after_run(160, None, later(600)), 160);
    }
}
