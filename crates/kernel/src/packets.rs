//! Raw frames on network interfaces: ARP and IPv6 neighbour discovery.
//!
//! In: frames of ARP and IPv6 neighbour discovery (solicitations and advertisements) from all interfaces. Out: frames
//! to send. The machine needs no address for this, and the kernel's own replies continue.

pub mod fake;
pub mod linux;
mod raw;

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// A network interface with neighbours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Interface index.
    pub index: u32,
    /// Its name.
    pub name: Box<str>,
    /// MAC address.
    pub mac: Mac,
    /// Whether it has an IPv4 address; without one there is no ARP.
    pub v4: bool,
    /// Whether it has an IPv6 address.
    pub v6: bool,
}

/// Result of a receive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// A frame, and the index of its interface.
    Frame(u32, Vec<u8>),
    /// [`Waker`] was called.
    Woken,
    /// The timeout elapsed.
    Timeout,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("frames of neighbours, {doing}: {errno}")]
pub struct PacketsError {
    /// Error number of the kernel.
    pub errno: Errno,
    /// The failed operation.
    pub doing: &'static str,
}

/// Access to raw frames.
pub trait Packets: Send {
    /// Interfaces with neighbours: up, able to broadcast, not part of another, not loopback, and not excluded.
    ///
    /// # Errors
    /// When they cannot be read.
    fn interfaces(&mut self) -> Result<Vec<Interface>, PacketsError>;

    /// Joins an IPv6 multicast group. Joined groups are skipped.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn join(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError>;

    /// Leaves an IPv6 multicast group.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn leave(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError>;

    /// Sends a frame.
    ///
    /// # Errors
    /// When it cannot be sent: the interface is down or gone.
    fn send(&mut self, interface: u32, frame: &[u8]) -> Result<(), PacketsError>;

    /// Waits for the next frame of another machine, a call of the waker, or the timeout.
    ///
    /// # Errors
    /// When no more frames can be received.
    fn receive(&mut self, timeout: Option<Duration>) -> Result<Received, PacketsError>;

    /// A handle that ends waiting, from any thread.
    fn waker(&self) -> Waker;

    /// Time since boot, including suspend.
    fn now(&self) -> Duration;
}

/// Wakes [`Packets::receive`].
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls this.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the current or next wait.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Multicast MAC address of an IPv6 group.
    #[must_use]
    pub const fn of_group(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// Whether it is a multicast address.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The clock of [`Packets::now`], without an interface.
#[must_use]
pub fn now() -> Duration {
    raw::since_start()
}
