//! Upstream: queries, latency, health.
//!
//! In: queries. Out: answers, or the failure. Tracks smoothed latency, to prefer fast upstreams, and consecutive
//! failures, so that a failed upstream is not used until a health probe succeeds.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{MalformedMessage, Unpacked};
use super::message::{Outgoing, rcode};
use super::stats::count;
use super::tcp::{ConnectionPool, TlsParams};
use super::tls::TlsError;
use super::udp::{self, UdpResult};
use super::upstream_metrics::UpstreamMetrics;

/// Timeout of a health probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Assumed latency of an upstream that has not answered yet, in microseconds.
const INITIAL_LATENCY_MICROS: u64 = 100_000;
/// Bounds of the delay before another upstream is queried in parallel.
const HEDGE_DELAY: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(800));

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("timeout")]
    Timeout,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    MalformedMessage(#[from] MalformedMessage),
    #[error(transparent)]
    Tls(#[from] Arc<TlsError>),
}

/// Settings of an upstream.
#[derive(Clone, Debug)]
pub(super) struct UpstreamSettings {
    pub(super) timeout: Duration,
    pub(super) force_stream: bool,
    pub(super) max_fails: u32,
    pub(super) probe: Outgoing,
    pub(super) probe_interval: Duration,
}

/// Upstream.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    metrics: Arc<UpstreamMetrics>,
    settings: UpstreamSettings,
    /// Connection pool, or why TLS cannot be used.
    streams: Result<ConnectionPool, Arc<TlsError>>,
    secured: bool,
    /// Consecutive failures.
    fails: AtomicU32,
    /// Smoothed latency in microseconds.
    time: AtomicU64,
    probing: AtomicBool,
    /// Set if it forwards back to this server; how it was detected.
    loop_reason: Mutex<Option<String>>,
    pub(super) queries: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Upstream {
    /// Creates an upstream; `secured` are its TLS parameters, or why they are invalid.
    pub(super) fn new(
        address: SocketAddr,
        secured: Option<Result<TlsParams, Arc<TlsError>>>,
        expire: Duration,
        settings: UpstreamSettings,
        metrics: Arc<UpstreamMetrics>,
    ) -> Arc<Self> {
        let is_secured = secured.is_some();
        let streams = secured.transpose();
        let streams = streams.map(|secured| ConnectionPool::new(address, secured, expire, metrics.clone()));
        Arc::new(Self {
            address,
            metrics,
            settings,
            streams,
            secured: is_secured,
            fails: AtomicU32::new(0),
            time: AtomicU64::new(INITIAL_LATENCY_MICROS),
            probing: AtomicBool::new(false),
            loop_reason: Mutex::default(),
            queries: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Whether it is used only if all others are down, too.
    pub(super) fn is_down(&self) -> bool {
        self.settings.max_fails > 0 && self.fails.load(Ordering::Relaxed) > self.settings.max_fails
    }

    /// Smoothed latency.
    pub(super) fn time(&self) -> Duration {
        Duration::from_micros(self.time.load(Ordering::Relaxed))
    }

    /// Delay before another upstream is queried in parallel.
    pub(super) fn hedge_after(&self) -> Duration {
        (self.time() * 4).clamp(HEDGE_DELAY.0, HEDGE_DELAY.1).min(self.settings.timeout)
    }

    /// Why it must not be used: invalid TLS settings, or a loop.
    pub(super) fn unusable(&self) -> Option<String> {
        self.streams.as_ref().err().map(ToString::to_string).or_else(|| self.loop_reason.lock().clone())
    }

    pub(super) fn set_loop(&self, reason: Option<String>) {
        *self.loop_reason.lock() = reason;
    }

    /// Sends a query with the timeout of one attempt.
    pub(super) async fn query(self: Arc<Self>, outgoing: Arc<Outgoing>) -> Result<Unpacked, Failure> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let mut timer = AttemptTimer { upstream: self.clone(), began: Instant::now(), done: false };
        let result = timeout(self.settings.timeout, self.exchange(&outgoing)).await.unwrap_or(Err(Failure::Timeout));
        timer.done = true;
        match &result {
            Ok(answer) => {
                let latency = timer.began.elapsed();
                self.fails.store(0, Ordering::Relaxed);
                self.metrics.answered(answer.rcode, latency);
                self.record_latency(latency);
            }
            Err(_) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.fails.fetch_add(1, Ordering::Relaxed);
                self.record_latency(self.settings.timeout);
                self.start_probing();
            }
        }
        result
    }

    /// Sends a query, without EDNS if the upstream does not support it.
    async fn exchange(&self, outgoing: &Outgoing) -> Result<Unpacked, Failure> {
        let answer = self.send(outgoing, true).await?;
        let lacks_edns = matches!(answer.rcode, rcode::FORMERR | rcode::NOTIMP) && !answer.edns;
        if lacks_edns { self.send(outgoing, false).await } else { Ok(answer) }
    }

    async fn send(&self, outgoing: &Outgoing, edns: bool) -> Result<Unpacked, Failure> {
        let streams = self.streams.as_ref().map_err(Arc::clone)?;
        if !self.secured && !self.settings.force_stream {
            match udp::query(self.address, outgoing, edns).await? {
                UdpResult::Answer(message) => {
                    let answer = Unpacked::read(&message);
                    match answer {
                        Ok(answer) if !answer.truncated => return Ok(answer),
                        // A truncated message may end within a record.
                        Err(MalformedMessage) if message[2] & 2 == 0 => return Err(MalformedMessage.into()),
                        _ => {}
                    }
                }
                UdpResult::Mismatched => {}
            }
        }
        let message = streams.query(outgoing, edns).await?;
        Ok(Unpacked::read(&message)?)
    }

    /// Sends one query without affecting health; returns whether it was answered.
    pub(super) async fn probe_once(&self, outgoing: &Outgoing, limit: Duration) -> bool {
        matches!(timeout(limit, self.send(outgoing, true)).await, Ok(Ok(_)))
    }

    fn record_latency(&self, time: Duration) {
        let new = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 8);
        let old = self.time.load(Ordering::Relaxed);
        // Lost updates are acceptable for an estimate.
        self.time.store((old * 7 + new) / 8, Ordering::Relaxed);
    }

    /// Starts health probes unless they run already.
    fn start_probing(self: &Arc<Self>) {
        if self.settings.max_fails == 0 || self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(probe(Arc::downgrade(self), self.settings.clone()));
        }
    }
}

async fn probe(upstream: Weak<Upstream>, settings: UpstreamSettings) {
    let interval = settings.probe_interval.max(Duration::from_millis(10));
    loop {
        sleep(interval).await;
        let Some(upstream) = upstream.upgrade() else { return };
        let answered = timeout(PROBE_TIMEOUT, upstream.send(&settings.probe, true)).await;
        if matches!(answered, Ok(Ok(_))) || upstream.fails.load(Ordering::Relaxed) == 0 {
            upstream.fails.store(0, Ordering::Relaxed);
            upstream.probing.store(false, Ordering::Release);
            return;
        }
        count(&upstream.metrics.probes_failed);
    }
}

/// Records the latency of an attempt that is dropped because another upstream was faster. Without it, attempts that are
/// cancelled by hedging would never mark a dead upstream as down.
struct AttemptTimer {
    upstream: Arc<Upstream>,
    began: Instant,
    done: bool,
}

impl Drop for AttemptTimer {
    fn drop(&mut self) {
        let elapsed = self.began.elapsed();
        if self.done || elapsed < self.upstream.hedge_after() {
            return;
        }
        self.upstream.record_latency(elapsed);
        self.upstream.fails.fetch_add(1, Ordering::Relaxed);
        self.upstream.start_probing();
    }
}
