//! Why a request got no response.
//!
//! In: system and ICMP errors. Out: a [`Failure`] whose [`Kind`] distinguishes a refusal from a timeout, and its time.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Rejected at once: a reset or an abort to the first packet, or ICMP "port unreachable" (also for UDP).
    Refused,
    /// No response.
    TimedOut,
    /// The connection was established, and was reset.
    Reset,
    /// The connection was established, and was closed without a response.
    Closed,
    /// Unreachable: no route, or an ICMP "unreachable" with another code than port unreachable.
    Unreachable,
    /// Another error; see the detail.
    Other,
}

/// A request without a response.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its outcome.
    pub kind: Kind,
    /// When the request was sent, relative to the first request of its series.
    pub at: Duration,
    /// How long it took until that was known.
    pub took: Duration,
    /// The operation, and the system's error message.
    pub detail: String,
}

impl Failure {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, at: Duration::ZERO, took: Duration::ZERO, detail: detail.into() }
    }

    /// The failure that an error of the system means.
    pub(super) fn of(doing: &str, error: &io::Error) -> Self {
        let kind = match Errno::from_io_error(error) {
            Some(Errno::CONNREFUSED | Errno::NOPROTOOPT) => Kind::Refused,
            Some(Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE) => Kind::Reset,
            // IPv6 has a separate error code for "prohibited".
            Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::ACCESS) => Kind::Unreachable,
            Some(Errno::TIMEDOUT | Errno::AGAIN) => Kind::TimedOut,
            _ => Kind::Other,
        };
        Self::new(kind, format!("{doing}: {error}"))
    }

    pub(super) fn silence(doing: &str) -> Self {
        Self::new(Kind::TimedOut, format!("{doing}: nothing was heard"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} after {:?}, asked at {:?} ({})", self.kind, self.took, self.at, self.detail)
    }
}

impl std::error::Error for Failure {}
