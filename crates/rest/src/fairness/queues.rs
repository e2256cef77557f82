//! The queues of one priority level, and which of them is served next: start-time fair queuing.
//!
//! In: requests that start at once, wait, are cancelled or finish. Out: the next request to start. There is no clock: the caller passes the
//! duration of a request.
//!
//! Every queue has a finish tag, which is the service that it has been charged with, in seat-nanoseconds. The start tag of a request is the
//! finish tag of its queue, or the virtual time of its arrival if that is later. The waiting request with the lowest start tag is next, and
//! virtual time is the start tag of the latest request that was started, or the finish tag of the latest that finished while none waited.
//! Starting a request charges its queue with an estimate; finishing it corrects the charge to what it really cost.
//!
//! So no request that waits has a start tag before virtual time, from which follows:
//!
//! - a request whose queue was idle is started after at most one request of every other queue, no matter how many wait in those;
//! - queues that always have requests waiting get equal service, no matter how many wait in each and how long these take;
//! - a queue gets no credit for time in which it wanted less, and no debit for service that no other queue wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::level::Queuing;
use super::shuffle::Hand;

/// Service, in seat-nanoseconds. 128 bits do not overflow in the life of a process.
pub(crate) type Service = i128;

/// How long the first request of a queue is expected to take, in nanoseconds.
const FIRST_ESTIMATE: Service = 3_000_000;
/// One request changes the estimate of its queue by the difference divided by this.
const SMOOTHING: Service = 4;

/// See the module. `W` is returned to the caller with a request that starts after having waited.
pub(crate) struct QueueSet<W> {
    queues: Vec<Queue<W>>,
    hand_size: usize,
    length_limit: usize,
    /// Queues with waiting requests: start tag of the first one, its number, and the queue. Earlier arrivals win ties.
    ready: BTreeSet<(Service, u64, usize)>,
    virtual_time: Service,
    /// Numbers arrivals.
    arrivals: u64,
}

struct Queue<W> {
    /// By number of arrival.
    waiting: BTreeMap<u64, Waiting<W>>,
    waiting_seats: u64,
    finish_tag: Service,
    /// How long its requests take, in nanoseconds.
    estimate: Service,
}

struct Waiting<W> {
    width: u64,
    /// The virtual time of its arrival.
    arrival: Service,
    waiter: W,
}

/// A request that has waited and starts.
pub(crate) struct Next<W> {
    pub(crate) waiter: W,
    pub(crate) queue: usize,
    pub(crate) width: u64,
    pub(crate) charged: Service,
}

// === impl QueueSet ===

impl<W> QueueSet<W> {
    pub(crate) fn new(queuing: Queuing) -> Self {
        Self {
            queues: (0..queuing.queues).map(|_| Queue::default()).collect(),
            hand_size: queuing.hand_size,
            length_limit: queuing.length_limit,
            ready: BTreeSet::new(),
            virtual_time: 0,
            arrivals: 0,
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The queue of a flow's hand in which a request starts first, preferably one that is not full.
    pub(crate) fn choose(&self, flow: u64) -> usize {
        let hand = Hand::deal(flow, self.queues.len(), self.hand_size);
        let start = |queue: &usize| {
            self.queues.get(*queue).map(|queue| {
                let start = queue.finish_tag.max(self.virtual_time) + queue.expected(queue.waiting_seats);
                (queue.is_full(self.length_limit), start)
            })
        };
        hand.queues().min_by_key(start).unwrap_or_default()
    }

    /// Starts a request of a queue while none waits in any; returns what the queue is charged.
    pub(crate) fn start(&mut self, queue: usize, width: u64) -> Service {
        let Some(queue) = self.queues.get_mut(queue) else { return 0 };
        self.virtual_time = self.virtual_time.max(queue.finish_tag);
        queue.start(self.virtual_time, width)
    }

    /// Appends a request to a queue and returns its number, or nothing when the queue is full.
    pub(crate) fn append(&mut self, queue: usize, width: u64, waiter: impl FnOnce() -> W) -> Option<u64> {
        let (number, arrival, limit) = (self.arrivals, self.virtual_time, self.length_limit);
        let is_appended = self.change(queue, |queue| {
            if queue.is_full(limit) {
                return false;
            }
            queue.waiting_seats += width;
            queue.waiting.insert(number, Waiting { width, arrival, waiter: waiter() });
            true
        })?;
        self.arrivals += 1;
        is_appended.then_some(number)
    }

    /// Removes a request that gave up; false when it has started already.
    pub(crate) fn remove(&mut self, queue: usize, number: u64) -> bool {
        self.change(queue, |queue| queue.take(number).is_some()).unwrap_or_default()
    }

    /// Starts the waiting request with the lowest start tag.
    pub(crate) fn start_next(&mut self) -> Option<Next<W>> {
        let (start, number, index) = *self.ready.first()?;
        self.virtual_time = self.virtual_time.max(start);
        self.change(index, |queue| {
            let Waiting { width, waiter, .. } = queue.take(number)?;
            Some(Next { waiter, queue: index, width, charged: queue.start(start, width) })
        })?
    }

    /// A request has finished: its queue is charged with what it cost instead of what was expected.
    pub(crate) fn finish(&mut self, queue: usize, width: u64, charged: Service, took: Duration) {
        let now = self.virtual_time;
        let took = Service::from(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let finish_tag = self.change(queue, |queue| {
            let corrected = queue.finish_tag + Service::from(width) * took - charged;
            // An overcharge is refunded only down to virtual time: it is no credit.
            queue.finish_tag = corrected.max(queue.finish_tag.min(now));
            queue.estimate += (took - queue.estimate) / SMOOTHING;
            queue.finish_tag
        });
        if !self.has_waiting() {
            // No other queue wanted the service.
            self.virtual_time = now.max(finish_tag.unwrap_or(now));
        }
    }

    /// Changes a queue, and its place in the order of queues.
    fn change<T>(&mut self, index: usize, change: impl FnOnce(&mut Queue<W>) -> T) -> Option<T> {
        let queue = self.queues.get_mut(index)?;
        let before = queue.first();
        let result = change(queue);
        let after = queue.first();
        if before != after {
            if let Some((start, number)) = before {
                self.ready.remove(&(start, number, index));
            }
            if let Some((start, number)) = after {
                self.ready.insert((start, number, index));
            }
        }
        Some(result)
    }
}

// === impl Queue ===

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), waiting_seats: 0, finish_tag: 0, estimate: FIRST_ESTIMATE }
    }
}

impl<W> Queue<W> {
    fn is_full(&self, limit: usize) -> bool {
        self.waiting.len() >= limit
    }

    /// The start tag and number of the first request that waits.
    fn first(&self) -> Option<(Service, u64)> {
        self.waiting.first_key_value().map(|(number, waiting)| (self.finish_tag.max(waiting.arrival), *number))
    }

    /// What requests that occupy so many seats are expected to cost.
    fn expected(&self, seats: u64) -> Service {
        Service::from(seats) * self.estimate
    }

    fn take(&mut self, number: u64) -> Option<Waiting<W>> {
        let waiting = self.waiting.remove(&number)?;
        self.waiting_seats -= waiting.width;
        Some(waiting)
    }

    /// Charges a request that starts at a tag with what it is expected to cost.
    fn start(&mut self, start: Service, width: u64) -> Service {
        let charged = self.expected(width);
        self.finish_tag = start + charged;
        charged
    }
}

#[cfg(test)]
mod tests;
