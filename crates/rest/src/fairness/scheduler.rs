//! Which request gets a seat: a state machine without I/O, clock or locks.
//!
//! In: arrivals, finishes and cancellations, with the time at which they happen. Out: what starts, waits or is rejected.
//!
//! Every level has guaranteed seats that only it uses; the seats that levels lend are one pool for all. A request of a level may start when
//!
//! - a guaranteed seat of the level is free, or
//! - a seat of the pool is free, and the level is below the most it may use.
//!
//! When seats become free they go to the level with requests waiting that uses the smallest part of its nominal seats: a level takes
//! back what it has lent before others borrow, as their requests finish. Within a level, [`QueueSet`] decides.
//!
//! Whether a request may start does not depend on its width: one that is wider than what is free takes the missing seats from what becomes
//! free next. So a wide request is not passed by narrow ones for ever, and holds up none while seats are free:
//!
//! - no request waits while a seat that its level may use is free (work conservation);
//! - the number of requests that are executed never exceeds the number of seats, because each occupies at least one.

use std::time::Duration;

use super::level::{Level, Limits};
use super::queues::{QueueSet, Service};

/// See the module. `W` is returned with a request that starts after having waited.
pub(crate) struct Scheduler<W> {
    /// In the order of [`Level::ALL`].
    levels: [LevelState<W>; Level::ALL.len()],
    /// Seats that are not guaranteed to any level.
    pool: u64,
    /// Seats that levels use beyond their guaranteed ones; more than `pool` by what wide requests have taken in advance.
    borrowed: u64,
}

struct LevelState<W> {
    limits: Limits,
    in_use: u64,
    /// None: nothing waits here.
    queues: Option<QueueSet<W>>,
}

/// A request that is executed, from its start until [`Scheduler::finish`].
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct Running {
    level: Level,
    queue: usize,
    width: u64,
    charged: Service,
    started: Duration,
}

/// A request that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    level: Level,
    queue: usize,
    number: u64,
}

/// What becomes of a request that arrives.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    Started(Running),
    Queued(Ticket),
    Rejected(Rejection),
}

/// Why a request is rejected at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    /// The queues of its flow are full.
    QueueFull,
    /// No seat is free, and its level has no queues.
    ConcurrencyLimit,
}

/// A request that arrives.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) level: Level,
    /// A hash of its flow.
    pub(crate) flow: u64,
    /// The seats it occupies; at least one, at most the level's `widest`.
    pub(crate) width: u64,
}

// === impl Scheduler ===

impl<W> Scheduler<W> {
    /// Divides `total` seats among the levels; there are a few more when `total` is too small to give each level one.
    pub(crate) fn new(total: u64) -> Self {
        let levels = Level::ALL.map(|level| LevelState::new(level.limits(total)));
        let guaranteed: u64 = levels.iter().map(|state| state.limits.guaranteed).sum();
        Self { levels, pool: total.saturating_sub(guaranteed), borrowed: 0 }
    }

    /// The limits of a level.
    pub(crate) const fn limits(&self, level: Level) -> &Limits {
        &self.levels[level as usize].limits
    }

    /// A request arrives. `waiter` is called if it has to wait.
    pub(crate) fn arrive(&mut self, now: Duration, request: Request, waiter: impl FnOnce() -> W) -> Arrival {
        let Request { level, flow, width } = request;
        let may_start = self.may_start(level);
        let state = &mut self.levels[level as usize];
        let width = width.clamp(1, state.limits.widest);
        let queue = state.queues.as_ref().map_or(0, |queues| queues.choose(flow));
        if may_start {
            // Nothing waits in this level: it would have started.
            let charged = state.queues.as_mut().map_or(0, |queues| queues.start(queue, width));
            self.occupy(level, width);
            return Arrival::Started(Running { level, queue, width, charged, started: now });
        }
        let Some(queues) = &mut state.queues else { return Arrival::Rejected(Rejection::ConcurrencyLimit) };
        match queues.append(queue, width, waiter) {
            Some(number) => Arrival::Queued(Ticket { level, queue, number }),
            None => Arrival::Rejected(Rejection::QueueFull),
        }
    }

    /// A request has finished; returns those that start instead.
    #[expect(clippy::needless_pass_by_value, reason = "a request finishes once")]
    pub(crate) fn finish(&mut self, now: Duration, running: Running) -> Vec<(W, Running)> {
        let Running { level, queue, width, charged, started } = running;
        if let Some(queues) = &mut self.levels[level as usize].queues {
            queues.finish(queue, width, charged, now.saturating_sub(started));
        }
        self.vacate(level, width);
        let mut starting = Vec::new();
        while let Some(next) = self.start_next(now) {
            starting.push(next);
        }
        starting
    }

    /// Cancels a waiting request; false when it has started already.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let Ticket { level, queue, number } = ticket;
        self.levels[level as usize].queues.as_mut().is_some_and(|queues| queues.remove(queue, number))
    }

    fn start_next(&mut self, now: Duration) -> Option<(W, Running)> {
        let level = self.next_level()?;
        let next = self.levels[level as usize].queues.as_mut()?.start_next()?;
        self.occupy(level, next.width);
        let running = Running { level, queue: next.queue, width: next.width, charged: next.charged, started: now };
        Some((next.waiter, running))
    }

    /// The level that gets the next seat: of those with a request that may start, the one that uses the smallest part of its seats.
    fn next_level(&self) -> Option<Level> {
        let waiting = Level::ALL.into_iter().filter(|level| {
            let queues = self.levels[*level as usize].queues.as_ref();
            queues.is_some_and(QueueSet::has_waiting) && self.may_start(*level)
        });
        waiting.min_by(|a, b| {
            let (a, b) = (&self.levels[*a as usize], &self.levels[*b as usize]);
            (a.in_use * b.limits.nominal).cmp(&(b.in_use * a.limits.nominal))
        })
    }

    const fn may_start(&self, level: Level) -> bool {
        let LevelState { in_use, ref limits, .. } = self.levels[level as usize];
        in_use < limits.guaranteed || (self.borrowed < self.pool && in_use < limits.most)
    }

    const fn occupy(&mut self, level: Level, width: u64) {
        let state = &mut self.levels[level as usize];
        self.borrowed -= state.beyond();
        state.in_use += width;
        self.borrowed += state.beyond();
    }

    const fn vacate(&mut self, level: Level, width: u64) {
        let state = &mut self.levels[level as usize];
        self.borrowed -= state.beyond();
        state.in_use -= width;
        self.borrowed += state.beyond();
    }
}

// === impl LevelState ===

impl<W> LevelState<W> {
    fn new(limits: Limits) -> Self {
        Self { limits, in_use: 0, queues: limits.queuing.map(QueueSet::new) }
    }

    /// Seats in use that are not guaranteed to this level.
    const fn beyond(&self) -> u64 {
        self.in_use.saturating_sub(self.limits.guaranteed)
    }
}

// === impl Running ===

impl Running {
    pub(crate) const fn width(&self) -> u64 {
        self.width
    }
}

#[cfg(test)]
mod tests;
