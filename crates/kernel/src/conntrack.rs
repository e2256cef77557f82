//! Conntrack entries: listing and deleting.
//!
//! Only UDP entries are deleted. A client that never stops sending keeps its entry alive, and with it the backend
//! chosen at the start; TCP and SCTP connections end by themselves. Reports list all protocols.

pub mod fake;
pub mod linux;

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use thiserror::Error;

use crate::Family;

/// IP protocol number of UDP.
pub const UDP: u8 = 17;

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Direction {
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
}

impl Direction {
    /// A direction from its parts.
    #[must_use]
    pub fn new(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Self {
        Self { source: source.into(), destination: destination.into() }
    }
}

/// A conntrack entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// Its family.
    pub family: Family,
    /// Its protocol.
    pub protocol: u8,
    /// Conntrack zone.
    pub zone: u16,
    /// Client to frontend.
    pub original: Direction,
    /// Reply: from the backend, or from the frontend if untranslated.
    pub reply: Direction,
    /// Whether conntrack performs the translation. An entry without it whose replies come from a backend belongs to
    /// IPVS and is useless without it.
    pub translated: bool,
}

/// A connection whose replies come from another address than its destination, with its counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counted {
    /// The connection.
    pub flow: Flow,
    /// Bytes in both directions; none without accounting.
    pub bytes: Option<u64>,
    /// Whether it is closed and has not expired.
    pub ended: bool,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("connection tracking, {doing}: {errno}")]
pub struct ConntrackError {
    /// Error number of the kernel.
    pub errno: Errno,
    /// The failed operation.
    pub doing: &'static str,
}

impl ConntrackError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        [Errno::INTR, Errno::NOBUFS, Errno::AGAIN].contains(&self.errno)
    }

    /// Whether privileges are missing.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        [Errno::PERM, Errno::ACCESS].contains(&self.errno)
    }
}

/// Access to conntrack.
pub trait Conntrack: Send {
    /// UDP entries of a family.
    ///
    /// # Errors
    /// When they cannot be read.
    fn udp_flows(&mut self, family: Family) -> Result<Vec<Flow>, ConntrackError>;

    /// Entries of a family, of any protocol with ports, whose replies come from another address than their destination.
    ///
    /// # Errors
    /// When they cannot be read.
    fn translated_flows(&mut self, family: Family) -> Result<Vec<Counted>, ConntrackError>;

    /// Deletes entries; returns how many existed.
    ///
    /// # Errors
    /// The first failure; earlier entries are deleted.
    fn delete(&mut self, flows: &[Flow]) -> Result<usize, ConntrackError>;
}
