//! What the server counts, under the names that dashboards of CoreDNS know.
//!
//! In: a fact for each question, from threads that must not wait for each other: each has a [`Tally`] of its own, which
//! only it writes. Out: the sum of all, as text, when somebody asks. Nothing is looked up by name while counting.

mod spread;
mod text;

pub use spread::Spread;
pub(crate) use text::head;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::watch::WatchStatus;
use parking_lot::Mutex;

use crate::answer::Seen;
use crate::beyond::Transport;
use crate::wire::rtype;
use crate::zone::Zones;

/// Types that are counted by name; the last place is for all others.
const TYPES: usize = rtype::TABLE.len() + 1;
/// Codes that are counted, with one place for all others.
const CODES: usize = 18;
/// Bounds of sizes in bytes.
const SIZES: [usize; 14] = [0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16000, 32000, 48000, 64000];
/// How many bounds of times there are: 0.25 ms, doubled each time.
const TIMES: usize = 16;
/// How many bounds of the time from a change to its answers: 1 ms, doubled each time.
const DELAYS: usize = 20;
/// Services are counted in pieces of this many, at most as many pieces.
const PIECE: usize = 1024;

/// A question and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// What it was about.
    pub seen: Seen,
    /// How it came.
    pub transport: Transport,
    /// Whether from an IPv4 address.
    pub v4: bool,
    /// How long the question was.
    pub asked: usize,
    /// How long the answer is; none if there is none.
    pub answered: Option<usize>,
    /// The code of the answer.
    pub rcode: u16,
    /// How long it took.
    pub took: Duration,
}

impl Fact {
    /// The code in an answer, without its high bits.
    #[must_use]
    pub fn rcode_of(reply: &[u8]) -> u16 {
        reply.get(3).map_or(0, |byte| u16::from(byte & 15))
    }
}

/// Which limit of its client a query was over, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limited {
    /// Over the rate of queries: refused.
    Refused,
    /// Far over the rate of queries: dropped.
    Dropped,
    /// Over the rate of queries for upstreams: refused.
    Forwards,
    /// Over the number of queries in flight: refused.
    InFlight,
}

/// How each is labelled: the reason, the result.
const LIMITED: [(&str, &str); 4] =
    [("queries", "refused"), ("queries", "dropped"), ("forwards", "refused"), ("in_flight", "refused")];

/// What one thread counts.
#[derive(Debug)]
pub struct Tally {
    zones: Box<[OfZone]>,
    services: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Datagrams that the kernel did not take.
    unsent: AtomicU64,
    /// Queries over a limit of their client.
    limited: [AtomicU64; LIMITED.len()],
}

#[derive(Debug)]
struct OfZone {
    /// By transport, family and type.
    requests: Box<[AtomicU64]>,
    responses: [AtomicU64; CODES],
    dnssec: AtomicU64,
    times: Histogram<{ TIMES + 1 }>,
    asked: [Histogram<{ SIZES.len() + 1 }>; 2],
    answered: [Histogram<{ SIZES.len() + 1 }>; 2],
}

/// Counts by bound; the last place is beyond all bounds. The sum is in whatever unit is added.
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

/// Adds where only one thread writes.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

impl<const N: usize> Histogram<N> {
    fn add(&self, bound: usize, value: u64) {
        add(&self.counts[bound.min(N - 1)], 1);
        add(&self.sum, value);
    }
}

fn size_bound(size: usize) -> usize {
    SIZES.iter().position(|bound| size <= *bound).unwrap_or(SIZES.len())
}

/// The first bound that a time is not beyond: `first` doubled so many times.
fn time_bound(took: Duration, first: Duration, bounds: usize) -> usize {
    let times = took.as_nanos().div_ceil(first.as_nanos()).max(1);
    (times.next_power_of_two().trailing_zeros() as usize).min(bounds)
}

fn type_place(qtype: u16) -> usize {
    rtype::TABLE.iter().position(|(number, _)| *number == qtype).unwrap_or(TYPES - 1)
}

impl Tally {
    fn new(zones: usize) -> Self {
        let zone = || OfZone {
            requests: (0..4 * TYPES).map(|_| AtomicU64::new(0)).collect(),
            responses: [const { AtomicU64::new(0) }; CODES],
            dnssec: AtomicU64::new(0),
            times: Histogram::default(),
            asked: Default::default(),
            answered: Default::default(),
        };
        Self {
            zones: (0..=zones).map(|_| zone()).collect(),
            services: (0..PIECE).map(|_| OnceLock::new()).collect(),
            unsent: AtomicU64::new(0),
            limited: Default::default(),
        }
    }

    /// Counts a question. Only the thread whose tally it is may do so.
    pub fn count(&self, fact: &Fact) {
        let other = self.zones.len() - 1;
        let zone = &self.zones[fact.seen.zone.unwrap_or(other).min(other)];
        let transport = usize::from(fact.transport == Transport::Tcp);
        let place = (transport * 2 + usize::from(!fact.v4)) * TYPES + type_place(fact.seen.qtype);
        add(&zone.requests[place], 1);
        add(&zone.dnssec, u64::from(fact.seen.dnssec));
        zone.asked[transport].add(size_bound(fact.asked), fact.asked as u64);
        let nanoseconds = u64::try_from(fact.took.as_nanos()).unwrap_or(u64::MAX);
        zone.times.add(time_bound(fact.took, Duration::from_micros(250), TIMES), nanoseconds);
        if let Some(size) = fact.answered {
            add(&zone.responses[usize::from(fact.rcode).min(CODES - 1)], 1);
            zone.answered[transport].add(size_bound(size), size as u64);
        }
        if let Some(number) = fact.seen.service.map(|number| number as usize) {
            let Some(piece) = self.services.get(number / PIECE) else { return };
            let piece = piece.get_or_init(|| (0..PIECE).map(|_| AtomicU64::new(0)).collect());
            add(&piece[number % PIECE], 1);
        }
    }

    /// Counts replies that were lost on their way into the network.
    pub fn unsent(&self, count: usize) {
        add(&self.unsent, count as u64);
    }

    /// Counts a query over a limit of its client.
    pub fn limited(&self, limited: Limited) {
        add(&self.limited[limited as usize], 1);
    }

    fn of_service(&self, number: u32) -> u64 {
        let number = number as usize;
        let piece = self.services.get(number / PIECE).and_then(OnceLock::get);
        piece.map_or(0, |piece| piece[number % PIECE].load(Relaxed))
    }
}

/// The figures of a server.
#[derive(Debug)]
pub struct Metrics {
    /// Names of the zones, in the order in which they are counted; the last is everything else.
    zones: Vec<String>,
    server: String,
    tallies: Mutex<Vec<Arc<Tally>>>,
    /// For those who are not alone: behind a lock, which is free nearly always.
    shared: Mutex<Arc<Tally>>,
    watched: Mutex<Vec<WatchStatus>>,
    /// By what a number was last known, and what was counted for others before.
    known: Mutex<HashMap<u32, (String, u64)>>,
    delays: [Mutex<Spread>; 2],
    panics: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    changes: AtomicU64,
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(zones: &Zones, server: &str) -> Arc<Self> {
        let mut names: Vec<String> = zones.iter().map(|zone| crate::wire::to_text(&zone.wire)).collect();
        let shared = Arc::new(Tally::new(names.len()));
        names.push(".".to_owned());
        let delay = || Mutex::new(Spread::new(Duration::from_millis(1), 2, DELAYS));
        Arc::new(Self {
            zones: names,
            server: server.to_owned(),
            tallies: Mutex::new(vec![shared.clone()]),
            shared: Mutex::new(shared),
            watched: Mutex::default(),
            known: Mutex::default(),
            delays: [delay(), delay()],
            panics: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        })
    }

    /// A tally for one thread.
    #[must_use]
    pub fn tally(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally::new(self.zones.len() - 1));
        self.tallies.lock().push(tally.clone());
        tally
    }

    /// Counts a question for somebody who has no tally.
    pub fn count(&self, fact: &Fact) {
        self.shared.lock().count(fact);
    }

    /// Counts a query over a limit for somebody who has no tally.
    pub fn limited(&self, limited: Limited) {
        self.shared.lock().limited(limited);
    }

    /// Counts a thread that stumbled and went on.
    pub fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    /// Counts a question that nobody had time for.
    pub fn dropped(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Counts a connection that was not taken.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a change that names showed.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// Counts the time from a change of endpoints to answers that show it.
    pub fn programmed(&self, headless: bool, seconds: f64) {
        let took = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        self.delays[usize::from(headless)].lock().add(took);
    }

    /// Shows how these watches go, and no others.
    pub fn watch(&self, watched: &[WatchStatus]) {
        *self.watched.lock() = watched.to_vec();
    }
}

#[cfg(test)]
mod tests;
