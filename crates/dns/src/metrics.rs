//! Metrics of the DNS server, with the names of CoreDNS where it has them.
//!
//! In: one [`Observation`] per query. Each UDP thread has its own [`ThreadCounters`], so that threads do not contend;
//! nothing is looked up by name while counting. Out: a [`prometheus_client`] collector that sums all threads when
//! scraped.

mod collector;
mod duration_histogram;
pub(crate) mod encode;

pub use duration_histogram::DurationHistogram;
pub use encode::encode;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::watch::WatchStatus;
use parking_lot::Mutex;

use crate::answer::QueryLabels;
use crate::forward::Transport;
use crate::wire::rtype;
use crate::zone::Zones;

/// Query types counted by name, plus one for all others.
const TYPES: usize = rtype::TABLE.len() + 1;
/// RCODEs counted, including one for all others.
const RCODES: usize = 18;
/// Bucket bounds of message sizes in bytes.
const SIZES: [usize; 14] = [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16000, 32000, 48000, 64000];
/// Number of duration buckets: 0.25 ms, doubling.
const DURATION_BUCKETS: usize = 16;
/// Number of programming-duration buckets: 1 ms, doubling.
const PROGRAMMING_BUCKETS: usize = 20;
/// Per-Service counters are allocated in chunks of this size, at most as many chunks.
const CHUNK: usize = 1024;

/// Metric values of one query and its reply.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// Labels.
    pub labels: QueryLabels,
    /// Transport.
    pub transport: Transport,
    /// Whether the client uses IPv4.
    pub v4: bool,
    /// Size of the query in bytes.
    pub request_size: usize,
    /// Size of the reply in bytes; `None` if there is none.
    pub response_size: Option<usize>,
    /// RCODE of the reply.
    pub rcode: u16,
    /// Time from receipt to reply.
    pub duration: Duration,
}

impl Observation {
    /// Low four bits of the RCODE of a reply.
    #[must_use]
    pub fn rcode_of(reply: &[u8]) -> u16 {
        reply.get(3).map_or(0, |byte| u16::from(byte & 15))
    }
}

/// Limit that a query exceeded, and the action taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limited {
    /// Over the query rate: refused.
    Refused,
    /// Far over the query rate: dropped.
    Dropped,
    /// Over the forward rate: refused.
    Forwards,
    /// Over the number of forwarded queries in flight: refused.
    InFlight,
}

/// Labels of each: reason, result.
const LIMITED: [(&str, &str); 4] =
    [("queries", "refused"), ("queries", "dropped"), ("forwards", "refused"), ("in_flight", "refused")];

/// Counters written by one thread.
#[derive(Debug)]
pub struct ThreadCounters {
    zones: Box<[ZoneCounters]>,
    services: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Replies that the kernel did not accept.
    unsent: AtomicU64,
    /// Queries over a client limit.
    limited: [AtomicU64; LIMITED.len()],
}

#[derive(Debug)]
struct ZoneCounters {
    /// By transport, family and type.
    requests: Box<[AtomicU64]>,
    responses: [AtomicU64; RCODES],
    dnssec: AtomicU64,
    durations: Histogram<{ DURATION_BUCKETS + 1 }>,
    request_size: [Histogram<{ SIZES.len() + 1 }>; 2],
    response_size: [Histogram<{ SIZES.len() + 1 }>; 2],
}

/// Histogram; the last bucket is +Inf. The sum has the unit of the added values.
#[derive(Debug)]
struct Histogram<const N: usize> {
    counts: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; N], sum: AtomicU64::new(0) }
    }
}

/// Adds to a counter that only one thread writes.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

impl<const N: usize> Histogram<N> {
    fn add(&self, bound: usize, value: u64) {
        add(&self.counts[bound.min(N - 1)], 1);
        add(&self.sum, value);
    }
}

fn size_bucket(size: usize) -> usize {
    SIZES.iter().position(|bound| size <= *bound).unwrap_or(SIZES.len())
}

/// Index of the first bound that is not below `duration`; bounds are `first` doubled `bounds` times.
fn duration_bucket(duration: Duration, first: Duration, bounds: usize) -> usize {
    let multiple = duration.as_nanos().div_ceil(first.as_nanos()).max(1);
    (multiple.next_power_of_two().trailing_zeros() as usize).min(bounds)
}

fn type_index(qtype: u16) -> usize {
    rtype::TABLE.iter().position(|(number, _)| *number == qtype).unwrap_or(TYPES - 1)
}

impl ThreadCounters {
    fn new(zones: usize) -> Self {
        let zone = || ZoneCounters {
            requests: (0..4 * TYPES).map(|_| AtomicU64::new(0)).collect(),
            responses: [const { AtomicU64::new(0) }; RCODES],
            dnssec: AtomicU64::new(0),
            durations: Histogram::default(),
            request_size: Default::default(),
            response_size: Default::default(),
        };
        Self {
            zones: (0..=zones).map(|_| zone()).collect(),
            services: (0..CHUNK).map(|_| OnceLock::new()).collect(),
            unsent: AtomicU64::new(0),
            limited: Default::default(),
        }
    }

    /// Counts a query. Must only be called by the owning thread.
    pub fn count(&self, observation: &Observation) {
        let other = self.zones.len() - 1;
        let zone = &self.zones[observation.labels.zone.unwrap_or(other).min(other)];
        let transport = usize::from(observation.transport == Transport::Tcp);
        let place = (transport * 2 + usize::from(!observation.v4)) * TYPES + type_index(observation.labels.qtype);
        add(&zone.requests[place], 1);
        add(&zone.dnssec, u64::from(observation.labels.dnssec));
        zone.request_size[transport].add(size_bucket(observation.request_size), observation.request_size as u64);
        let nanoseconds = u64::try_from(observation.duration.as_nanos()).unwrap_or(u64::MAX);
        zone.durations
            .add(duration_bucket(observation.duration, Duration::from_micros(250), DURATION_BUCKETS), nanoseconds);
        if let Some(size) = observation.response_size {
            add(&zone.responses[usize::from(observation.rcode).min(RCODES - 1)], 1);
            zone.response_size[transport].add(size_bucket(size), size as u64);
        }
        if let Some(number) = observation.labels.service.map(|number| number as usize) {
            let Some(chunk) = self.services.get(number / CHUNK) else { return };
            let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
            add(&chunk[number % CHUNK], 1);
        }
    }

    /// Counts replies that could not be sent.
    pub fn unsent(&self, count: usize) {
        add(&self.unsent, count as u64);
    }

    /// Counts a query over a client limit.
    pub fn limited(&self, limited: Limited) {
        add(&self.limited[limited as usize], 1);
    }

    fn service_count(&self, number: u32) -> u64 {
        let number = number as usize;
        let chunk = self.services.get(number / CHUNK).and_then(OnceLock::get);
        chunk.map_or(0, |chunk| chunk[number % CHUNK].load(Relaxed))
    }
}

/// Metrics of a DNS server.
#[derive(Debug)]
pub struct Metrics {
    /// Zone names by index; the last is `.` for all other names.
    zones: Vec<String>,
    server: String,
    threads: Mutex<Vec<Arc<ThreadCounters>>>,
    /// Counters of tasks without their own; the lock is rarely contended.
    shared: Mutex<Arc<ThreadCounters>>,
    watched: Mutex<Vec<WatchStatus>>,
    /// Service that an id last belonged to, and the count of its previous owners.
    known: Mutex<HashMap<u32, (String, u64)>>,
    programming: [Mutex<DurationHistogram>; 2],
    panics: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    changes: AtomicU64,
}

impl Metrics {
    /// Creates metrics with all counters at zero.
    #[must_use]
    pub fn new(zones: &Zones, server: &str) -> Arc<Self> {
        let mut names: Vec<String> = zones.iter().map(|zone| crate::wire::to_text(&zone.wire)).collect();
        let shared = Arc::new(ThreadCounters::new(names.len()));
        names.push(".".to_owned());
        let programming = || Mutex::new(DurationHistogram::new(Duration::from_millis(1), 2, PROGRAMMING_BUCKETS));
        Arc::new(Self {
            zones: names,
            server: server.to_owned(),
            threads: Mutex::new(vec![shared.clone()]),
            shared: Mutex::new(shared),
            watched: Mutex::default(),
            known: Mutex::default(),
            programming: [programming(), programming()],
            panics: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        })
    }

    /// Creates counters for one thread.
    #[must_use]
    pub fn thread(&self) -> Arc<ThreadCounters> {
        let thread = Arc::new(ThreadCounters::new(self.zones.len() - 1));
        self.threads.lock().push(thread.clone());
        thread
    }

    /// Counts a query of a task without its own counters.
    pub fn count(&self, observation: &Observation) {
        self.shared.lock().count(observation);
    }

    /// Counts a query over a limit of a task without its own counters.
    pub fn limited(&self, limited: Limited) {
        self.shared.lock().limited(limited);
    }

    /// Counts a recovered panic.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    /// Counts a query dropped because too many are in flight.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Counts a TCP connection over a limit.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts an update that changed records.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// Records the time from an endpoint change to the update of its records.
    pub fn programmed(&self, headless: bool, seconds: f64) {
        let duration = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        self.programming[usize::from(headless)].lock().add(duration);
    }

    /// Sets the watches whose status is exported.
    pub fn watch(&self, watched: &[WatchStatus]) {
        *self.watched.lock() = watched.to_vec();
    }
}

#[cfg(test)]
mod tests;
