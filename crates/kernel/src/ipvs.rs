//! IP Virtual Server: the kernel's own load balancer.
//!
//! A [`Server`] is an address, protocol and port; behind it are destinations with weights. The server's [`Scheduler`]
//! distributes connections; a destination of weight 0 keeps its connections and gets no new ones. Changes are values
//! ([`Change`]); each is applied by itself: IPVS has neither transactions nor notifications.

pub mod fake;
pub mod linux;
mod scheduler;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use thiserror::Error;

pub use scheduler::Scheduler;

/// A virtual server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Server {
    /// The address.
    pub ip: IpAddr,
    /// IP protocol: 6 is TCP, 17 UDP, 132 SCTP.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// Settings of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Scheduler name; other programs may use unknown ones.
    pub scheduler: String,
    /// Scheduler flags.
    pub flags: Flags,
    /// Persistence timeout in seconds.
    pub persistence: Option<u32>,
}

/// Scheduler flags; most schedulers have none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// `sh` and `mh`: fall back from unavailable destinations.
    pub fallback: bool,
    /// `sh` and `mh`: hash the client port too.
    pub ports: bool,
}

/// Load of a destination.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Load {
    /// Weight for new connections.
    pub weight: u32,
    /// Active connections.
    pub active: u32,
    /// Inactive connections that have not expired.
    pub inactive: u32,
}

impl Load {
    /// Whether it has no connections.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.active == 0 && self.inactive == 0
    }
}

/// A change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates a server without destinations.
    NewServer(Server, Settings),
    /// Changes the settings of a server.
    SetServer(Server, Settings),
    /// Deletes a server and its destinations.
    DeleteServer(Server),
    /// Adds a destination with a weight.
    NewDestination(Server, SocketAddr, u32),
    /// Sets the weight of a destination.
    SetDestination(Server, SocketAddr, u32),
    /// Deletes a destination.
    DeleteDestination(Server, SocketAddr),
}

impl Change {
    /// The server it changes.
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

/// Timeouts of idle connections in seconds; 0 means unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Timeouts {
    /// Established TCP connections.
    pub tcp: u32,
    /// TCP connections after a FIN.
    pub tcp_fin: u32,
    /// UDP.
    pub udp: u32,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("IPVS, {doing}{}: {errno}", change.as_ref().map_or_else(String::new, |change| format!(" ({change:?})")))]
pub struct IpvsError {
    /// Error number of the kernel.
    pub errno: Errno,
    /// The refused change, if it was one.
    pub change: Option<Change>,
    /// The failed operation.
    pub doing: &'static str,
}

impl IpvsError {
    pub(crate) fn new(doing: &'static str, errno: Errno) -> Self {
        Self { errno, change: None, doing }
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        [Errno::SRCH, Errno::NOENT].contains(&self.errno)
    }

    /// Whether the object exists already.
    #[must_use]
    pub fn is_clash(&self) -> bool {
        self.errno == Errno::EXIST
    }
}

/// Why IPVS is not usable, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Unfit {
    /// The kernel lacks IPVS.
    #[error("the kernel has no IPVS; load it with `modprobe ip_vs`, or choose another --proxy-mode")]
    Missing,
    /// The kernel lacks the scheduler.
    #[error(
        "the kernel has no IPVS scheduler `{0}`; load it with `modprobe ip_vs_{0}`, or choose another --ipvs-scheduler"
    )]
    Scheduler(String),
    /// Privileges are missing.
    #[error("this process may not use IPVS; run it as root")]
    Permission,
    /// Another error.
    #[error("{0}")]
    Failed(IpvsError),
}

/// Access to IPVS.
pub trait Ipvs: Send {
    /// All servers by address, of any program.
    ///
    /// # Errors
    /// When they cannot be read.
    fn servers(&mut self) -> Result<BTreeMap<Server, Settings>, IpvsError>;

    /// Destinations of a server; empty if it does not exist.
    ///
    /// # Errors
    /// When they cannot be read.
    fn destinations(&mut self, server: &Server) -> Result<BTreeMap<SocketAddr, Load>, IpvsError>;

    /// Applies all changes that can be applied.
    ///
    /// # Errors
    /// The first failure; the others were applied unless they depend on it.
    fn apply(&mut self, changes: &[Change]) -> Result<(), IpvsError>;

    /// Connection timeouts.
    ///
    /// # Errors
    /// When it cannot be read.
    fn timeouts(&mut self) -> Result<Timeouts, IpvsError>;

    /// Sets the connection timeouts.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), IpvsError>;
}

/// A server in a documentation network, to probe settings.
const TRIAL: Server = Server { ip: IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 0)), protocol: 6, port: 20_000 };

/// Checks whether a server with these settings can be created; leaves nothing behind.
///
/// # Errors
/// Why it cannot.
pub fn probe(ipvs: &mut dyn Ipvs, settings: &Settings) -> Result<(), Unfit> {
    let trial = |ipvs: &mut dyn Ipvs| ipvs.apply(&[Change::NewServer(TRIAL, settings.clone())]);
    let made = trial(ipvs).or_else(|error| {
        if !error.is_clash() {
            return Err(error);
        }
        // Left behind by an earlier probe.
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
