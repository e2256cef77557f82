//! Probes: kinds, timing, thresholds and results.
//!
//! In: a probe of the spec. Out: verdicts when the thresholds are met. Counting is pure ([`Tally`]); [`run`] performs the probe.

pub mod run;

use std::time::Duration;

use api::value::ValueExt as _;
use serde_json::Value;

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whether the application has started; the other probes wait for it.
    Startup,
    /// Whether the container may receive traffic.
    Readiness,
    /// Whether the container must be restarted.
    Liveness,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// The field of the container spec.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Readiness => "readinessProbe",
            Self::Liveness => "livenessProbe",
        }
    }

    /// The name in Event messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// Timing and thresholds of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// `initialDelaySeconds`
    pub delay: Duration,
    /// `periodSeconds`
    pub period: Duration,
    /// `timeoutSeconds`
    pub timeout: Duration,
    /// `successThreshold`
    pub successes: u32,
    /// `failureThreshold`
    pub failures: u32,
}

impl Timing {
    /// Reads a probe.
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

/// Counts consecutive results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    timing: Timing,
    good: u32,
    bad: u32,
}

impl Tally {
    /// No results yet.
    #[must_use]
    pub const fn new(timing: Timing) -> Self {
        Self { timing, good: 0, bad: 0 }
    }

    /// Adds a result; returns success or failure when its threshold is met.
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

/// The result of a probe after thresholds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The startup probe succeeded.
    Started,
    /// The readiness changed.
    Ready(bool),
    /// The container must be restarted, with the message of the Event.
    Dead(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_count_when_the_threshold_is_met() {
        let timing = Timing::read(&json!({"failureThreshold": 2, "successThreshold": 2, "periodSeconds": 3}));
        assert_eq!((timing.period, timing.timeout), (Duration::from_secs(3), Duration::from_secs(1)));
        let mut tally = Tally::new(timing);
        let answers = [true, false, true, true, true, false, true, false, false, false];
        let certain: Vec<Option<bool>> = answers.iter().map(|good| tally.count(*good)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(certain, [None, None, None, yes, yes, None, None, None, no, no]);
    }
}
