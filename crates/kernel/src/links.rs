//! A dummy device for Service addresses: packets to them are local, so that IPVS sees them.

pub mod fake;
pub mod linux;

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustix::io::Errno;
use thiserror::Error;

/// A device and the addresses of the machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeviceState {
    /// Interface index; none if the device does not exist.
    pub index: Option<u32>,
    /// Its addresses, except link-local ones assigned by the kernel.
    pub here: BTreeSet<IpAddr>,
    /// Addresses of all other devices.
    pub elsewhere: BTreeSet<IpAddr>,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the device {device}, {doing}{}: {errno}", address.map_or_else(String::new, |address| format!(" {address}")))]
pub struct LinksError {
    /// Device name.
    pub device: String,
    /// Error number of the kernel.
    pub errno: Errno,
    /// The address concerned.
    pub address: Option<IpAddr>,
    /// The failed operation.
    pub doing: &'static str,
}

/// Access to network devices.
pub trait Links: Send {
    /// Reads a device and the addresses of others.
    ///
    /// # Errors
    /// When it cannot be read.
    fn state(&mut self, device: &str) -> Result<DeviceState, LinksError>;

    /// Creates a dummy device and sets it up. An existing one is only set up.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn make(&mut self, device: &str) -> Result<(), LinksError>;

    /// Deletes a device with its addresses; returns whether it existed.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn delete(&mut self, device: &str) -> Result<bool, LinksError>;

    /// Adds addresses with full prefix length. Existing ones are skipped.
    ///
    /// # Errors
    /// The first failure.
    fn add(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError>;

    /// Removes addresses. Missing ones are skipped.
    ///
    /// # Errors
    /// The first failure.
    fn remove(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError>;
}
