//! Clock of the data path: the time for ejections and slow start, and the date for sessions. Tests stop it.

use std::time::Instant;

use jiff::Timestamp;

/// A clock. Clones show the same time.
#[derive(Clone, Default)]
pub(crate) struct Clock {
    #[cfg(test)]
    stopped: Option<std::sync::Arc<stopped::Stopped>>,
}

#[cfg(not(test))]
#[expect(clippy::unused_self, reason = "the clock of tests has state")]
impl Clock {
    pub(crate) fn now(&self) -> Instant {
        Instant::now()
    }

    pub(crate) fn date(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[cfg(test)]
mod stopped {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    /// The time since a clock was stopped.
    pub(crate) struct Stopped {
        start: (Instant, Timestamp),
        since: Mutex<Duration>,
    }

    impl Clock {
        /// A clock that only [`Clock::advance`] moves.
        pub(crate) fn stopped() -> Self {
            let start = (Instant::now(), Timestamp::now());
            Self { stopped: Some(Arc::new(Stopped { start, since: Mutex::default() })) }
        }

        pub(crate) fn advance(&self, by: Duration) {
            *self.stopped.as_ref().expect("a clock that was stopped").since.lock() += by;
        }

        pub(crate) fn now(&self) -> Instant {
            match &self.stopped {
                Some(stopped) => stopped.start.0 + *stopped.since.lock(),
                None => Instant::now(),
            }
        }

        pub(crate) fn date(&self) -> Timestamp {
            match &self.stopped {
                Some(stopped) => stopped.start.1 + *stopped.since.lock(),
                None => Timestamp::now(),
            }
        }
    }
}
