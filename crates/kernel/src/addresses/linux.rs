//! Addresses over netlink. The monitor only reports that something changed; the caller reads the list, which is correct
//! even if notifications were lost or repeated.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Address, Addresses, AddressesError, Monitor};
use crate::netlink::{Message, Messages, Socket};
use crate::{Family, address_from};

/// Message types.
const NEW: u16 = 20;
const DELETE: u16 = 21;
const GET: u16 = 22;
/// Header of address messages: family, prefix length, flags, scope, interface.
const HEADER: usize = 8;
/// Attributes: peer address of point-to-point links, and our address. On other links both are ours.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
/// Multicast groups of IPv4 and IPv6 addresses.
const GROUPS: u32 = 0x10 | 0x100;
/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Addresses of the current network namespace.
pub struct Linux {
    socket: Socket,
}

impl Linux {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the socket is refused.
    pub fn open() -> Result<Self, AddressesError> {
        let socket = Socket::open(None, 0, RECEIVE_BUFFER);
        let socket = socket.map_err(|errno| AddressesError { errno, doing: "opening a socket" })?;
        Ok(Self { socket })
    }
}

impl Addresses for Linux {
    fn list(&mut self) -> Result<BTreeSet<Address>, AddressesError> {
        let mut found = BTreeSet::new();
        let each = |found: &mut BTreeSet<Address>, message: &Message<'_>| found.extend(address(message));
        let listed = self.socket.dump(&mut found, GET, |w| w.raw(&[0; HEADER]), BTreeSet::clear, each);
        listed.map_err(|errno| AddressesError { errno, doing: "listing" })?;
        Ok(found)
    }
}

/// Parses an address.
fn address(message: &Message<'_>) -> Option<Address> {
    if message.kind != NEW {
        return None;
    }
    let [family, prefix_len, _, _, interface @ ..] = *message.body.first_chunk::<HEADER>()?;
    let attributes = message.attributes(HEADER);
    let ip = address_from(attributes.find(LOCAL).or_else(|| attributes.find(ADDRESS))?)?;
    (Family::from_number(family) == Some(Family::of(ip))).then_some(Address {
        ip,
        prefix_len,
        interface: u32::from_ne_bytes(interface),
    })
}

/// Monitors address changes in the current network namespace.
pub struct Watcher {
    socket: Socket,
}

impl Watcher {
    /// Opens the monitor.
    ///
    /// # Errors
    /// When the socket is refused.
    pub fn open() -> Result<Self, AddressesError> {
        let socket = Socket::open(None, GROUPS, RECEIVE_BUFFER);
        let socket = socket.map_err(|errno| AddressesError { errno, doing: "listening" })?;
        Ok(Self { socket })
    }

    /// Reads all pending messages; returns whether any is about addresses.
    fn receive(&mut self) -> Result<bool, Errno> {
        let mut changed = false;
        loop {
            match self.socket.receive() {
                Ok(Some(datagram)) => {
                    changed |= Messages::new(datagram).any(|message| [NEW, DELETE].contains(&message.kind));
                }
                Ok(None) => return Ok(changed),
                // Some were lost: they would have been about addresses.
                Err(Errno::NOBUFS) => changed = true,
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Monitor for Watcher {
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, AddressesError> {
        let failed = |errno| AddressesError { errno, doing: "listening" };
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.socket.ready(left).map_err(failed)?;
            if self.receive().map_err(failed)? {
                return Ok(true);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses bytes as any message of this port.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in Messages::new(bytes) {
        address(&message);
    }
}
