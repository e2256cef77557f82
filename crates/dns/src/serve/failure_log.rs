//! Rate-limited log of failed and slow queries: a few per second in full, the rest as a count, so that an upstream
//! outage does not flood the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::forward::Request;
use crate::metrics::Observation;
use crate::wire::{Query, rcode, rtype, to_text};

/// Log lines per second.
const LINES_PER_SECOND: u32 = 5;

/// Rate-limited log of failed and slow queries.
pub(super) struct FailureLog {
    slow: Duration,
    state: Mutex<State>,
}

struct State {
    second: Instant,
    logged: u32,
    suppressed: u64,
}

impl State {
    /// Whether a line may be logged; with the number of lines suppressed since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.logged) = (now, 0);
        }
        if self.logged >= LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl FailureLog {
    pub(super) fn new(slow: Duration) -> Self {
        Self { slow, state: Mutex::new(State { second: Instant::now(), logged: 0, suppressed: 0 }) }
    }

    /// Logs a query if it failed or was slow.
    pub(super) fn record(&self, request: &Request<'_>, reply: &[u8], duration: Duration) {
        let code = Observation::rcode_of(reply);
        let failed = reply.is_empty() || code == rcode::SERVFAIL;
        if !failed && duration < self.slow {
            return;
        }
        let Ok(query) = Query::parse(request.message) else { return };
        let Some(suppressed) = self.state.lock().admit(Instant::now()) else { return };
        let kind = rtype::text(query.qtype).map_or_else(|| format!("TYPE{}", query.qtype), str::to_owned);
        let (name, code) = (to_text(query.name.wire()), if reply.is_empty() { "no answer" } else { rcode::text(code) });
        let what = if failed { "DNS query failed" } else { "slow DNS query" };
        let (client, transport) = (request.from.ip, request.transport);
        tracing::warn!(name, kind, %client, ?transport, code, ?duration, suppressed, "{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_per_second_are_logged_and_the_rest_counted() {
        let start = Instant::now();
        let mut state = State { second: start, logged: 0, suppressed: 0 };
        let logged: Vec<_> = (0..8).map(|_| state.admit(start)).collect();
        assert_eq!(logged, [Some(0), Some(0), Some(0), Some(0), Some(0), None, None, None]);
        let later = start + Duration::from_secs(1);
        assert_eq!([state.admit(later), state.admit(later)], [Some(3), Some(0)]);
    }
}
