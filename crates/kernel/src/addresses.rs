//! The addresses of this machine, and news of them.
//!
//! Node ports are served on them, health ports listen on them. They come and go while the program runs.

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
    /// How many of its bits name the network.
    pub prefix_len: u8,
    /// The number of the interface that has it.
    pub interface: u32,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("addresses of this machine, {doing}: {errno}")]
pub struct AddressesError {
    /// What the kernel said.
    pub errno: Errno,
    /// What was being done.
    pub doing: &'static str,
}

/// Somebody who has addresses.
pub trait Addresses: Send {
    /// All of them, of both families.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&mut self) -> Result<BTreeSet<Address>, AddressesError>;
}

/// Somebody who tells when addresses change.
pub trait Monitor: Send {
    /// Waits for a change. False when none came in time.
    ///
    /// # Errors
    /// When there is nothing more to hear.
    fn wait(&mut self, patience: Option<Duration>) -> Result<bool, AddressesError>;
}
