//! Network devices over netlink.
//!
//! Addresses have host scope, so that they are never chosen as a source. The device is up because IPv6 addresses need
//! that.

use std::net::IpAddr;

use rustix::io::Errno;

use super::{DeviceState, Links, LinksError};
use crate::addresses::Addresses as _;
use crate::netlink::{Message, Socket, Writer, flags};
use crate::{Family, address_bytes, addresses};

/// Message types.
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;

/// Header of link messages: family, type, index, flags, change mask.
const LINK_HEADER: usize = 16;
/// Attributes of a device.
const NAME: u16 = 3;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
/// IFF_UP.
const UP: u32 = 1;

/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
/// IFA_F_NODAD and IFA_F_NOPREFIXROUTE: no duplicate address detection, no route.
const NO_QUESTION: u32 = 0x02;
const NO_ROUTE: u32 = 0x200;
/// Host scope.
const HOST: u8 = 254;

/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Devices of the current network namespace.
pub struct Linux {
    socket: Socket,
    addresses: addresses::linux::Linux,
}

impl Linux {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the socket is refused.
    pub fn open() -> Result<Self, LinksError> {
        let failed = |errno| LinksError { device: String::new(), errno, address: None, doing: "opening a socket" };
        let socket = Socket::open(None, 0, RECEIVE_BUFFER).map_err(failed)?;
        let addresses = addresses::linux::Linux::open().map_err(|error| failed(error.errno))?;
        Ok(Self { socket, addresses })
    }

    /// Index of a device.
    fn index(&mut self, device: &str) -> Result<Option<u32>, Errno> {
        let mut index = None;
        let body = |w: &mut Writer| {
            w.raw(&[0; LINK_HEADER]);
            w.text(NAME, device);
        };
        match self.socket.request(GET_LINK, 0, body, |message| index = index.or(read_index(message))) {
            Ok(()) => Ok(index),
            Err(Errno::NODEV) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sends a request per address; the error `passed_over` is ignored.
    fn order(
        &mut self,
        device: &str,
        list: &[IpAddr],
        (kind, extra, doing): (u16, u16, &'static str),
        passed_over: &[Errno],
    ) -> Result<(), LinksError> {
        if list.is_empty() {
            return Ok(());
        }
        let failed = |errno, address| LinksError { device: device.to_owned(), errno, address, doing };
        let index = self.index(device).map_err(|errno| failed(errno, None))?;
        let index = index.ok_or_else(|| failed(Errno::NODEV, None))?;
        let body = |w: &mut Writer, place: usize| {
            if let Some(ip) = list.get(place) {
                write_address(w, *ip, index);
            }
        };
        let refused = self.socket.orders(kind, extra, list.len(), body).map_err(|errno| failed(errno, None))?;
        match refused.into_iter().find(|(_, errno)| !passed_over.contains(errno)) {
            None => Ok(()),
            Some((place, errno)) => Err(failed(errno, list.get(place).copied())),
        }
    }
}

impl Links for Linux {
    fn state(&mut self, device: &str) -> Result<DeviceState, LinksError> {
        let failed = |errno| LinksError { device: device.to_owned(), errno, address: None, doing: "reading addresses" };
        let index = self.index(device).map_err(failed)?;
        let list = self.addresses.list().map_err(|error| failed(error.errno))?;
        let mut found = DeviceState { index, ..DeviceState::default() };
        for address in list {
            if Some(address.interface) != index {
                found.elsewhere.insert(address.ip);
            } else if !is_automatic(address.ip) {
                found.here.insert(address.ip);
            }
        }
        Ok(found)
    }

    fn make(&mut self, device: &str) -> Result<(), LinksError> {
        let body = |w: &mut Writer| {
            let mut header = [0; LINK_HEADER];
            header[8..12].copy_from_slice(&UP.to_ne_bytes());
            header[12..16].copy_from_slice(&UP.to_ne_bytes());
            w.raw(&header);
            w.text(NAME, device);
            w.nest(INFO, |w| w.text(INFO_KIND, "dummy"));
        };
        let made = self.socket.request(NEW_LINK, flags::CREATE, body, |_| ());
        made.map_err(|errno| LinksError { device: device.to_owned(), errno, address: None, doing: "making it" })
    }

    fn delete(&mut self, device: &str) -> Result<bool, LinksError> {
        let body = |w: &mut Writer| {
            w.raw(&[0; LINK_HEADER]);
            w.text(NAME, device);
        };
        match self.socket.request(DELETE_LINK, 0, body, |_| ()) {
            Ok(()) => Ok(true),
            Err(Errno::NODEV) => Ok(false),
            Err(errno) => Err(LinksError { device: device.to_owned(), errno, address: None, doing: "deleting it" }),
        }
    }

    fn add(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError> {
        self.order(device, addresses, (NEW_ADDRESS, flags::CREATE | flags::EXCLUSIVE, "adding"), &[Errno::EXIST])
    }

    fn remove(&mut self, device: &str, addresses: &[IpAddr]) -> Result<(), LinksError> {
        self.order(device, addresses, (DELETE_ADDRESS, 0, "removing"), &[Errno::ADDRNOTAVAIL])
    }
}

/// Whether the kernel assigns such an address to every device that is up.
fn is_automatic(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn write_address(w: &mut Writer, ip: IpAddr, index: u32) {
    let (family, whole) = match Family::of(ip) {
        Family::Ip => (Family::Ip, 32),
        Family::Ip6 => (Family::Ip6, 128),
    };
    let [a, b, c, d] = index.to_ne_bytes();
    w.raw(&[family.number(), whole, 0, HOST, a, b, c, d]);
    w.bytes(LOCAL, &address_bytes(ip));
    w.bytes(ADDRESS, &address_bytes(ip));
    if family == Family::Ip6 {
        w.bytes(ADDRESS_FLAGS, &(NO_QUESTION | NO_ROUTE).to_ne_bytes());
    }
}

/// Parses the index of a device.
fn read_index(message: &Message<'_>) -> Option<u32> {
    let header = message.body.first_chunk::<LINK_HEADER>().filter(|_| message.kind == NEW_LINK)?;
    header[4..8].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Parses bytes as any link message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in crate::netlink::Messages::new(bytes) {
        read_index(&message);
    }
}
