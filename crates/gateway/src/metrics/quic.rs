//! Limits of QUIC that were reached, per Service.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A limit of QUIC clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuicLimit {
    /// Handshakes in progress with clients whose address is not proven: the client had to prove it.
    Handshakes,
    /// Connections of the port.
    Connections,
    /// Size of the headers of a request.
    Headers,
    /// Requests that a client may cancel: the connection was closed.
    Resets,
}

/// How often each limit was reached.
#[derive(Debug, Default)]
pub(crate) struct QuicMetrics([AtomicU64; QuicLimit::ALL.len()]);

impl QuicLimit {
    const ALL: [Self; 4] = [Self::Handshakes, Self::Connections, Self::Headers, Self::Resets];

    /// The value of its label.
    const fn name(self) -> &'static str {
        match self {
            Self::Handshakes => "handshakes",
            Self::Connections => "connections",
            Self::Headers => "headers",
            Self::Resets => "resets",
        }
    }
}

impl QuicMetrics {
    /// Counts that a limit was reached.
    pub(crate) fn limited(&self, limit: QuicLimit) {
        if let Some(count) = self.0.get(limit as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// How often each limit was reached, by name.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        QuicLimit::ALL.iter().zip(&self.0).map(|(limit, count)| (limit.name(), count.load(Relaxed)))
    }
}
