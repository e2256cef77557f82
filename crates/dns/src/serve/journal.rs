//! Questions that went badly, in the log: failed, or slow. A few each second are said in full, the rest as a number, so that an outage of
//! others does not fill the disk.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::beyond::Question;
use crate::metrics::Fact;
use crate::wire::{Query, rcode, rtype, to_text};

/// How many are said in full each second.
const EACH_SECOND: u32 = 5;

/// See the module.
pub(super) struct Journal {
    slow: Duration,
    state: Mutex<State>,
}

struct State {
    second: Instant,
    said: u32,
    unsaid: u64,
}

impl State {
    /// Whether there is room for one more, and how many were not said since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.said) = (now, 0);
        }
        if self.said >= EACH_SECOND {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

impl Journal {
    pub(super) fn new(slow: Duration) -> Self {
        Self { slow, state: Mutex::new(State { second: Instant::now(), said: 0, unsaid: 0 }) }
    }

    /// Says it, if it went badly.
    pub(super) fn note(&self, question: &Question<'_>, reply: &[u8], took: Duration) {
        let code = Fact::rcode_of(reply);
        let failed = reply.is_empty() || code == rcode::SERVFAIL;
        if !failed && took < self.slow {
            return;
        }
        let Ok(query) = Query::parse(question.message) else { return };
        let Some(unsaid) = self.state.lock().admit(Instant::now()) else { return };
        let kind = rtype::text(query.qtype).map_or_else(|| format!("TYPE{}", query.qtype), str::to_owned);
        let (name, code) = (to_text(query.name.wire()), if reply.is_empty() { "no answer" } else { rcode::text(code) });
        let what = if failed { "a question failed" } else { "a question was slow" };
        let (client, transport) = (question.ends.client, question.transport);
        tracing::warn!(name, kind, %client, ?transport, code, ?took, unsaid, "{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_said_and_the_rest_counted() {
        let start = Instant::now();
        let mut state = State { second: start, said: 0, unsaid: 0 };
        let said: Vec<_> = (0..8).map(|_| state.admit(start)).collect();
        assert_eq!(said, [Some(0), Some(0), Some(0), Some(0), Some(0), None, None, None]);
        let later = start + Duration::from_secs(1);
        assert_eq!([state.admit(later), state.admit(later)], [Some(3), Some(0)]);
    }
}
