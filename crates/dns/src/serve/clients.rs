//! Limits per client: query rate, and rate and concurrency of forwarded queries.
//!
//! In: client address and time. Out: whether a query is answered, refused, or dropped. A client over its rate gets
//! REFUSED for the same number of queries per second again, then no reply, so that a flood costs little. Queries that
//! cannot be answered at once (mostly forwarded ones) have a lower rate and a concurrency limit, because each costs a
//! task and an upstream query. UDP and TCP share the limits.
//!
//! A client is an IP address. A single host may use a whole IPv6 /64, and the Pods of a node often share one, so a /64
//! is limited in addition to its addresses, to a multiple of the limit of one address.

mod buckets;
mod slots;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use self::buckets::Ticks;
use self::buckets::{Buckets, Rate, SWEEP_PERIOD};
pub(super) use self::slots::{Slot, Slots};
use crate::answer::QueryLabels;
use crate::metrics::Limited;
use crate::wire::{Query, Reply, UDP_MIN, extended, rcode, write_error};

/// Limit of an IPv6 /64 as a multiple of the limit of an address.
const NETWORK_SHARE: u32 = 8;
/// Sets of eight buckets. A client occupies one only while in debt: 50 µs after a query at 20 000 queries per second.
const QUERY_SETS: usize = 4096;
const OTHER_SETS: usize = 1024;
/// Each bucket allows one line per minute, which also bounds the lines of a flood from many addresses.
const LOG_SETS: usize = 32;
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Limits per client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// Queries per second, and the burst; 0 means no limit.
    pub queries: u32,
    /// Forwarded queries per second, and the burst; 0 means no limit, also of concurrency.
    pub forwards: u32,
    /// Forwarded queries in flight.
    pub in_flight: usize,
    /// Whether loopback clients are exempt from these limits.
    pub exempt_loopback: bool,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { queries: 20_000, forwards: 1_000, in_flight: 256, exempt_loopback: true }
    }
}

/// Admission decision on a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    Answer,
    Refuse,
    Drop,
}

/// State of all clients.
#[derive(Debug)]
pub(super) struct Clients {
    limits: ClientLimits,
    began: Instant,
    queries: Option<Limit>,
    refusals: Option<Limit>,
    forwards: Option<Limit>,
    in_flight: Arc<Slots>,
    logged: Buckets,
}

/// Rates of addresses and networks. Both refill in the same time, so they can share a table.
#[derive(Debug)]
struct Limit {
    buckets: Buckets,
    address: Rate,
    network: Rate,
}

impl Limit {
    fn new(per_second: u32, sets: usize) -> Option<Self> {
        let network = Rate::per_second(per_second.saturating_mul(NETWORK_SHARE));
        let limit = || Self { buckets: Buckets::new(sets), address: Rate::per_second(per_second), network };
        (per_second > 0).then(limit)
    }

    /// The address is checked first: queries it is refused do not count for its network.
    fn take(&self, client: IpAddr, now: Ticks) -> bool {
        self.buckets.take(bits_of(client), self.address, now)
            && network_of(client).is_none_or(|network| self.buckets.take(network, self.network, now))
    }
}

impl Clients {
    pub(super) fn new(limits: ClientLimits, began: Instant) -> Self {
        Self {
            limits,
            began,
            queries: Limit::new(limits.queries, QUERY_SETS),
            refusals: Limit::new(limits.queries, OTHER_SETS),
            forwards: Limit::new(limits.forwards, OTHER_SETS),
            in_flight: Slots::new(usize::MAX, limits.in_flight),
            logged: Buckets::new(LOG_SETS),
        }
    }

    /// Current time, read once per batch.
    pub(super) fn ticks(&self, now: Instant) -> Ticks {
        Ticks::between(self.began, now)
    }

    /// Admits a query.
    #[inline]
    pub(super) fn admit(&self, client: IpAddr, now: Ticks) -> Admission {
        let Some(queries) = &self.queries else { return Admission::Answer };
        if self.is_exempt(client) || queries.take(client, now) {
            return Admission::Answer;
        }
        self.log(client, "queries", self.limits.queries as usize, now);
        let may_refuse = self.refusals.as_ref().is_some_and(|refusals| refusals.take(client, now));
        if may_refuse { Admission::Refuse } else { Admission::Drop }
    }

    /// Admits a query to upstreams; it is in flight until the slot is dropped.
    ///
    /// # Errors
    /// The limit that is exceeded.
    pub(super) fn forward(&self, client: IpAddr, now: Ticks) -> Result<Option<Slot>, Limited> {
        let Some(forwards) = &self.forwards else { return Ok(None) };
        if self.is_exempt(client) {
            return Ok(None);
        }
        if !forwards.take(client, now) {
            self.log(client, "forwards", self.limits.forwards as usize, now);
            return Err(Limited::Forwards);
        }
        self.wait_for_ready(client).inspect_err(|_| self.log(client, "in_flight", self.limits.in_flight, now))
    }

    /// Admits a query that waits for readiness.
    ///
    /// # Errors
    /// When too many queries of the client are waiting.
    pub(super) fn wait_for_ready(&self, client: IpAddr) -> Result<Option<Slot>, Limited> {
        if self.forwards.is_none() || self.is_exempt(client) {
            return Ok(None);
        }
        self.in_flight.enter(client).map(Some).ok_or(Limited::InFlight)
    }

    /// Sweeps the tables periodically.
    pub(super) async fn maintain(&self) {
        loop {
            tokio::time::sleep(SWEEP_PERIOD).await;
            let now = self.ticks(Instant::now());
            let limits = [&self.queries, &self.refusals, &self.forwards].into_iter().flatten();
            limits.map(|limit| &limit.buckets).chain([&self.logged]).for_each(|buckets| buckets.sweep(now));
        }
    }

    fn is_exempt(&self, client: IpAddr) -> bool {
        self.limits.exempt_loopback && client.is_loopback()
    }

    fn may_log(&self, client: IpAddr, now: Ticks) -> bool {
        self.logged.take(bits_of(client), Rate::new(1, LOG_PERIOD), now)
    }

    /// Logs a client over a limit, at most once per minute.
    #[cold]
    pub(super) fn log(&self, client: IpAddr, reason: &str, limit: usize, now: Ticks) {
        if self.may_log(client, now) {
            tracing::warn!(%client, reason, limit, "limit DNS client");
        }
    }
}

/// Address as integer; IPv4 is mapped to IPv6.
fn bits_of(client: IpAddr) -> u128 {
    match client {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The /64 of an IPv6 address.
fn network_of(client: IpAddr) -> Option<u64> {
    match client {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some((v6.to_bits() >> 64) as u64),
    }
}

/// Writes a REFUSED reply to a query over a limit; false if the message gets no reply.
pub(super) fn write_refused(message: &[u8], labels: &mut QueryLabels, out: &mut Vec<u8>) -> bool {
    *labels = QueryLabels::default();
    match Query::parse(message) {
        Ok(query) => {
            let dnssec = query.edns.is_some_and(|edns| edns.dnssec);
            *labels = QueryLabels { qtype: query.qtype, dnssec, ..QueryLabels::default() };
            let mut reply = Reply::begin(out, &query, UDP_MIN);
            reply.set_extended_error(extended::PROHIBITED);
            reply.finish(rcode::REFUSED, 0);
            true
        }
        Err(error) => write_error(message, error, out),
    }
}

#[cfg(test)]
mod tests;
