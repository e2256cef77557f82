//! IP Virtual Server: the kernel's own load balancer.
//!
//! A [`Server`] is an address, a protocol and a port that clients use; behind it are destinations with weights. Connections are
//! handed out by the server's [`Scheduler`], and a destination of weight nought keeps those it has and gets no other. Orders are
//! values ([`Change`]); each is carried out for itself, the kernel knows no transactions here, and tells nobody of changes.

pub mod fake;
pub mod linux;
mod scheduler;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use thiserror::Error;

pub use scheduler::Scheduler;

/// Where clients connect to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Server {
    /// The address.
    pub ip: IpAddr,
    /// The protocol above IP: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// How a server hands out connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The name of its scheduler; others on the machine may use some that we do not know.
    pub scheduler: String,
    /// How the scheduler is to work.
    pub flags: Flags,
    /// How long a client stays with its destination after its last connection, in seconds.
    pub persistence: Option<u32>,
}

/// How a scheduler is to work; most know none of these.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// `sh` and `mh`: another destination instead of one that takes no connections.
    pub fallback: bool,
    /// `sh` and `mh`: the port of the client counts too.
    pub ports: bool,
}

/// How much a destination has to do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Load {
    /// Its share of new connections.
    pub weight: u32,
    /// Connections that are open.
    pub active: u32,
    /// Connections that have ended and are not forgotten yet.
    pub inactive: u32,
}

impl Load {
    /// Whether nobody would miss it.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.active == 0 && self.inactive == 0
    }
}

/// One order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Makes a server, without destinations.
    NewServer(Server, Settings),
    /// Changes how it hands out connections.
    SetServer(Server, Settings),
    /// Deletes a server and its destinations.
    DeleteServer(Server),
    /// Adds a destination with a weight.
    NewDestination(Server, SocketAddr, u32),
    /// Gives a destination another weight.
    SetDestination(Server, SocketAddr, u32),
    /// Deletes a destination.
    DeleteDestination(Server, SocketAddr),
}

impl Change {
    /// The server that it is about.
    #[must_use]
    pub fn server(&self) -> &Server {
        match self {
            Self::NewServer(server, _)
            | Self::SetServer(server, _)
            | Self::DeleteServer(server)
            | Self::NewDestination(server, _, _)
            | Self::SetDestination(server, _, _)
            | Self::DeleteDestination(server, _) => server,
        }
    }
}

/// How long connections are remembered in which nothing happens, in seconds. Nought is "as it is".
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Timeouts {
    /// Open TCP connections.
    pub tcp: u32,
    /// TCP connections that one side has ended.
    pub tcp_fin: u32,
    /// UDP.
    pub udp: u32,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("IPVS, {doing}{}: {errno}", change.as_ref().map_or_else(String::new, |change| format!(" ({change:?})")))]
pub struct IpvsError {
    /// What the kernel said.
    pub errno: Errno,
    /// Which order it refused, if it was one.
    pub change: Option<Change>,
    /// What was being done.
    pub doing: &'static str,
}

impl IpvsError {
    pub(crate) fn new(doing: &'static str, errno: Errno) -> Self {
        Self { errno, change: None, doing }
    }

    /// What was to be changed is not there.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        [Errno::SRCH, Errno::NOENT].contains(&self.errno)
    }

    /// What was to be made is there already.
    #[must_use]
    pub fn is_clash(&self) -> bool {
        self.errno == Errno::EXIST
    }
}

/// Why this machine cannot balance so. Each says what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Unfit {
    /// The kernel has no IPVS.
    #[error("the kernel has no IPVS; load it with `modprobe ip_vs`, or choose another --proxy-mode")]
    Missing,
    /// It has no such scheduler.
    #[error(
        "the kernel has no IPVS scheduler `{0}`; load it with `modprobe ip_vs_{0}`, or choose another --ipvs-scheduler"
    )]
    Scheduler(String),
    /// We may not use it.
    #[error("this process may not use IPVS; run it as root")]
    Permission,
    /// Something else.
    #[error("{0}")]
    Failed(IpvsError),
}

/// Somebody who balances.
pub trait Ipvs: Send {
    /// All servers that are found by address, whoever made them.
    ///
    /// # Errors
    /// When they cannot be read.
    fn servers(&mut self) -> Result<BTreeMap<Server, Settings>, IpvsError>;

    /// The destinations of a server. One that is not there has none.
    ///
    /// # Errors
    /// When they cannot be read.
    fn destinations(&mut self, server: &Server) -> Result<BTreeMap<SocketAddr, Load>, IpvsError>;

    /// Carries out orders, all that can be.
    ///
    /// # Errors
    /// The first that was refused; those before and after it were carried out unless they needed it.
    fn apply(&mut self, changes: &[Change]) -> Result<(), IpvsError>;

    /// How long connections are remembered.
    ///
    /// # Errors
    /// When it cannot be read.
    fn timeouts(&mut self) -> Result<Timeouts, IpvsError>;

    /// Has connections remembered so long.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), IpvsError>;
}

/// An address of a network that is kept for documents, so that nobody is in the way of a trial there.
const TRIAL: Server = Server { ip: IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 0)), protocol: 6, port: 20_000 };

/// Tries whether a server with these settings can be made, and leaves nothing behind.
///
/// # Errors
/// Why it cannot.
pub fn probe(ipvs: &mut dyn Ipvs, settings: &Settings) -> Result<(), Unfit> {
    let trial = |ipvs: &mut dyn Ipvs| ipvs.apply(&[Change::NewServer(TRIAL, settings.clone())]);
    let made = trial(ipvs).or_else(|error| {
        if !error.is_clash() {
            return Err(error);
        }
        // One that an earlier trial could not take back.
        ipvs.apply(&[Change::DeleteServer(TRIAL)])?;
        trial(ipvs)
    });
    match made {
        Ok(()) => ipvs.apply(&[Change::DeleteServer(TRIAL)]).map_err(Unfit::Failed),
        Err(error) => Err(match error.errno {
            Errno::NOENT => Unfit::Scheduler(settings.scheduler.clone()),
            Errno::PERM | Errno::ACCESS => Unfit::Permission,
            _ => Unfit::Failed(error),
        }),
    }
}
