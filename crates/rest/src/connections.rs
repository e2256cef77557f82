//! Limits of connections, in total and per source, and idle timeouts.
//!
//! In: each accepted connection, before TLS. Out: a [`Slot`] that counts until the connection ends, also after an HTTP upgrade, or the reason
//! why it is closed at once. Without this, clients without credentials could exhaust the file descriptors of the process.
//!
//! - One source is an IPv4 address or an IPv6 /64, because a machine usually has a whole /64.
//! - Administrators and components of this machine use loopback: a tenth of all slots is reserved for loopback, and loopback may use at most
//!   half of them, so that neither side can lock out the other.
//! - Handshakes are limited separately, by the same rules: they cost CPU time and need no credentials.

mod activity;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::metrics::Metrics;

pub(crate) use activity::{Activity, Tracked};

/// The shortest interval between log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// One of this many slots is reserved for loopback.
const RESERVED_PART: usize = 10;

/// Limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Open connections.
    pub total: usize,
    /// Open connections from one source other than loopback.
    pub per_source: usize,
    /// TLS handshakes in progress.
    pub handshakes: usize,
    /// TLS handshakes in progress from one source other than loopback.
    pub handshakes_per_source: usize,
    /// The timeout of a handshake.
    pub handshake_timeout: Duration,
    /// The timeout for the first request of a connection.
    pub first_request_timeout: Duration,
    /// The idle timeout after that.
    pub idle_timeout: Duration,
    /// The timeout for the peer to acknowledge the close of an idle connection.
    pub close_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: 10_000,
            per_source: 1000,
            handshakes: 1000,
            handshakes_per_source: 100,
            handshake_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(30),
            // Go clients close unused connections after 90 seconds and should do so first.
            idle_timeout: Duration::from_mins(5),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refusal {
    /// Too many are open.
    Total,
    /// Too many from this source are open.
    Source,
    /// Too many handshakes are in progress.
    Handshakes,
    /// Too many handshakes from this source are in progress.
    SourceHandshakes,
}

impl Refusal {
    /// The metric label.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Source => "source",
            Self::Handshakes => "handshakes",
            Self::SourceHandshakes => "source_handshakes",
        }
    }
}

/// All connections of a server.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Counts {
    open: Count,
    handshakes: Count,
    logged: Option<Instant>,
    unlogged: u64,
}

/// The number of connections, in total and of each source.
#[derive(Default)]
struct Count {
    total: usize,
    of: HashMap<IpAddr, usize>,
}

impl Count {
    /// Whether one more is within the total limit, and within the limit of the source.
    fn admits(&self, source: IpAddr, total: usize, per_source: usize) -> (bool, bool) {
        let local = source.is_loopback();
        let (total, own) = if local { (total, total.div_ceil(2)) } else { (total - total / RESERVED_PART, per_source) };
        (self.total < total, self.of.get(&source).copied().unwrap_or_default() < own)
    }

    fn add(&mut self, source: IpAddr) {
        self.total += 1;
        *self.of.entry(source).or_default() += 1;
    }

    fn remove(&mut self, source: IpAddr) {
        self.total -= 1;
        if let Some(own) = self.of.get_mut(&source) {
            *own -= 1;
            if *own == 0 {
                self.of.remove(&source);
            }
        }
    }
}

/// The source of a peer.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        IpAddr::V4(v4) if v4.is_loopback() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        other => other,
    }
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default(), metrics })
    }

    /// The limits.
    pub(crate) const fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    /// Counts an accepted connection before its handshake.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Slot, Refusal> {
        let source = source(peer);
        let mut counts = self.counts.lock();
        let limits = &self.limits;
        let open = counts.open.admits(source, limits.total, limits.per_source);
        let handshakes = counts.handshakes.admits(source, limits.handshakes, limits.handshakes_per_source);
        let refusal = match (open, handshakes) {
            ((_, false), _) => Some(Refusal::Source),
            ((false, true), _) => Some(Refusal::Total),
            (_, (_, false)) => Some(Refusal::SourceHandshakes),
            (_, (false, true)) => Some(Refusal::Handshakes),
            ((true, true), (true, true)) => None,
        };
        if let Some(refusal) = refusal {
            self.log(&mut counts, peer, refusal);
            drop(counts);
            self.metrics.connection_refused(refusal.reason());
            return Err(refusal);
        }
        counts.open.add(source);
        counts.handshakes.add(source);
        drop(counts);
        self.metrics.connections(1);
        Ok(Slot { connections: self.clone(), source, is_in_handshake: true })
    }

    /// Logs refusals, rate limited.
    fn log(&self, counts: &mut Counts, peer: IpAddr, refusal: Refusal) {
        counts.unlogged += 1;
        if counts.logged.is_some_and(|last| last.elapsed() < LOG_INTERVAL) {
            return;
        }
        counts.logged = Some(Instant::now());
        let refused = std::mem::take(&mut counts.unlogged);
        let open = counts.open.total;
        tracing::warn!(%peer, reason = refusal.reason(), open, refused, "refused connections: limit exceeded");
    }
}

/// One connection, counted until the value is dropped.
pub(crate) struct Slot {
    connections: Arc<Connections>,
    source: IpAddr,
    is_in_handshake: bool,
}

impl Slot {
    /// The handshake has completed.
    pub(crate) fn secured(&mut self) {
        if std::mem::take(&mut self.is_in_handshake) {
            self.connections.counts.lock().handshakes.remove(self.source);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.secured();
        self.connections.counts.lock().open.remove(self.source);
        self.connections.metrics.connections(-1);
    }
}

/// A stream that counts as a connection until it is dropped.
pub(crate) struct Counted<S> {
    stream: S,
    _slot: Slot,
}

impl<S> Counted<S> {
    pub(crate) const fn new(stream: S, slot: Slot) -> Self {
        Self { stream, _slot: slot }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
