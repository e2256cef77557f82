//! Why a question got no answer.
//!
//! In: errors of the system, and what ICMP said. Out: a [`Failure`] whose [`Kind`] tells a refusal from silence, and when.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Somebody said no at once: a reset or an abort to the first packet, or ICMP "port unreachable" (also for UDP).
    Refused,
    /// Nothing was heard.
    TimedOut,
    /// The connection stood, and was reset.
    Reset,
    /// The connection stood, and was closed without an answer.
    Closed,
    /// No way there: no route, or ICMP said "unreachable" for another reason than the port.
    Unreachable,
    /// Something else; the detail says what.
    Other,
}

/// A question without an answer.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What became of it.
    pub kind: Kind,
    /// When it was asked, counted from the first question of its series.
    pub at: Duration,
    /// How long it took until that was known.
    pub took: Duration,
    /// What was being done, and the words of the system.
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
            // IPv6 says "prohibited" in its own word.
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
