//! An endpoint of an upstream: its address, load, health and idle connections.
//!
//! In: requests, and how they end. Out: whether it may get another. State is shared by all rules that lead to it; an
//! endpoint that is removed and added again starts afresh.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;
use routing::policy::Outlier;

use crate::ejection::{Ejections, EndpointHealth, Outcome, Passes};
use crate::upstream::IdleConnections;

/// Endpoint.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// When it was added.
    pub(crate) since: Instant,
    in_flight: AtomicUsize,
    health: EndpointHealth,
    ejections: Arc<Ejections>,
    /// Idle connections per worker.
    pub(crate) idle: Vec<Mutex<IdleConnections>>,
}

/// Counts one request or connection of an endpoint until it is dropped.
pub(crate) struct InFlight {
    endpoint: Arc<Endpoint>,
    passes: Passes,
    is_reported: bool,
}

impl Endpoint {
    pub(crate) fn new(address: SocketAddr, workers: usize, now: Instant, ejections: &Arc<Ejections>) -> Self {
        Self {
            address,
            since: now,
            in_flight: AtomicUsize::new(0),
            health: EndpointHealth::new(ejections.millis(now)),
            ejections: Arc::clone(ejections),
            idle: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// Number of requests and connections.
    pub(crate) fn load(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Whether it may get a request: it is not ejected, or the time is over.
    pub(crate) fn is_open(&self, now: u64, outlier: Option<&Outlier>) -> bool {
        self.health.is_open(now, outlier)
    }

    /// Counts a request; none if it may not get one.
    pub(crate) fn admit(self: &Arc<Self>, now: u64, outlier: Option<&Outlier>) -> Option<InFlight> {
        let passes = self.health.admit(now, outlier, &self.ejections)?;
        Some(self.enter(passes))
    }

    /// Counts a request.
    pub(crate) fn enter(self: &Arc<Self>, passes: Passes) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight { endpoint: Arc::clone(self), passes, is_reported: false }
    }

    /// Notes that it was removed: it counts as ejected no longer.
    pub(crate) fn remove(&self) {
        self.health.remove(&self.ejections);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.remove();
    }
}

impl InFlight {
    pub(crate) const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether the request decides about the end of an ejection.
    pub(crate) fn is_probe(&self) -> bool {
        self.passes.is_probe()
    }

    /// Notes how the request ended, or what its response is; `outlier` is the policy of its rule.
    pub(crate) fn report(&mut self, outcome: Outcome, outlier: Option<&Outlier>) {
        self.is_reported = true;
        self.endpoint.health.report(outcome, self.passes, outlier, &self.endpoint.ejections);
    }
}

impl std::ops::Deref for InFlight {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Relaxed);
        if !self.is_reported && self.is_probe() {
            self.endpoint.health.give_up(self.passes, &self.endpoint.ejections);
        }
    }
}
