//! Ejection of endpoints: the health of each as an atomic word, and how many of an upstream may be ejected at a time.
//!
//! In: outcomes of requests. Out: whether an endpoint may get a request. There is no lock: an ejection first reserves a
//! place, so that the limits hold whatever happens concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use routing::policy::Outlier;

use crate::clock::Clock;
use crate::health::{Health, Pass, Rules};
use crate::metrics::HealthMetrics;

/// Endpoints that refuse or reset connections are avoided, in all rules.
const CONNECTION_RULES: Rules = Rules { errors: 1, base: Duration::from_secs(1), max: Duration::from_secs(30) };
/// After such a time, another request is let through although the first has no outcome yet.
const CONNECTION_LEASE: Duration = Duration::from_secs(5);

/// Why an endpoint is ejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It refuses or resets connections.
    Connection,
    /// Its responses are errors, by the policy of a rule.
    Outlier,
}

/// How a request ended at an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// No connection could be made.
    Refused,
    /// A new connection was closed before a response.
    Reset,
    /// There was no response in time.
    TimedOut,
    /// There was another error, such as an invalid response.
    Failed,
    /// There was a response with this status.
    Answered(u16),
    /// A connection that carries bytes was made.
    Connected,
}

/// What the endpoints of an upstream have in common.
pub(crate) struct Ejections {
    pub(crate) clock: Clock,
    /// Times of the states count from here.
    epoch: Instant,
    /// Number of endpoints.
    total: AtomicUsize,
    /// Numbers of ejected endpoints, by cause: 32 bits each.
    ejected: AtomicU64,
    metrics: Arc<HealthMetrics>,
}

impl Ejections {
    pub(crate) fn new(clock: Clock, metrics: Arc<HealthMetrics>) -> Self {
        let (epoch, total, ejected) = (clock.now(), AtomicUsize::new(0), AtomicU64::new(0));
        Self { clock, epoch, total, ejected, metrics }
    }

    /// The time as states have it.
    pub(crate) fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn set_total(&self, total: usize) {
        self.total.store(total, Relaxed);
    }

    /// Whether no endpoint is ejected.
    pub(crate) fn is_clear(&self) -> bool {
        self.ejected.load(Relaxed) == 0
    }

    /// Number of ejected endpoints.
    #[cfg(test)]
    pub(crate) fn count(&self, cause: Cause) -> usize {
        Self::split(self.ejected.load(Relaxed), cause).0
    }

    /// The number of a cause, and of the other.
    fn split(word: u64, cause: Cause) -> (usize, usize) {
        let (low, high) = ((word & u64::from(u32::MAX)) as usize, (word >> 32) as usize);
        if cause == Cause::Connection { (low, high) } else { (high, low) }
    }

    const fn one(cause: Cause) -> u64 {
        match cause {
            Cause::Connection => 1,
            Cause::Outlier => 1 << 32,
        }
    }

    /// Reserves a place for one more ejection: at most `percent` of the endpoints, and one that is not ejected remains.
    fn reserve(&self, cause: Cause, percent: u8) -> bool {
        let total = self.total.load(Relaxed);
        let limit = total * usize::from(percent.min(100)) / 100;
        let has_room = |word| {
            let (own, other) = Self::split(word, cause);
            own < limit && own + other + 1 < total
        };
        let reserved =
            self.ejected.fetch_update(Relaxed, Relaxed, |word| has_room(word).then(|| word + Self::one(cause)));
        if reserved.is_ok() {
            self.metrics.ejected();
        }
        reserved.is_ok()
    }

    fn release(&self, cause: Cause) {
        self.ejected.fetch_sub(Self::one(cause), Relaxed);
        self.metrics.returned();
    }
}

/// Health of an endpoint with regard to one cause.
pub(crate) struct Tracker {
    cause: Cause,
    word: AtomicU64,
}

impl Tracker {
    pub(crate) const fn new(cause: Cause, now: u64) -> Self {
        Self { cause, word: AtomicU64::new(Health::new(now).to_word()) }
    }

    pub(crate) fn health(&self) -> Health {
        Health::of_word(self.word.load(Relaxed))
    }

    /// Lets a request through, unless the endpoint is ejected.
    pub(crate) fn admit(&self, now: u64, lease: Duration) -> Option<Pass> {
        if self.health().is_usable() {
            return Some(Pass::Usable);
        }
        let mut pass = None;
        let admitted = self.word.fetch_update(Relaxed, Relaxed, |word| {
            let (health, how) = Health::of_word(word).admit(now, lease)?;
            pass = Some(how);
            Some(health.to_word())
        });
        admitted.ok().and(pass)
    }

    /// Notes a success.
    pub(crate) fn succeed(&self, pass: Pass, ejections: &Ejections) {
        // Nearly always: one load, no clock.
        if pass == Pass::Usable && Health::is_quiet(self.word.load(Relaxed)) {
            return;
        }
        let now = ejections.millis(ejections.clock.now());
        self.change(ejections, |health| health.succeed(pass, now));
    }

    /// Notes an error.
    pub(crate) fn fail(&self, pass: Pass, rules: &Rules, percent: u8, ejections: &Ejections) {
        let now = ejections.millis(ejections.clock.now());
        let mut is_reserved = false;
        let mut reserve = || {
            is_reserved = is_reserved || ejections.reserve(self.cause, percent);
            is_reserved
        };
        let mut before = self.word.load(Relaxed);
        let is_ejected = loop {
            let (old, new) = (Health::of_word(before), Health::of_word(before).fail(pass, now, rules, &mut reserve));
            match self.word.compare_exchange_weak(before, new.to_word(), Relaxed, Relaxed) {
                Ok(_) => break !old.is_ejected() && new.is_ejected(),
                Err(other) => before = other,
            }
        };
        // Another request was faster.
        if is_reserved && !is_ejected {
            ejections.release(self.cause);
        }
    }

    /// Notes that a request that was let through has no outcome.
    pub(crate) fn give_up(&self, ejections: &Ejections) {
        self.change(ejections, Health::give_up);
    }

    /// Notes that the endpoint was removed; its place is free.
    pub(crate) fn remove(&self, ejections: &Ejections) {
        self.change(ejections, |_| Health::removed());
    }

    fn change(&self, ejections: &Ejections, next: impl Fn(Health) -> Health) {
        let change = |word| Some(next(Health::of_word(word)).to_word());
        let Ok(before) = self.word.fetch_update(Relaxed, Relaxed, change) else { return };
        let before = Health::of_word(before);
        if before.is_ejected() && !next(before).is_ejected() {
            ejections.release(self.cause);
        }
    }
}

/// The health of an endpoint: its connections, which count for all rules, and its responses, which count for rules with a
/// policy. So a policy changes nothing for the rules of others that lead to the same Service.
pub(crate) struct EndpointHealth {
    connection: Tracker,
    outlier: Tracker,
}

/// How a request came to an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Passes {
    connection: Pass,
    /// None if the rule has no policy.
    outlier: Option<Pass>,
}

impl Passes {
    pub(crate) const USABLE: Self = Self { connection: Pass::Usable, outlier: Some(Pass::Usable) };
    pub(crate) const FORCED: Self = Self { connection: Pass::Forced, outlier: Some(Pass::Forced) };

    /// Whether the request decides about the end of an ejection.
    pub(crate) fn is_probe(self) -> bool {
        self.connection == Pass::Probe || self.outlier == Some(Pass::Probe)
    }
}

impl EndpointHealth {
    pub(crate) const fn new(now: u64) -> Self {
        Self { connection: Tracker::new(Cause::Connection, now), outlier: Tracker::new(Cause::Outlier, now) }
    }

    /// Whether a request may be sent.
    pub(crate) fn is_open(&self, now: u64, outlier: Option<&Outlier>) -> bool {
        self.connection.health().is_open(now) && (outlier.is_none() || self.outlier.health().is_open(now))
    }

    /// Lets a request through, unless the endpoint is ejected.
    pub(crate) fn admit(&self, now: u64, outlier: Option<&Outlier>, ejections: &Ejections) -> Option<Passes> {
        if !self.is_open(now, outlier) {
            return None;
        }
        let connection = self.connection.admit(now, CONNECTION_LEASE)?;
        let Some(policy) = outlier else { return Some(Passes { connection, outlier: None }) };
        let Some(outlier) = self.outlier.admit(now, policy.base_ejection) else {
            if connection == Pass::Probe {
                self.connection.give_up(ejections);
            }
            return None;
        };
        Some(Passes { connection, outlier: Some(outlier) })
    }

    /// Notes the outcome of a request.
    pub(crate) fn report(&self, outcome: Outcome, passes: Passes, policy: Option<&Outlier>, ejections: &Ejections) {
        match outcome {
            Outcome::Refused => self.connection.fail(passes.connection, &CONNECTION_RULES, 100, ejections),
            // Clients may be able to make an endpoint close a connection, but must not concentrate the load on one endpoint.
            Outcome::Reset => self.connection.fail(passes.connection, &CONNECTION_RULES, 50, ejections),
            _ => self.connection.succeed(passes.connection, ejections),
        }
        let Some((policy, pass)) = policy.zip(passes.outlier) else { return };
        let is_error = match outcome {
            Outcome::Refused | Outcome::Reset | Outcome::TimedOut | Outcome::Failed => true,
            Outcome::Answered(status) => policy.statuses.contains(&status),
            Outcome::Connected => false,
        };
        if is_error {
            let (errors, base, max) = (policy.consecutive_errors, policy.base_ejection, policy.max_ejection);
            self.outlier.fail(pass, &Rules { errors, base, max }, policy.max_ejection_percent, ejections);
        } else {
            self.outlier.succeed(pass, ejections);
        }
    }

    /// Notes that a request has no outcome.
    pub(crate) fn give_up(&self, passes: Passes, ejections: &Ejections) {
        if passes.connection == Pass::Probe {
            self.connection.give_up(ejections);
        }
        if passes.outlier == Some(Pass::Probe) {
            self.outlier.give_up(ejections);
        }
    }

    /// Notes that the endpoint was removed.
    pub(crate) fn remove(&self, ejections: &Ejections) {
        self.connection.remove(ejections);
        self.outlier.remove(ejections);
    }
}

#[cfg(test)]
mod tests;
