//! The Pod network over netlink. No programs of the host are run.
//!
//! Our routes have a protocol number of their own, by which they are found again; others are not touched.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;

use ipnet::IpNet;
use rustix::io::Errno;

use super::guard::Guard;
use super::{Bridge, INSIDE, PodNetwork, PodNetworkError, Port, Route, Wire};
use crate::addresses::Addresses as _;
use crate::netlink::{Message, Socket, Writer, flags};
use crate::{Family, address_bytes, address_from, addresses, namespace};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;

/// Header of link messages.
const LINK_HEADER: usize = 16;
/// Link attributes.
const HARDWARE: u16 = 1;
const NAME: u16 = 3;
const LONGEST: u16 = 4;
const MASTER: u16 = 10;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const INFO_PORT_KIND: u16 = 4;
const INFO_PORT_DATA: u16 = 5;
const PORT_HAIRPIN: u16 = 4;
const VETH_PEER: u16 = 1;
const NAMESPACE_FD: u16 = 28;
/// IFF_UP.
const UP: u32 = 1;

/// Address attributes.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
/// IFA_F_NODAD: no duplicate address detection.
const NO_QUESTION: u32 = 0x02;

/// Header and attributes of route messages.
const ROUTE_HEADER: usize = 12;
const DESTINATION: u16 = 1;
const OUT: u16 = 4;
const GATEWAY: u16 = 5;
const MAIN: u8 = 254;
const UNICAST: u8 = 1;
const SCOPE_LINK: u8 = 253;
const REPLACE: u16 = 0x100;
/// Route protocol number, unused by others.
const OURS: u8 = 87;

/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The current network namespace.
pub struct Linux {
    socket: Socket,
    addresses: addresses::linux::Linux,
    guard: Guard,
}

fn failed(doing: &'static str, what: impl ToString) -> impl FnOnce(Errno) -> PodNetworkError {
    move |errno| PodNetworkError { errno, doing, what: what.to_string() }
}

impl Linux {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When a socket is refused.
    pub fn open() -> Result<Self, PodNetworkError> {
        let socket = Socket::open(None, 0, RECEIVE_BUFFER).map_err(failed("opening", "a socket"))?;
        let addresses = addresses::linux::Linux::open().map_err(|error| failed("opening", "a socket")(error.errno))?;
        let guard = Guard::open().map_err(failed("opening", "a socket"))?;
        Ok(Self { socket, addresses, guard })
    }

    /// Sets the loopback device up, which is down in a new namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn wake_loopback(&mut self) -> Result<(), PodNetworkError> {
        self.must_index("lo").and_then(|lo| self.set(lo, true, |_| ())).map_err(failed("setting up", "lo"))
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

    fn must_index(&mut self, device: &str) -> Result<u32, Errno> {
        self.index(device)?.ok_or(Errno::NODEV)
    }

    /// Changes an existing device.
    fn set(&mut self, index: u32, up: bool, rest: impl FnOnce(&mut Writer)) -> Result<(), Errno> {
        let body = |w: &mut Writer| {
            w.raw(&link_header(index, up));
            rest(w);
        };
        self.socket.request(NEW_LINK, 0, body, |_| ())
    }

    fn add_address(&mut self, index: u32, address: IpNet) -> Result<(), Errno> {
        let body = |w: &mut Writer| write_address(w, index, address);
        match self.socket.request(NEW_ADDRESS, flags::CREATE | flags::EXCLUSIVE, body, |_| ()) {
            Err(Errno::EXIST) => Ok(()),
            done => done,
        }
    }

    fn add_route(
        &mut self,
        to: IpNet,
        via: Option<IpAddr>,
        device: Option<u32>,
        protocol: u8,
        extra: u16,
    ) -> Result<(), Errno> {
        let body = |w: &mut Writer| write_route(w, to, via, device, protocol);
        match self.socket.request(NEW_ROUTE, flags::CREATE | extra, body, |_| ()) {
            Err(Errno::EXIST) => Ok(()),
            done => done,
        }
    }

    /// Configures the inside of a Pod; runs in its namespace.
    fn inside(&mut self, addresses: &[IpAddr], gateways: &[IpAddr]) -> Result<(), Errno> {
        self.wake_loopback().map_err(|error| error.errno)?;
        let eth = self.must_index(INSIDE)?;
        for ip in addresses {
            self.add_address(eth, IpNet::from(*ip))?;
        }
        self.set(eth, true, |_| ())?;
        for gateway in gateways.iter().filter(|gateway| addresses.iter().any(|ip| ip.is_ipv4() == gateway.is_ipv4())) {
            self.add_route(IpNet::from(*gateway), None, Some(eth), OURS, flags::EXCLUSIVE)?;
            self.add_route(everything(*gateway), Some(*gateway), Some(eth), OURS, flags::EXCLUSIVE)?;
        }
        Ok(())
    }

    /// Our routes.
    fn our_routes(&mut self) -> Result<BTreeSet<Route>, Errno> {
        let mut out = BTreeSet::new();
        for family in Family::ALL {
            let body = |w: &mut Writer| {
                let mut header = [0; ROUTE_HEADER];
                header[0] = family.number();
                w.raw(&header);
            };
            let mut found = BTreeSet::new();
            self.socket.dump(&mut found, GET_ROUTE, body, BTreeSet::clear, |found, message| {
                found.extend(read_route(message).filter(|(protocol, _)| *protocol == OURS).map(|(_, route)| route));
            })?;
            out.append(&mut found);
        }
        Ok(out)
    }
}

impl PodNetwork for Linux {
    fn bridge(&mut self, bridge: &Bridge) -> Result<(), PodNetworkError> {
        let name = &bridge.name;
        if self.index(name).map_err(failed("looking for", name))?.is_none() {
            let body = |w: &mut Writer| {
                w.raw(&link_header(0, true));
                w.text(NAME, name);
                // Without its own MAC address a bridge uses that of a port, which changes.
                w.bytes(HARDWARE, &hardware(bridge));
                w.nest(INFO, |w| w.text(INFO_KIND, "bridge"));
            };
            let made = self.socket.request(NEW_LINK, flags::CREATE | flags::EXCLUSIVE, body, |_| ());
            made.map_err(failed("making", name))?;
        }
        let index = self.must_index(name).map_err(failed("looking for", name))?;
        self.set(index, true, |_| ()).map_err(failed("setting up", name))?;
        let here = self.addresses.list().map_err(|error| failed("reading addresses of", name)(error.errno))?;
        let wanted: BTreeSet<IpAddr> = bridge.addresses.iter().map(IpNet::addr).collect();
        for old in here.iter().filter(|address| address.interface == index && !wanted.contains(&address.ip)) {
            if matches!(old.ip, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
                continue;
            }
            let Ok(net) = IpNet::new(old.ip, old.prefix_len) else { continue };
            let body = |w: &mut Writer| write_address(w, index, net);
            self.socket.request(DELETE_ADDRESS, 0, body, |_| ()).map_err(failed("removing an address from", name))?;
        }
        for address in &bridge.addresses {
            self.add_address(index, *address).map_err(failed("adding", address))?;
        }
        Ok(())
    }

    fn guard(&mut self, ports: &[Port]) -> Result<bool, PodNetworkError> {
        self.guard.begin(ports).map_err(failed("checking source addresses of", "the ports of the bridge"))
    }

    fn hardware(&mut self, namespace: &Path) -> Result<[u8; 6], PodNetworkError> {
        let inside = namespace::inside(namespace, || {
            let mut found = None;
            let body = |w: &mut Writer| {
                w.raw(&[0; LINK_HEADER]);
                w.text(NAME, INSIDE);
            };
            let asked =
                Self::open()?.socket.request(GET_LINK, 0, body, |message| found = found.or(read_hardware(message)));
            asked.and_then(|()| found.ok_or(Errno::NODEV)).map_err(failed("reading", INSIDE))
        });
        inside.map_err(|error| failed("entering", namespace.display())(errno_of(&error)))?
    }

    fn plug(&mut self, wire: &Wire) -> Result<(), PodNetworkError> {
        let Wire { name, bridge, namespace, addresses, gateways, mtu, hardware } = wire;
        let file = File::open(namespace).map_err(|error| failed("opening", namespace.display())(errno_of(&error)))?;
        let master = self.must_index(bridge).map_err(failed("looking for", bridge))?;
        let is_new = self.index(name).map_err(failed("looking for", name))?.is_none();
        let hardware = if is_new { *hardware } else { self.hardware(namespace)? };
        // Before the first frame can arrive.
        let port = Port { name: name.clone(), hardware, addresses: addresses.clone() };
        self.guard.add(&port).map_err(failed("checking source addresses of", name))?;
        if is_new {
            let body = |w: &mut Writer| write_wire(w, name, master, file.as_raw_fd(), *mtu, hardware);
            let made = self.socket.request(NEW_LINK, flags::CREATE | flags::EXCLUSIVE, body, |_| ());
            made.map_err(failed("making", name))?;
        }
        let index = self.must_index(name).map_err(failed("looking for", name))?;
        let hairpin = |w: &mut Writer| {
            w.nest(INFO, |w| {
                w.text(INFO_PORT_KIND, "bridge");
                w.nest(INFO_PORT_DATA, |w| w.bytes(PORT_HAIRPIN, &[1]));
            });
        };
        self.set(index, true, hairpin).map_err(failed("enabling hairpin mode on", name))?;
        let inside = namespace::inside(namespace, || {
            // ICMP redirects would lead past this machine and its rules.
            for setting in ["net/ipv4/conf/all/accept_redirects", "net/ipv4/conf/eth0/accept_redirects"] {
                let _ = std::fs::write(format!("/proc/sys/{setting}"), "0");
            }
            for (setting, value) in [("accept_redirects", "0"), ("accept_ra", "0"), ("accept_dad", "0")] {
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/eth0/{setting}"), value);
            }
            // Allow unprivileged ICMP echo sockets.
            let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
            Self::open()?.inside(addresses, gateways).map_err(failed("setting up the inside of", name))
        });
        inside.map_err(|error| failed("entering", namespace.display())(errno_of(&error)))?
    }

    fn delete(&mut self, link: &str) -> Result<bool, PodNetworkError> {
        let body = |w: &mut Writer| {
            w.raw(&[0; LINK_HEADER]);
            w.text(NAME, link);
        };
        let was = match self.socket.request(DELETE_LINK, 0, body, |_| ()) {
            Ok(()) => true,
            Err(Errno::NODEV) => false,
            Err(errno) => return Err(failed("deleting", link)(errno)),
        };
        self.guard.remove(link).map_err(failed("forgetting", link))?;
        Ok(was)
    }

    fn mtu(&mut self, of: IpAddr) -> Result<Option<u32>, PodNetworkError> {
        let here = self.addresses.list().map_err(|error| failed("reading", "addresses")(error.errno))?;
        let Some(index) = here.iter().find(|address| address.ip == of).map(|address| address.interface) else {
            return Ok(None);
        };
        let mut found = None;
        let body = |w: &mut Writer| w.raw(&link_header(index, false));
        let asked = self.socket.request(GET_LINK, 0, body, |message| found = found.or(read_longest(message)));
        asked.map_err(failed("reading the link of", of)).map(|()| found)
    }

    fn routes(&mut self, wanted: &BTreeSet<Route>) -> Result<Vec<(Route, Errno)>, PodNetworkError> {
        let here = self.our_routes().map_err(failed("reading", "routes"))?;
        let mut refused = Vec::new();
        for old in here.difference(wanted) {
            let body = |w: &mut Writer| write_route(w, old.to, Some(old.via), None, OURS);
            match self.socket.request(DELETE_ROUTE, 0, body, |_| ()) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => refused.push((*old, errno)),
            }
        }
        for new in wanted.difference(&here) {
            if let Err(errno) = self.add_route(new.to, Some(new.via), None, OURS, REPLACE) {
                refused.push((*new, errno));
            }
        }
        Ok(refused)
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn everything(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => ipnet::Ipv4Net::default().into(),
        IpAddr::V6(_) => ipnet::Ipv6Net::default().into(),
    }
}

fn link_header(index: u32, up: bool) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    if up {
        header[8..12].copy_from_slice(&UP.to_ne_bytes());
        header[12..16].copy_from_slice(&UP.to_ne_bytes());
    }
    header
}

/// A fixed MAC address of a bridge.
fn hardware(bridge: &Bridge) -> [u8; 6] {
    let tail = match bridge.addresses.first().map(IpNet::addr) {
        Some(IpAddr::V4(v4)) => v4.octets(),
        Some(IpAddr::V6(v6)) => *v6.octets().last_chunk().unwrap_or(&[0, 0, 0, 1]),
        None => [0, 0, 0, 1],
    };
    [0x0a, 0x58, tail[0], tail[1], tail[2], tail[3]]
}

fn write_wire(w: &mut Writer, name: &str, master: u32, namespace: RawFd, mtu: Option<u32>, hardware: [u8; 6]) {
    let longest = |w: &mut Writer| {
        if let Some(mtu) = mtu {
            w.bytes(LONGEST, &mtu.to_ne_bytes());
        }
    };
    w.raw(&link_header(0, true));
    w.text(NAME, name);
    longest(w);
    w.bytes(MASTER, &master.to_ne_bytes());
    w.nest(INFO, |w| {
        w.text(INFO_KIND, "veth");
        w.nest(INFO_DATA, |w| {
            w.nest(VETH_PEER, |w| {
                w.raw(&[0; LINK_HEADER]);
                w.text(NAME, INSIDE);
                w.bytes(HARDWARE, &hardware);
                longest(w);
                w.bytes(NAMESPACE_FD, &namespace.cast_unsigned().to_ne_bytes());
            });
        });
    });
}

fn write_address(w: &mut Writer, index: u32, address: IpNet) {
    let family = Family::of(address.addr());
    let [a, b, c, d] = index.to_ne_bytes();
    w.raw(&[family.number(), address.prefix_len(), 0, 0, a, b, c, d]);
    w.bytes(LOCAL, &address_bytes(address.addr()));
    w.bytes(ADDRESS, &address_bytes(address.addr()));
    if family == Family::Ip6 {
        w.bytes(ADDRESS_FLAGS, &NO_QUESTION.to_ne_bytes());
    }
}

fn write_route(w: &mut Writer, to: IpNet, via: Option<IpAddr>, device: Option<u32>, protocol: u8) {
    let scope = if via.is_none() && to.addr().is_ipv4() { SCOPE_LINK } else { 0 };
    let family = Family::of(to.addr()).number();
    w.raw(&[family, to.prefix_len(), 0, 0, MAIN, protocol, scope, UNICAST, 0, 0, 0, 0]);
    if to.prefix_len() > 0 {
        w.bytes(DESTINATION, &address_bytes(to.network()));
    }
    if let Some(via) = via {
        w.bytes(GATEWAY, &address_bytes(via));
    }
    if let Some(device) = device {
        w.bytes(OUT, &device.to_ne_bytes());
    }
}

/// Parses the index of a device.
fn read_index(message: &Message<'_>) -> Option<u32> {
    let header = message.body.first_chunk::<LINK_HEADER>().filter(|_| message.kind == NEW_LINK)?;
    header[4..8].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Parses the MAC address of a device.
fn read_hardware(message: &Message<'_>) -> Option<[u8; 6]> {
    let found = message.attributes(LINK_HEADER).find(HARDWARE).filter(|_| message.kind == NEW_LINK)?;
    found.try_into().ok()
}

/// Reads how long a packet of a device may be.
fn read_longest(message: &Message<'_>) -> Option<u32> {
    let found = message.attributes(LINK_HEADER).find(LONGEST).filter(|_| message.kind == NEW_LINK)?;
    found.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Parses a route with a gateway, and its protocol.
fn read_route(message: &Message<'_>) -> Option<(u8, Route)> {
    let header = message.body.first_chunk::<ROUTE_HEADER>().filter(|_| message.kind == NEW_ROUTE)?;
    if header[4] != MAIN {
        return None;
    }
    let attributes = message.attributes(ROUTE_HEADER);
    let to = IpNet::new(address_from(attributes.find(DESTINATION)?)?, header[1]).ok()?;
    Some((header[5], Route { to, via: address_from(attributes.find(GATEWAY)?)? }))
}

/// Parses bytes as any message of this port.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in crate::netlink::Messages::new(bytes) {
        read_index(&message);
        read_hardware(&message);
        read_longest(&message);
        read_route(&message);
    }
}
