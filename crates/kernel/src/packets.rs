//! The wires of this machine, as neighbours see them: frames that ask who has an address, and answers.
//!
//! In: frames of ARP, and of IPv6 neighbour discovery (solicitations and advertisements), from every wire. Out: frames as they are to
//! be on the wire. Nothing of it needs an address of this machine, and the kernel's own answers go on as before.

pub mod fake;
pub mod linux;
mod raw;

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

/// The address of a network card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// A wire of this machine that neighbours are on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: Box<str>,
    /// Its address on the wire.
    pub mac: Mac,
    /// Whether it has an address of IPv4: where it has none, nobody asks by ARP.
    pub v4: bool,
    /// Whether it has an address of IPv6.
    pub v6: bool,
}

/// What came while waiting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A frame, from the wire of this number.
    Frame(u32, Vec<u8>),
    /// Somebody called the [`Waker`].
    Woken,
    /// Nothing, in the time given.
    Nothing,
}

/// A request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("frames of neighbours, {doing}: {errno}")]
pub struct PacketsError {
    /// What the kernel said.
    pub errno: Errno,
    /// What was being done.
    pub doing: &'static str,
}

/// Somebody who is on wires.
pub trait Packets: Send {
    /// The wires with neighbours on them: up, able to broadcast, not a part of another, not a loop, and not one of those to be left out.
    ///
    /// # Errors
    /// When they cannot be read.
    fn interfaces(&mut self) -> Result<Vec<Interface>, PacketsError>;

    /// Hears what is sent to a group of IPv6 on a wire. Groups that are heard already are passed over.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn join(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError>;

    /// Hears it no more.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn leave(&mut self, interface: u32, group: Ipv6Addr) -> Result<(), PacketsError>;

    /// Sends a frame, as it is.
    ///
    /// # Errors
    /// When it cannot be sent: the wire is down, or gone.
    fn send(&mut self, interface: u32, frame: &[u8]) -> Result<(), PacketsError>;

    /// Waits for the next frame that somebody else sent, for a call of the waker, or until time is up.
    ///
    /// # Errors
    /// When there is nothing more to hear.
    fn receive(&mut self, patience: Option<Duration>) -> Result<Heard, PacketsError>;

    /// Something that ends waiting, from any thread.
    fn waker(&self) -> Waker;

    /// The time that goes on while a machine sleeps: since its start.
    fn now(&self) -> Duration;
}

/// Ends the waiting of a [`Packets::receive`].
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// One that does this.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the waiting, now or the next.
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
    /// Everybody on the wire.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Where frames to a group of IPv6 go.
    #[must_use]
    pub const fn of_group(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// Whether it is a group, and nobody's own.
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

/// The clock of [`Packets::now`] of this machine, for those who are on no wire.
#[must_use]
pub fn now() -> Duration {
    raw::since_start()
}
