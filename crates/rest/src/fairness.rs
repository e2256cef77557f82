//! API Priority and Fairness: which requests are executed, which wait in a queue, and which are rejected.
//!
//! In: the attributes of a request, and its user. Out: a [`Permit`] that holds its seats until it is dropped, or a 429.
//!
//! ```text
//! request ─▶ schema: level and flow ─▶ width ─▶ scheduler: start ──────────────▶ Permit ─▶ drop: finish
//!                                                 ├─▶ wait in a queue of the flow ─▶ start, as seats become free
//!                                                 └─▶ reject
//! ```
//!
//! [`schema`] and [`width`] classify, [`scheduler`] decides; all of them are pure. This file adds the lock, the clock and the waiting. A request
//! waits at most a quarter of its time limit, and at most a minute. If its client disconnects it is dropped, which removes it from its queue.

mod defaults;
mod level;
pub(crate) mod metrics;
mod queues;
mod retry_after;
mod scheduler;
mod schema;
mod shuffle;
mod width;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use api::status::Status;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::auth::User;
use crate::metrics::Metrics;
use crate::request::RequestInfo;

use defaults::FLOW_SCHEMAS;
use level::Level;
use retry_after::RetryAfter;
use scheduler::{Arrival, Rejection, Running, Scheduler, Ticket};
use schema::{Priority, classify};

pub(crate) use width::width;

/// The longest time that a request waits.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// The state of all requests.
pub(crate) struct Fairness {
    scheduler: Mutex<Scheduler<Waiter>>,
    /// A random key, so that clients cannot choose names whose flows share the queues of others.
    flows: RandomState,
    /// The scheduler's times are since this.
    epoch: Instant,
    longest_wait: Duration,
    /// In the order of [`Level::ALL`].
    retry_after: Mutex<[RetryAfter; Level::ALL.len()]>,
    metrics: Arc<Metrics>,
}

/// The handle of a waiting request.
struct Waiter {
    permit: oneshot::Sender<Permit>,
    schema: usize,
    arrived: Duration,
}

/// A running request; its seats are released when this is dropped.
pub(crate) struct Permit {
    fairness: Arc<Fairness>,
    /// The place of its schema in the table.
    schema: usize,
    seats: Seats,
    waited: Duration,
}

enum Seats {
    /// The request needs none.
    Exempt,
    Held(Running),
    Returned,
}

// === impl Fairness ===

impl Fairness {
    /// Divides `total` seats among requests that may take `request_timeout` each.
    pub(crate) fn new(total: usize, request_timeout: Duration, metrics: Arc<Metrics>) -> Arc<Self> {
        // More than any machine executes, and small enough to calculate with.
        let total = u64::from(u32::try_from(total).unwrap_or(u32::MAX));
        let scheduler = Scheduler::new(total);
        for level in Level::ALL {
            metrics.flow.set_nominal(level.name(), scheduler.limits(level).nominal);
        }
        Arc::new(Self {
            scheduler: Mutex::new(scheduler),
            flows: RandomState::new(),
            epoch: Instant::now(),
            longest_wait: (request_timeout / 4).min(LONGEST_WAIT),
            retry_after: Mutex::default(),
            metrics,
        })
    }

    /// Waits until a request may be executed. `width` is the number of seats it occupies.
    ///
    /// # Errors
    /// 429 when too many requests wait already, or when no seat becomes free in time; with `Retry-After`.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        info: &RequestInfo<'_>,
        user: &User,
        width: impl FnOnce() -> u64,
    ) -> Result<Permit, Status> {
        let place = classify(&FLOW_SCHEMAS, info, user);
        let schema = &FLOW_SCHEMAS[place];
        let Priority::Limited(level) = schema.priority else {
            self.metrics.flow.schema(place).started(0, None);
            return Ok(Permit { fairness: self.clone(), schema: place, seats: Seats::Exempt, waited: Duration::ZERO });
        };
        let flow = self.flows.hash_one((place, schema.flow(info, user)));
        self.schedule(place, scheduler::Request { level, flow, width: width() }).await.map_err(|reason| {
            self.metrics.refused();
            tracing::debug!(schema = schema.name, level = level.name(), user = %user.name, reason, "rejected a request");
            let seconds = self.retry_after.lock()[level as usize].rejected(self.now().as_secs());
            Status::too_many_requests("Too many requests, please try again later.").retry_after(seconds)
        })
    }

    /// A permit, or why there is none.
    async fn schedule(self: &Arc<Self>, schema: usize, request: scheduler::Request) -> Result<Permit, &'static str> {
        let (arrived, mut queued) = (self.now(), None);
        let arrival = self.scheduler.lock().arrive(arrived, request, || {
            let (permit, given) = oneshot::channel();
            queued = Some(given);
            Waiter { permit, schema, arrived }
        });
        let reason = match (arrival, queued) {
            (Arrival::Started(running), _) => return Ok(self.start(schema, running, Duration::ZERO)),
            (Arrival::Queued(ticket), Some(given)) => return self.wait(schema, arrived, ticket, given).await,
            (Arrival::Rejected(Rejection::ConcurrencyLimit), _) => "concurrency-limit",
            (Arrival::Rejected(Rejection::QueueFull) | Arrival::Queued(_), _) => "queue-full",
        };
        self.metrics.flow.rejected(schema, reason, Duration::ZERO);
        Err(reason)
    }

    /// Waits in a queue for as long as a request may.
    async fn wait(
        self: &Arc<Self>,
        schema: usize,
        arrived: Duration,
        ticket: Ticket,
        mut given: oneshot::Receiver<Permit>,
    ) -> Result<Permit, &'static str> {
        let mut queued = Queued { fairness: self, schema, arrived, ticket: Some(ticket) };
        self.metrics.flow.schema(schema).queued(1);
        let outcome = tokio::time::timeout(self.longest_wait, &mut given).await;
        if outcome.is_err() && queued.leave("time-out") {
            return Err("time-out");
        }
        let permit = match outcome {
            Ok(permit) => permit,
            // It was started at the last moment: the permit is there, or on its way.
            Err(_) => given.await,
        };
        queued.ticket = None;
        // Whatever removes a waiter from its queue sends it a permit, so this does not fail.
        permit.map_err(|_| "cancelled")
    }

    fn start(self: &Arc<Self>, schema: usize, running: Running, waited: Duration) -> Permit {
        self.metrics.flow.schema(schema).started(running.width(), Some(waited));
        Permit { fairness: self.clone(), schema, seats: Seats::Held(running), waited }
    }

    /// Gives the seats of a request to those that wait.
    fn finish(self: &Arc<Self>, running: Running) {
        let (mut next, mut returned) = (Some(running), Vec::new());
        while let Some(running) = next.take().or_else(|| returned.pop()) {
            let now = self.now();
            let starting = self.scheduler.lock().finish(now, running);
            // Outside the lock: a cancelled request releases its seats at once.
            for (waiter, running) in starting {
                let permit = self.start(waiter.schema, running, now.saturating_sub(waiter.arrived));
                self.metrics.flow.schema(waiter.schema).queued(-1);
                if let Err(mut unwanted) = waiter.permit.send(permit) {
                    returned.extend(unwanted.end());
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }
}

// === impl Permit ===

impl Permit {
    /// How long the request has waited.
    pub(crate) const fn waited(&self) -> Duration {
        self.waited
    }

    /// Counts the request as finished, once; returns the seats to give back.
    fn end(&mut self) -> Option<Running> {
        let running = match std::mem::replace(&mut self.seats, Seats::Returned) {
            Seats::Exempt => None,
            Seats::Held(running) => Some(running),
            Seats::Returned => return None,
        };
        self.fairness.metrics.flow.schema(self.schema).finished(running.as_ref().map_or(0, Running::width));
        running
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(running) = self.end() {
            self.fairness.finish(running);
        }
    }
}

/// A request in its queue; leaves it when dropped.
struct Queued<'a> {
    fairness: &'a Fairness,
    schema: usize,
    arrived: Duration,
    /// None once it has left.
    ticket: Option<Ticket>,
}

impl Queued<'_> {
    /// Leaves the queue; false if the request has left it already.
    fn leave(&mut self, reason: &'static str) -> bool {
        let fairness = self.fairness;
        let left = self.ticket.take().is_some_and(|ticket| fairness.scheduler.lock().cancel(ticket));
        if left {
            fairness.metrics.flow.schema(self.schema).queued(-1);
            fairness.metrics.flow.rejected(self.schema, reason, fairness.now().saturating_sub(self.arrived));
        }
        left
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.leave("cancelled");
    }
}

#[cfg(test)]
mod tests;
