//! Addresses by netlink. A listener only says that something changed; whoever hears it asks for the list, which is right
//! whatever was lost or came twice.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Address, Addresses, AddressesError, Monitor};
use crate::netlink::{Message, Messages, Socket};
use crate::{Family, address_from};

/// Kinds of messages.
const NEW: u16 = 20;
const DELETE: u16 = 21;
const GET: u16 = 22;
/// The header of a message about an address: family, prefix length, flags, scope, interface.
const HEADER: usize = 8;
/// Attributes: the address of the other side on a point-to-point link, and ours. On other links both are ours.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
/// Those that hear of addresses: of IPv4 and of IPv6.
const GROUPS: u32 = 0x10 | 0x100;
/// How many bytes of messages the kernel may keep for us.
const ROOM: usize = 1 << 20;

/// The addresses of the network namespace that it was opened in.
pub struct Linux {
    socket: Socket,
}

impl Linux {
    /// Opens it.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn open() -> Result<Self, AddressesError> {
        let socket = Socket::open(None, 0, ROOM);
        let socket = socket.map_err(|errno| AddressesError { errno, doing: "opening a socket" })?;
        Ok(Self { socket })
    }
}

impl Addresses for Linux {
    fn list(&mut self) -> Result<BTreeSet<Address>, AddressesError> {
        let mut found = BTreeSet::new();
        let each = |found: &mut BTreeSet<Address>, told: &Message<'_>| found.extend(address(told));
        let listed = self.socket.dump(&mut found, GET, |w| w.raw(&[0; HEADER]), BTreeSet::clear, each);
        listed.map_err(|errno| AddressesError { errno, doing: "listing" })?;
        Ok(found)
    }
}

/// Reads an address.
fn address(told: &Message<'_>) -> Option<Address> {
    if told.kind != NEW {
        return None;
    }
    let [family, prefix_len, _, _, interface @ ..] = *told.body.first_chunk::<HEADER>()?;
    let attributes = told.attributes(HEADER);
    let ip = address_from(attributes.find(LOCAL).or_else(|| attributes.find(ADDRESS))?)?;
    (Family::from_number(family) == Some(Family::of(ip))).then_some(Address {
        ip,
        prefix_len,
        interface: u32::from_ne_bytes(interface),
    })
}

/// Hears of changes of addresses in the network namespace that it was opened in.
pub struct Watcher {
    socket: Socket,
}

impl Watcher {
    /// Begins to listen.
    ///
    /// # Errors
    /// When there is no socket to be had.
    pub fn open() -> Result<Self, AddressesError> {
        let socket = Socket::open(None, GROUPS, ROOM);
        let socket = socket.map_err(|errno| AddressesError { errno, doing: "listening" })?;
        Ok(Self { socket })
    }

    /// Reads everything that has been said so far. Whether it was about addresses.
    fn hear(&mut self) -> Result<bool, Errno> {
        let mut changed = false;
        loop {
            match self.socket.receive() {
                Ok(Some(datagram)) => changed |= Messages::new(datagram).any(|told| [NEW, DELETE].contains(&told.kind)),
                Ok(None) => return Ok(changed),
                // Some were lost: they would have been about addresses.
                Err(Errno::NOBUFS) => changed = true,
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Monitor for Watcher {
    fn wait(&mut self, patience: Option<Duration>) -> Result<bool, AddressesError> {
        let failed = |errno| AddressesError { errno, doing: "listening" };
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.socket.ready(left).map_err(failed)?;
            if self.hear().map_err(failed)? {
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

/// Reads bytes as whatever the kernel could tell of addresses.
pub(crate) fn read_anything(bytes: &[u8]) {
    for told in Messages::new(bytes) {
        address(&told);
    }
}
