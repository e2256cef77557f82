//! Addresses of this machine, and notification of changes.
//!
//! Node ports and health-check ports use them. They change at run time.

pub mod fake;
pub mod linux;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

/// An address of this machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Prefix length.
    pub prefix_len: u8,
    /// Interface index.
    pub interface: u32,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("addresses of this machine, {doing}: {errno}")]
pub struct AddressesError {
    /// Error number of the kernel.
    pub errno: Errno,
    /// The failed operation.
    pub doing: &'static str,
}

/// Access to addresses.
pub trait Addresses: Send {
    /// All addresses of both families.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&mut self) -> Result<BTreeSet<Address>, AddressesError>;
}

/// Notifies of address changes.
pub trait Monitor: Send {
    /// Waits for a change. False after the timeout.
    ///
    /// # Errors
    /// When the monitor has ended.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, AddressesError>;
}
