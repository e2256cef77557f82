//! Connections that the kernel remembers: which there are, and how to make it forget them.
//!
//! Only UDP is ever forgotten. A sender that never stops keeps its entry alive for ever, and with it the backend that was chosen
//! at the beginning; TCP and SCTP end by themselves. People who ask who talks to whom are told of all protocols.

pub mod fake;
pub mod linux;

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use thiserror::Error;

use crate::Family;

/// The number of UDP.
pub const UDP: u8 = 17;

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Direction {
    /// Who sends.
    pub source: SocketAddr,
    /// Who receives.
    pub destination: SocketAddr,
}

impl Direction {
    /// From parts.
    #[must_use]
    pub fn new(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Self {
        Self { source: source.into(), destination: destination.into() }
    }
}

/// A connection as the kernel remembers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// Its family.
    pub family: Family,
    /// Its protocol.
    pub protocol: u8,
    /// The zone that it is kept in.
    pub zone: u16,
    /// As the client sends: to the frontend.
    pub original: Direction,
    /// As answers come: from the backend, or from the frontend if nothing was translated.
    pub reply: Direction,
    /// Whether connection tracking itself translates it. One that it does not, but that is answered by a backend all the same, is
    /// IPVS's, and leads nowhere without it.
    pub translated: bool,
}

/// A connection that is answered by somebody else than it was sent to, and what has passed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counted {
    /// The connection.
    pub flow: Flow,
    /// How many bytes have passed, in both directions; nothing when the kernel did not count.
    pub bytes: Option<u64>,
    /// Whether both sides have ended it, and it is only remembered.
    pub ended: bool,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("connection tracking, {doing}: {errno}")]
pub struct ConntrackError {
    /// What the kernel said.
    pub errno: Errno,
    /// What was being done.
    pub doing: &'static str,
}

impl ConntrackError {
    /// The same request may succeed a moment later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        [Errno::INTR, Errno::NOBUFS, Errno::AGAIN].contains(&self.errno)
    }

    /// This process may not do it.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        [Errno::PERM, Errno::ACCESS].contains(&self.errno)
    }
}

/// Somebody who remembers connections.
pub trait Conntrack: Send {
    /// The UDP connections of a family.
    ///
    /// # Errors
    /// When they cannot be read.
    fn udp_flows(&mut self, family: Family) -> Result<Vec<Flow>, ConntrackError>;

    /// The connections of a family, of any protocol with ports, that are answered by somebody else than they were sent to.
    ///
    /// # Errors
    /// When they cannot be read.
    fn led_flows(&mut self, family: Family) -> Result<Vec<Counted>, ConntrackError>;

    /// Forgets connections. Those that are gone already are passed over. Says how many were forgotten.
    ///
    /// # Errors
    /// At the first that could not be forgotten; those before it are.
    fn delete(&mut self, flows: &[Flow]) -> Result<usize, ConntrackError>;
}
