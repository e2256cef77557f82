//! Probes: a question to a container, asked again and again, and what follows from the answers.
//!
//! In: a probe of the spec and where the container is. Out: verdicts, said when they change. Counting is pure ([`Tally`]); asking is in
//! [`ask`].

pub mod ask;

use std::time::Duration;

use api::value::ValueExt as _;
use serde_json::Value;

/// Which of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whether it has begun its work; until then the others wait.
    Startup,
    /// Whether it may be given work.
    Readiness,
    /// Whether it must be begun again.
    Liveness,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// The field of the container.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Readiness => "readinessProbe",
            Self::Liveness => "livenessProbe",
        }
    }

    /// In sentences.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// When a probe is asked, and how often it must answer alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Before the first question.
    pub delay: Duration,
    /// Between questions.
    pub period: Duration,
    /// For an answer.
    pub timeout: Duration,
    /// How many good answers in a row are a success.
    pub successes: u32,
    /// How many bad ones are a failure.
    pub failures: u32,
}

impl Timing {
    /// Reads it.
    #[must_use]
    pub fn read(probe: &Value) -> Self {
        let number = |field: &str, otherwise: u64| match probe.at(field).as_u64() {
            None | Some(0) => otherwise,
            Some(number) => number,
        };
        let count = |field: &str, otherwise: u64| u32::try_from(number(field, otherwise)).unwrap_or(u32::MAX);
        Self {
            delay: Duration::from_secs(number("initialDelaySeconds", 0)),
            period: Duration::from_secs(number("periodSeconds", 10)),
            timeout: Duration::from_secs(number("timeoutSeconds", 1)),
            successes: count("successThreshold", 1),
            failures: count("failureThreshold", 3),
        }
    }
}

/// Counts answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    timing: Timing,
    good: u32,
    bad: u32,
}

impl Tally {
    /// Nothing was answered yet.
    #[must_use]
    pub const fn new(timing: Timing) -> Self {
        Self { timing, good: 0, bad: 0 }
    }

    /// Takes an answer; says what is now certain: a success, a failure, or nothing.
    pub fn count(&mut self, good: bool) -> Option<bool> {
        if good {
            (self.good, self.bad) = (self.good.saturating_add(1), 0);
            (self.good >= self.timing.successes).then_some(true)
        } else {
            (self.good, self.bad) = (0, self.bad.saturating_add(1));
            (self.bad >= self.timing.failures).then_some(false)
        }
    }
}

/// What follows from answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The container has begun its work.
    Started,
    /// It may be given work, or may not.
    Ready(bool),
    /// It must be begun again, and this is why.
    Dead(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_count_when_they_are_many_enough_in_a_row() {
        let timing = Timing::read(&json!({"failureThreshold": 2, "successThreshold": 2, "periodSeconds": 3}));
        assert_eq!((timing.period, timing.timeout), (Duration::from_secs(3), Duration::from_secs(1)));
        let mut tally = Tally::new(timing);
        let answers = [true, false, true, true, true, false, true, false, false, false];
        let certain: Vec<Option<bool>> = answers.iter().map(|good| tally.count(*good)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(certain, [None, None, None, yes, yes, None, None, None, no, no]);
    }
}
