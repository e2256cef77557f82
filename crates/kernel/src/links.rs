//! A device of our own with addresses on it: packets to them are for this machine, and so come where IPVS looks.

pub mod fake;
pub mod linux;

use std::collections::BTreeSet;
use std::net::IpAddr;

use rustix::io::Errno;
use thiserror::Error;

/// What there is of a device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Found {
    /// Its number; nothing if there is no such device.
    pub index: Option<u32>,
    /// Its addresses, but those that the kernel gives every device by itself.
    pub here: BTreeSet<IpAddr>,
    /// The addresses of all other devices.
    pub elsewhere: BTreeSet<IpAddr>,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the device {device}, {doing}{}: {errno}", address.map_or_else(String::new, |address| format!(" {address}")))]
pub struct LinksError {
    /// The device.
    pub device: String,
    /// What the kernel said.
    pub errno: Errno,
    /// About which address.
    pub address: Option<IpAddr>,
    /// What was being done.
    pub doing: &'static str,
}

/// Somebody who has devices.
pub trait Links: Send {
    /// What there is of a device, and of addresses elsewhere.
    ///
    /// # Errors
    /// When it cannot be read.
    fn look(&mut self, device: &str) -> Result<Found, LinksError>;

    /// Makes a device that leads nowhere, and sets it up. One that is there already is only set up.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn make(&mut self, device: &str) -> Result<(), LinksError>;

    /// Deletes a device with its addresses. Says whether there was one.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn delete(&mut self, device: &str) -> Result<bool, LinksError>;

    /// Gives a device addresses, each a host of its own. Those it has already are passed over.
    ///
    /// # Errors
    /// The first that was refused.
    fn add(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError>;

    /// Takes addresses from a device. Those it has not are passed over.
    ///
    /// # Errors
    /// The first that was refused.
    fn remove(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError>;
}
