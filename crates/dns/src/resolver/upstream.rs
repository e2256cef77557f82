//! One upstream: asked, timed, and watched when it fails.
//!
//! In: questions. Out: answers, or why there is none. It remembers how quick it was, so that the quick ones come first, and
//! how often it failed in a row, so that a dead one is left alone until a probe gets an answer.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{Garbled, Unpacked};
use super::datagram::{self, Datagram};
use super::ledger::Account;
use super::message::{Outgoing, rcode};
use super::stats::count;
use super::stream::{Secured, Streams};

/// How long a probe waits.
const PROBE: Duration = Duration::from_secs(1);
/// What is expected of an upstream that never answered, in microseconds.
const UNKNOWN: u64 = 100_000;
/// Bounds for when another upstream is asked beside a slow one.
const HEDGE: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(800));

/// Why a try brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no answer in time")]
    Timeout,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Garbled(#[from] Garbled),
    #[error("{0}")]
    Unusable(String),
}

/// How an upstream is used.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    pub(super) timeout: Duration,
    pub(super) force_stream: bool,
    pub(super) max_fails: u32,
    pub(super) probe: Outgoing,
    pub(super) probe_interval: Duration,
}

/// An upstream.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    account: Arc<Account>,
    usage: Usage,
    /// Connections; or why there can be none.
    streams: Result<Streams, String>,
    secured: bool,
    /// Failures in a row.
    fails: AtomicU32,
    /// Smoothed time to an answer, in microseconds.
    time: AtomicU64,
    probing: AtomicBool,
    /// Whether it leads back to us, and how that was seen.
    circle: Mutex<Option<String>>,
    pub(super) asked: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Upstream {
    /// An upstream; `secured` says how TLS is spoken, if it is, or why it cannot be.
    pub(super) fn new(
        address: SocketAddr,
        secured: Option<Result<Secured, String>>,
        expire: Duration,
        usage: Usage,
        account: Arc<Account>,
    ) -> Arc<Self> {
        let is_secured = secured.is_some();
        let streams = secured.transpose();
        let streams = streams.map(|secured| Streams::new(address, secured, expire, account.clone()));
        Arc::new(Self {
            address,
            account,
            usage,
            streams,
            secured: is_secured,
            fails: AtomicU32::new(0),
            time: AtomicU64::new(UNKNOWN),
            probing: AtomicBool::new(false),
            circle: Mutex::default(),
            asked: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Whether it should not be asked while others can be.
    pub(super) fn is_down(&self) -> bool {
        self.usage.max_fails > 0 && self.fails.load(Ordering::Relaxed) > self.usage.max_fails
    }

    /// The smoothed time to an answer.
    pub(super) fn time(&self) -> Duration {
        Duration::from_micros(self.time.load(Ordering::Relaxed))
    }

    /// When somebody else should be asked, too.
    pub(super) fn hedge_after(&self) -> Duration {
        (self.time() * 4).clamp(HEDGE.0, HEDGE.1).min(self.usage.timeout)
    }

    /// Why it must not be asked: it cannot be, or it would ask us.
    pub(super) fn unusable(&self) -> Option<String> {
        self.streams.as_ref().err().cloned().or_else(|| self.circle.lock().clone())
    }

    pub(super) fn set_circle(&self, reason: Option<String>) {
        *self.circle.lock() = reason;
    }

    /// Asks within the time for one try.
    pub(super) async fn ask(self: Arc<Self>, outgoing: Arc<Outgoing>) -> Result<Unpacked, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut watch = Stopwatch { upstream: self.clone(), began: Instant::now(), done: false };
        let result = timeout(self.usage.timeout, self.exchange(&outgoing)).await.unwrap_or(Err(Failure::Timeout));
        watch.done = true;
        match &result {
            Ok(answer) => {
                let took = watch.began.elapsed();
                self.fails.store(0, Ordering::Relaxed);
                self.account.answered(answer.rcode, took);
                self.took(took);
            }
            Err(_) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.fails.fetch_add(1, Ordering::Relaxed);
                self.took(self.usage.timeout);
                self.begin_probing();
            }
        }
        result
    }

    /// One question, by whatever way it takes to have the whole answer.
    async fn exchange(&self, outgoing: &Outgoing) -> Result<Unpacked, Failure> {
        let answer = self.carry(outgoing, true).await?;
        let puzzled = matches!(answer.rcode, rcode::FORMERR | rcode::NOTIMP) && !answer.edns;
        if puzzled { self.carry(outgoing, false).await } else { Ok(answer) }
    }

    async fn carry(&self, outgoing: &Outgoing, edns: bool) -> Result<Unpacked, Failure> {
        let streams = self.streams.as_ref().map_err(|why| Failure::Unusable(why.clone()))?;
        if !self.secured && !self.usage.force_stream {
            match datagram::ask(self.address, outgoing, edns).await? {
                Datagram::Answer(message) => {
                    let answer = Unpacked::read(&message);
                    match answer {
                        Ok(answer) if !answer.truncated => return Ok(answer),
                        // What was cut may end in the middle of a record.
                        Err(Garbled) if message[2] & 2 == 0 => return Err(Garbled.into()),
                        _ => {}
                    }
                }
                Datagram::Attacked => {}
            }
        }
        let message = streams.ask(outgoing, edns).await?;
        Ok(Unpacked::read(&message)?)
    }

    /// Asks once without judging the outcome; whether there was an answer.
    pub(super) async fn try_once(&self, outgoing: &Outgoing, limit: Duration) -> bool {
        matches!(timeout(limit, self.carry(outgoing, true)).await, Ok(Ok(_)))
    }

    fn took(&self, time: Duration) {
        let new = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 8);
        let old = self.time.load(Ordering::Relaxed);
        // Lost updates do not matter; this is a rough measure.
        self.time.store((old * 7 + new) / 8, Ordering::Relaxed);
    }

    /// Asks again and again until somebody answers; one such task at a time.
    fn begin_probing(self: &Arc<Self>) {
        if self.usage.max_fails == 0 || self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(probe(Arc::downgrade(self), self.usage.clone()));
        }
    }
}

async fn probe(upstream: Weak<Upstream>, usage: Usage) {
    let interval = usage.probe_interval.max(Duration::from_millis(10));
    loop {
        sleep(interval).await;
        let Some(upstream) = upstream.upgrade() else { return };
        let answered = timeout(PROBE, upstream.carry(&usage.probe, true)).await;
        if matches!(answered, Ok(Ok(_))) || upstream.fails.load(Ordering::Relaxed) == 0 {
            upstream.fails.store(0, Ordering::Relaxed);
            upstream.probing.store(false, Ordering::Release);
            return;
        }
        count(&upstream.account.probes_failed);
    }
}

/// Notices when a try is given up because another one was quicker. That says how slow it is; and a dead upstream would never
/// be noticed if only tries that were waited for to the end counted as failures.
struct Stopwatch {
    upstream: Arc<Upstream>,
    began: Instant,
    done: bool,
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        let elapsed = self.began.elapsed();
        if self.done || elapsed < self.upstream.hedge_after() {
            return;
        }
        self.upstream.took(elapsed);
        self.upstream.fails.fetch_add(1, Ordering::Relaxed);
        self.upstream.begin_probing();
    }
}
