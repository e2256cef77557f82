//! Raw frames of this machine: two packet sockets on all interfaces, and netlink for the list of interfaces.
//!
//! IPv6 groups are joined with an ordinary socket that receives nothing: so the kernel subscribes at the switch (MLD)
//! and the network card, which would filter such frames otherwise.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::raw::{self, Step};
use super::{Interface, Mac, Packets, PacketsError, Received, Waker};
use crate::addresses::{self, Addresses as _};
use crate::netlink::{Message, Socket};

/// EtherTypes.
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// BPF filter for IPv6: ICMPv6 types 135 and 136 without extension headers.
const DISCOVERY: [Step; 7] = [
    (0x30, 0, 0, 20),
    (0x15, 0, 4, 58),
    (0x30, 0, 0, 54),
    (0x15, 1, 0, 135),
    (0x15, 0, 1, 136),
    (0x06, 0, 0, 0xffff),
    (0x06, 0, 0, 0),
];
/// Longer than any frame that is parsed.
const FRAME: usize = 2048;

/// Link messages: types, header, attributes, flags.
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const HEADER: usize = 16;
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MASTER: u16 = 10;
const ETHERNET: u16 = 1;
const UP: u32 = 0x1;
const BROADCAST: u32 = 0x2;
const LOOPBACK: u32 = 0x8;
const NO_ARP: u32 = 0x80;
/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Interfaces of the current network namespace.
pub struct Linux {
    arp: OwnedFd,
    discovery: OwnedFd,
    woken: Arc<OwnedFd>,
    groups: Option<UdpSocket>,
    joined: BTreeSet<(u32, Ipv6Addr)>,
    links: Socket,
    addresses: addresses::linux::Linux,
    left_out: Vec<String>,
    buffer: Vec<u8>,
}

impl Linux {
    /// Opens the sockets; interfaces of these names are excluded.
    ///
    /// # Errors
    /// When sockets are refused: CAP_NET_RAW is required.
    pub fn open(left_out: Vec<String>) -> Result<Self, PacketsError> {
        let failed = |errno| PacketsError { errno, doing: "opening a socket" };
        Ok(Self {
            arp: raw::open(ARP, &[]).map_err(failed)?,
            discovery: raw::open(IPV6, &DISCOVERY).map_err(failed)?,
            woken: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?),
            // Without IPv6 there are no groups to join.
            groups: UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok(),
            joined: BTreeSet::new(),
            links: Socket::open(None, 0, RECEIVE_BUFFER).map_err(failed)?,
            addresses: addresses::linux::Linux::open().map_err(|error| failed(error.errno))?,
            left_out,
            buffer: vec![0; FRAME],
        })
    }

    /// A pending frame.
    fn take(&mut self) -> Result<Option<Received>, Errno> {
        for socket in [&self.arp, &self.discovery] {
            if let Some((length, interface)) = raw::receive(socket, &mut self.buffer)? {
                let frame = self.buffer.get(..length).unwrap_or_default().to_vec();
                return Ok(Some(Received::Frame(interface, frame)));
            }
        }
        let mut count = [0; 8];
        match rustix::io::read(&*self.woken, &mut count) {
            Ok(_) => Ok(Some(Received::Woken)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Packets for Linux {
    fn interfaces(&mut self) -> Result<Vec<Interface>, PacketsError> {
        let failed = |errno| PacketsError { errno, doing: "listing interfaces" };
        let mut found: Vec<Interface> = Vec::new();
        let each = |found: &mut Vec<Interface>, message: &Message<'_>| found.extend(interface(message));
        self.links.dump(&mut found, GET_LINK, |w| w.raw(&[0; HEADER]), Vec::clear, each).map_err(failed)?;
        let own = self.addresses.list().map_err(|error| failed(error.errno))?;
        for interface in &mut found {
            let index = interface.index;
            let here = |v4: bool| own.iter().any(|address| address.interface == index && address.ip.is_ipv4() == v4);
            (interface.v4, interface.v6) = (here(true), here(false));
        }
        found.retain(|interface| !self.left_out.iter().any(|name| **name == *interface.name));
        Ok(found)
    }

    fn join(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError> {
        let Some(socket) = &self.groups else { return Ok(()) };
        if self.joined.insert((interface, group)) {
            socket.join_multicast_v6(&group, interface).map_err(|error| {
                self.joined.remove(&(interface, group));
                PacketsError { errno: Errno::from_io_error(&error).unwrap_or(Errno::IO), doing: "joining a group" }
            })?;
        }
        Ok(())
    }

    fn leave(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError> {
        let Some(socket) = &self.groups else { return Ok(()) };
        if self.joined.remove(&(interface, group)) {
            socket.leave_multicast_v6(&group, interface).map_err(|error| PacketsError {
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
                doing: "leaving a group",
            })?;
        }
        Ok(())
    }

    fn send(&mut self, interface: u32, frame: &[u8]) -> Result<(), PacketsError> {
        raw::send(&self.arp, interface, frame).map_err(|errno| PacketsError { errno, doing: "sending" })
    }

    fn receive(&mut self, timeout: Option<Duration>) -> Result<Received, PacketsError> {
        let failed = |errno| PacketsError { errno, doing: "receiving" };
        if let Some(heard) = self.take().map_err(failed)? {
            return Ok(heard);
        }
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(|_| failed(Errno::INVAL))?;
        let mut all = [
            PollFd::new(&self.arp, PollFlags::IN),
            PollFd::new(&self.discovery, PollFlags::IN),
            PollFd::new(&*self.woken, PollFlags::IN),
        ];
        match poll(&mut all, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(Received::Timeout),
            Ok(_) => Ok(self.take().map_err(failed)?.unwrap_or(Received::Timeout)),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn waker(&self) -> Waker {
        let woken = self.woken.clone();
        Waker::new(move || {
            // Fails only when full, which wakes as well.
            let _ = rustix::io::write(&*woken, &1u64.to_ne_bytes());
        })
    }

    fn now(&self) -> Duration {
        super::now()
    }
}

/// Parses an interface that can have neighbours.
fn interface(message: &Message<'_>) -> Option<Interface> {
    let header = message.body.first_chunk::<HEADER>().filter(|_| message.kind == NEW_LINK)?;
    let number = |at: usize| header.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let (index, flags) = (number(4)?, number(8)?);
    let is_ethernet = u16::from_ne_bytes([header[2], header[3]]) == ETHERNET;
    let attributes = message.attributes(HEADER);
    let usable = is_ethernet && flags & (UP | BROADCAST) == UP | BROADCAST && flags & (LOOPBACK | NO_ARP) == 0;
    if !usable || attributes.ne32(MASTER).is_some_and(|master| master != 0) {
        return None;
    }
    let mac = Mac(attributes.find(ADDRESS)?.try_into().ok()?);
    Some(Interface { index, name: attributes.text(NAME)?.into(), mac, v4: false, v6: false })
}

/// Parses bytes as any link message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in crate::netlink::Messages::new(bytes) {
        interface(&message);
    }
}
