//! IPVS over generic netlink.
//!
//! The family number is looked up by name, which also loads the module where permitted. Attributes are in host order,
//! except ports and IPv4 masks, which are in network order.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::netlink;

use super::{Change, Flags, Ipvs, IpvsError, Load, Server, Settings, Timeouts, Unfit};
use crate::netlink::{Attributes, Message, Socket, Writer};
use crate::{Family, address_bytes, address_from};

/// The controller family, its request, and its attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Header: command and version.
const HEADER: usize = 4;
const VERSION: u8 = 1;

/// Commands.
mod command {
    pub(super) const NEW_SERVICE: u8 = 1;
    pub(super) const SET_SERVICE: u8 = 2;
    pub(super) const DELETE_SERVICE: u8 = 3;
    pub(super) const GET_SERVICE: u8 = 4;
    pub(super) const NEW_DESTINATION: u8 = 5;
    pub(super) const SET_DESTINATION: u8 = 6;
    pub(super) const DELETE_DESTINATION: u8 = 7;
    pub(super) const GET_DESTINATION: u8 = 8;
    pub(super) const SET_CONFIG: u8 = 12;
    pub(super) const GET_CONFIG: u8 = 13;
}

/// Attributes of a message.
const SERVICE: u16 = 1;
const DESTINATION: u16 = 2;
const TIMEOUT_TCP: u16 = 4;
const TIMEOUT_TCP_FIN: u16 = 5;
const TIMEOUT_UDP: u16 = 6;

/// Attributes of a virtual server.
mod service {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const PROTOCOL: u16 = 2;
    pub(super) const ADDRESS: u16 = 3;
    pub(super) const PORT: u16 = 4;
    pub(super) const MARK: u16 = 5;
    pub(super) const SCHEDULER: u16 = 6;
    pub(super) const FLAGS: u16 = 7;
    pub(super) const TIMEOUT: u16 = 8;
    pub(super) const MASK: u16 = 9;
}

/// Attributes of a destination.
mod destination {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const PORT: u16 = 2;
    pub(super) const METHOD: u16 = 3;
    pub(super) const WEIGHT: u16 = 4;
    pub(super) const UPPER: u16 = 5;
    pub(super) const LOWER: u16 = 6;
    pub(super) const ACTIVE: u16 = 7;
    pub(super) const INACTIVE: u16 = 8;
    pub(super) const FAMILY: u16 = 11;
}

/// Flags of a server: persistence, and two scheduler flags.
const PERSISTENT: u32 = 0x1;
const FALLBACK: u32 = 0x8;
const PORTS: u32 = 0x10;
/// Forwarding method: masquerading.
const TRANSLATE: u32 = 0;
/// Length of the address attribute for both families.
const ADDRESS_LEN: usize = 16;

/// Receive buffer in bytes.
const RECEIVE_BUFFER: usize = 4 << 20;

/// IPVS of the current network namespace.
pub struct Linux {
    socket: Socket,
    /// Family number.
    family: u16,
}

impl Linux {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the kernel lacks IPVS, or the socket is refused.
    pub fn open() -> Result<Self, Unfit> {
        let failed = |doing| move |errno| Unfit::Failed(IpvsError::new(doing, errno));
        let mut socket = Socket::open(Some(netlink::GENERIC), 0, RECEIVE_BUFFER).map_err(failed("opening a socket"))?;
        let mut family = None;
        let body = |w: &mut Writer| {
            w.raw(&[GET_FAMILY, VERSION, 0, 0]);
            w.text(FAMILY_NAME, "IPVS");
        };
        let asked = socket.request(CONTROL, 0, body, |message| family = message.attributes(HEADER).ne16(FAMILY_NUMBER));
        match (asked, family) {
            (Ok(()), Some(family)) => Ok(Self { socket, family }),
            (Ok(()), None) | (Err(Errno::NOENT), _) => Err(Unfit::Missing),
            (Err(errno), _) => Err(failed("looking up the IPVS family")(errno)),
        }
    }

    fn dump<Found>(
        &mut self,
        command: u8,
        body: impl Fn(&mut Writer),
        each: impl Fn(&mut Vec<Found>, &Message<'_>),
    ) -> Result<Vec<Found>, Errno> {
        let mut found = Vec::new();
        let request = |w: &mut Writer| {
            w.raw(&[command, VERSION, 0, 0]);
            body(w);
        };
        self.socket.dump(&mut found, self.family, request, Vec::clear, each)?;
        Ok(found)
    }
}

impl Ipvs for Linux {
    fn servers(&mut self) -> Result<BTreeMap<Server, Settings>, IpvsError> {
        let found = self.dump(command::GET_SERVICE, |_| (), |found, message| found.extend(read_server(message)));
        Ok(found.map_err(|errno| IpvsError::new("listing servers", errno))?.into_iter().collect())
    }

    fn destinations(&mut self, server: &Server) -> Result<BTreeMap<SocketAddr, Load>, IpvsError> {
        let body = |w: &mut Writer| w.nest(SERVICE, |w| write_name(w, server));
        let family = Family::of(server.ip);
        let each = |found: &mut Vec<(SocketAddr, Load)>, message: &Message<'_>| {
            found.extend(read_destination(message, family));
        };
        match self.dump(command::GET_DESTINATION, body, each) {
            Ok(found) => Ok(found.into_iter().collect()),
            Err(Errno::SRCH | Errno::NOENT) => Ok(BTreeMap::new()),
            Err(errno) => Err(IpvsError::new("listing destinations", errno)),
        }
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), IpvsError> {
        let body = |w: &mut Writer, place: usize| {
            if let Some(change) = changes.get(place) {
                write_change(w, change);
            }
        };
        let refused = self.socket.orders(self.family, 0, changes.len(), body);
        let refused = refused.map_err(|errno| IpvsError::new("applying changes", errno))?;
        match refused.first() {
            None => Ok(()),
            Some((place, errno)) => {
                Err(IpvsError { errno: *errno, change: changes.get(*place).cloned(), doing: "applying changes" })
            }
        }
    }

    fn timeouts(&mut self) -> Result<Timeouts, IpvsError> {
        let mut found = Timeouts::default();
        let each = |message: &Message<'_>| {
            let attributes = message.attributes(HEADER);
            let of = |attribute| attributes.ne32(attribute).unwrap_or_default();
            found = Timeouts { tcp: of(TIMEOUT_TCP), tcp_fin: of(TIMEOUT_TCP_FIN), udp: of(TIMEOUT_UDP) };
        };
        let asked = self.socket.request(self.family, 0, |w| w.raw(&[command::GET_CONFIG, VERSION, 0, 0]), each);
        asked.map_err(|errno| IpvsError::new("reading timeouts", errno))?;
        Ok(found)
    }

    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), IpvsError> {
        let body = |w: &mut Writer| {
            w.raw(&[command::SET_CONFIG, VERSION, 0, 0]);
            w.bytes(TIMEOUT_TCP, &timeouts.tcp.to_ne_bytes());
            w.bytes(TIMEOUT_TCP_FIN, &timeouts.tcp_fin.to_ne_bytes());
            w.bytes(TIMEOUT_UDP, &timeouts.udp.to_ne_bytes());
        };
        self.socket.request(self.family, 0, body, |_| ()).map_err(|errno| IpvsError::new("setting timeouts", errno))
    }
}

/// Writes a change.
fn write_change(w: &mut Writer, change: &Change) {
    let server = change.server();
    let number = match change {
        Change::NewServer(..) => command::NEW_SERVICE,
        Change::SetServer(..) => command::SET_SERVICE,
        Change::DeleteServer(..) => command::DELETE_SERVICE,
        Change::NewDestination(..) => command::NEW_DESTINATION,
        Change::SetDestination(..) => command::SET_DESTINATION,
        Change::DeleteDestination(..) => command::DELETE_DESTINATION,
    };
    w.raw(&[number, VERSION, 0, 0]);
    w.nest(SERVICE, |w| {
        write_name(w, server);
        if let Change::NewServer(_, settings) | Change::SetServer(_, settings) = change {
            write_settings(w, server, settings);
        }
    });
    match change {
        Change::NewDestination(_, at, weight) | Change::SetDestination(_, at, weight) => {
            w.nest(DESTINATION, |w| {
                write_place(w, *at);
                w.bytes(destination::METHOD, &TRANSLATE.to_ne_bytes());
                w.bytes(destination::WEIGHT, &weight.to_ne_bytes());
                w.bytes(destination::UPPER, &0u32.to_ne_bytes());
                w.bytes(destination::LOWER, &0u32.to_ne_bytes());
            });
        }
        Change::DeleteDestination(_, at) => w.nest(DESTINATION, |w| write_place(w, *at)),
        Change::NewServer(..) | Change::SetServer(..) | Change::DeleteServer(..) => {}
    }
}

/// Writes the key of a server.
fn write_name(w: &mut Writer, server: &Server) {
    w.bytes(service::FAMILY, &u16::from(Family::of(server.ip).number()).to_ne_bytes());
    w.bytes(service::PROTOCOL, &u16::from(server.protocol).to_ne_bytes());
    w.bytes(service::ADDRESS, &padded(server.ip));
    w.bytes(service::PORT, &server.port.to_be_bytes());
}

fn write_settings(w: &mut Writer, server: &Server, settings: &Settings) {
    let mut flags = 0;
    for (wanted, flag) in [
        (settings.persistence.is_some(), PERSISTENT),
        (settings.flags.fallback, FALLBACK),
        (settings.flags.ports, PORTS),
    ] {
        flags |= if wanted { flag } else { 0 };
    }
    // Persistence mask: each client address by itself.
    let mask = match server.ip {
        IpAddr::V4(_) => [0xff; 4],
        IpAddr::V6(_) => 128u32.to_ne_bytes(),
    };
    w.text(service::SCHEDULER, &settings.scheduler);
    w.bytes(service::FLAGS, &[flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat());
    w.bytes(service::TIMEOUT, &settings.persistence.unwrap_or_default().to_ne_bytes());
    w.bytes(service::MASK, &mask);
}

/// Writes the key of a destination.
fn write_place(w: &mut Writer, at: SocketAddr) {
    w.bytes(destination::FAMILY, &u16::from(Family::of(at.ip()).number()).to_ne_bytes());
    w.bytes(destination::ADDRESS, &padded(at.ip()));
    w.bytes(destination::PORT, &at.port().to_be_bytes());
}

fn padded(ip: IpAddr) -> Vec<u8> {
    let mut bytes = address_bytes(ip);
    bytes.resize(ADDRESS_LEN, 0);
    bytes
}

fn read_address(bytes: &[u8], family: Family) -> Option<IpAddr> {
    address_from(bytes.get(..family.address_len())?)
}

/// Parses a server; none for firewall-mark servers.
fn read_server(message: &Message<'_>) -> Option<(Server, Settings)> {
    let attributes = message.attributes(HEADER).nest(SERVICE)?;
    if attributes.ne32(service::MARK).is_some_and(|mark| mark != 0) {
        return None;
    }
    let server = Server {
        ip: read_address(attributes.find(service::ADDRESS)?, read_family(&attributes, service::FAMILY)?)?,
        protocol: u8::try_from(attributes.ne16(service::PROTOCOL)?).ok()?,
        port: attributes.be16(service::PORT)?,
    };
    let flags = attributes.ne32(service::FLAGS)?;
    let settings = Settings {
        scheduler: attributes.text(service::SCHEDULER)?.to_owned(),
        flags: Flags { fallback: flags & FALLBACK != 0, ports: flags & PORTS != 0 },
        persistence: (flags & PERSISTENT != 0).then(|| attributes.ne32(service::TIMEOUT)).flatten(),
    };
    Some((server, settings))
}

/// Parses a destination. Old kernels omit its family, which then is that of its server.
fn read_destination(message: &Message<'_>, family: Family) -> Option<(SocketAddr, Load)> {
    let attributes = message.attributes(HEADER).nest(DESTINATION)?;
    let family = read_family(&attributes, destination::FAMILY).unwrap_or(family);
    let ip = read_address(attributes.find(destination::ADDRESS)?, family)?;
    let of = |attribute| attributes.ne32(attribute).unwrap_or_default();
    let load =
        Load { weight: of(destination::WEIGHT), active: of(destination::ACTIVE), inactive: of(destination::INACTIVE) };
    Some((SocketAddr::new(ip, attributes.be16(destination::PORT)?), load))
}

fn read_family(attributes: &Attributes<'_>, attribute: u16) -> Option<Family> {
    Family::from_number(u8::try_from(attributes.ne16(attribute)?).ok()?)
}

/// Parses bytes as any IPVS message.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    for message in crate::netlink::Messages::new(bytes) {
        read_server(&message);
        read_destination(&message, Family::Ip6);
    }
}
