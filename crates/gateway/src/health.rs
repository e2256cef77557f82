//! Health of an endpoint: when its errors lead to an ejection, how long that lasts, and how it ends. Pure.
//!
//! In: outcomes of requests, and the time in milliseconds since some moment. Out: the next state.
//!
//! ```text
//!            errors in a row, room for an ejection          time is over: one request is let through
//! Usable ───────────────────────────────────────▶ Ejected ─────────────────────────────────────────▶ Probing
//!    ▲                                            │  ▲ └──────── request given up ◀───────────────────┤ │
//!    │◀──── success of a request without choice ──┘  └────────── it fails: twice as long ◀────────────┘ │
//!    └────────────────────────────────────── it succeeds ◀──────────────────────────────────────────────┘
//! ```
//! A state is one word, so that the data path reads and replaces it atomically.

use std::time::Duration;

/// How often the time of an ejection doubles at most.
const MAX_LEVEL: u8 = 31;
/// Where the members are in a word: errors, phase, level, time.
const SHIFTS: [u32; 3] = [16, 18, 24];
/// The bits of errors and phase.
const QUIET_MASK: u64 = (1 << SHIFTS[1]) - 1;
/// The latest time, in milliseconds: 34 years.
const MAX_TIME: u64 = (1 << 40) - 1;

/// Health of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Health {
    phase: Phase,
    /// Errors in a row.
    errors: u16,
    /// Number of ejections since it was usable for long.
    level: u8,
    /// Usable: since when. Ejected: until when. Probing: when another request may be let through.
    time: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Usable,
    Ejected,
    Probing,
    /// The endpoint was removed; nothing changes any more.
    Removed,
}

/// How a request came to an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// The endpoint was usable.
    Usable,
    /// It was ejected and the time was over: the outcome decides.
    Probe,
    /// It was ejected, and so were all others.
    Forced,
}

/// When an endpoint is ejected, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Errors in a row; never if 0.
    pub(crate) errors: u16,
    /// Time of the first ejection; it doubles with each that follows.
    pub(crate) base: Duration,
    /// Longest time of an ejection; after as long without one, the next is a first one.
    pub(crate) max: Duration,
}

impl Rules {
    /// The time of an ejection in milliseconds.
    fn time(&self, level: u8) -> u64 {
        let time = self.base.saturating_mul(1_u32 << level.min(MAX_LEVEL)).min(self.max.max(self.base));
        millis(time).max(1)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(MAX_TIME).min(MAX_TIME)
}

impl Health {
    pub(crate) const fn new(now: u64) -> Self {
        Self { phase: Phase::Usable, errors: 0, level: 0, time: now }
    }

    pub(crate) const fn is_usable(self) -> bool {
        matches!(self.phase, Phase::Usable)
    }

    pub(crate) const fn is_ejected(self) -> bool {
        matches!(self.phase, Phase::Ejected | Phase::Probing)
    }

    /// Whether a request may be sent: the endpoint is usable, or the time of its ejection is over.
    pub(crate) const fn is_open(self, now: u64) -> bool {
        self.is_usable() || (self.is_ejected() && now >= self.time)
    }

    /// Lets a request through; none if it is not open. Until `lease` has passed, it is the only one after an ejection.
    pub(crate) fn admit(self, now: u64, lease: Duration) -> Option<(Self, Pass)> {
        if self.is_usable() {
            return Some((self, Pass::Usable));
        }
        let time = now.saturating_add(millis(lease)).min(MAX_TIME);
        self.is_open(now).then_some((Self { phase: Phase::Probing, time, ..self }, Pass::Probe))
    }

    /// The state after a success.
    pub(crate) const fn succeed(self, pass: Pass, now: u64) -> Self {
        match (self.phase, pass) {
            (Phase::Usable, _) => Self { errors: 0, ..self },
            (Phase::Ejected | Phase::Probing, Pass::Probe | Pass::Forced) => {
                Self { phase: Phase::Usable, errors: 0, time: now, ..self }
            }
            // The request began before the ejection.
            (_, Pass::Usable) | (Phase::Removed, _) => self,
        }
    }

    /// The state after an error. `eject` says whether one more endpoint may be ejected.
    pub(crate) fn fail(self, pass: Pass, now: u64, rules: &Rules, eject: impl FnOnce() -> bool) -> Self {
        match (self.phase, pass) {
            (Phase::Usable, _) if rules.errors > 0 => {
                let errors = self.errors.saturating_add(1);
                if errors < rules.errors || !eject() {
                    return Self { errors: errors.min(rules.errors), ..self };
                }
                let was_long = now.saturating_sub(self.time) >= millis(rules.max);
                Self { level: if was_long { 0 } else { self.level }, ..self }.ejected(now, rules)
            }
            (Phase::Probing, Pass::Probe) => self.ejected(now, rules),
            _ => self,
        }
    }

    /// The state after a request that was let through was given up without an outcome.
    pub(crate) const fn give_up(self) -> Self {
        match self.phase {
            Phase::Probing => Self { phase: Phase::Ejected, time: 0, ..self },
            _ => self,
        }
    }

    /// The state of an endpoint that was removed.
    pub(crate) const fn removed() -> Self {
        Self { phase: Phase::Removed, errors: 0, level: 0, time: 0 }
    }

    fn ejected(self, now: u64, rules: &Rules) -> Self {
        let time = now.saturating_add(rules.time(self.level)).min(MAX_TIME);
        Self { phase: Phase::Ejected, errors: 0, level: (self.level + 1).min(MAX_LEVEL), time }
    }

    pub(crate) const fn to_word(self) -> u64 {
        let phase = match self.phase {
            Phase::Usable => 0_u64,
            Phase::Ejected => 1,
            Phase::Probing => 2,
            Phase::Removed => 3,
        };
        self.errors as u64 | phase << SHIFTS[0] | (self.level as u64) << SHIFTS[1] | self.time << SHIFTS[2]
    }

    pub(crate) const fn of_word(word: u64) -> Self {
        let phase = match word >> SHIFTS[0] & 3 {
            0 => Phase::Usable,
            1 => Phase::Ejected,
            2 => Phase::Probing,
            _ => Phase::Removed,
        };
        let (errors, level) = ((word & 0xffff) as u16, (word >> SHIFTS[1] & 0x3f) as u8);
        Self { phase, errors, level, time: word >> SHIFTS[2] }
    }

    /// Whether a word is a usable endpoint without errors, which a success does not change.
    pub(crate) const fn is_quiet(word: u64) -> bool {
        word & QUIET_MASK == 0
    }
}

#[cfg(test)]
mod tests;
