//! The messages of BGP-4 (RFC 4271), read and written.
//!
//! In: bytes of somebody whom nobody vouches for, or a message. Out: a [`Message`], or the [`Notification`] that the sender of such bytes
//! deserves; or bytes. No I/O, no state: what a message means for a session is the session's to say. Every length is checked before it is
//! believed; nothing is allocated that the bytes themselves do not pay for.

pub mod notification;
pub mod open;
pub mod update;

mod attributes;
mod prefix;
mod taken;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

pub use attributes::{Attributes, Large, Reach, Segment, Unreach};
pub use notification::Notification;
pub use open::{Capability, Open, Restart};
pub use taken::{Fault, Taken, Weight};
pub use update::Update;

/// How long the head of a message is: sixteen ones, a length, a type.
pub const HEAD: usize = 19;
/// How long a message may be.
pub const LONGEST: usize = 4096;

const MARKER: [u8; 16] = [0xff; 16];

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// A kind of routes: the family of their addresses, and what they are for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Family {
    /// The number of the family of addresses.
    pub afi: u16,
    /// The number of what they are for.
    pub safi: u8,
}

impl Family {
    /// Routes to single receivers of IPv4.
    pub const V4: Self = Self { afi: 1, safi: 1 };
    /// Routes to single receivers of IPv6.
    pub const V6: Self = Self { afi: 2, safi: 1 };
    /// What this program speaks of.
    pub const OURS: [Self; 2] = [Self::V4, Self::V6];

    /// The family of the routes to an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4 => f.write_str("IPv4"),
            Self::V6 => f.write_str("IPv6"),
            Self { afi, safi } => write!(f, "family {afi}/{safi}"),
        }
    }
}

/// What both sides agreed on, without which an UPDATE cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Whether numbers of autonomous systems have four octets (RFC 6793).
    pub wide: bool,
    /// Whether both are of the same autonomous system.
    pub internal: bool,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Who speaks, and what it can do.
    Open(Open),
    /// Routes that come and go, as a receiver should take them.
    Update(Box<Taken>),
    /// Why the session ends.
    Notification(Notification),
    /// Still here.
    Keepalive,
    /// Tell me all routes of this family again (RFC 2918).
    Refresh(Family),
}

/// How long the message is that begins with these bytes; nothing while too few of them are there to tell.
///
/// # Errors
/// When no message begins so.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Notification> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    if head[..16] != MARKER {
        return Err(Notification::NOT_SYNCHRONIZED);
    }
    let length = u16::from_be_bytes([head[16], head[17]]);
    let (at_least, at_most) = match head[18] {
        OPEN => (29, LONGEST),
        UPDATE => (23, LONGEST),
        NOTIFICATION => (21, LONGEST),
        KEEPALIVE => (HEAD, HEAD),
        ROUTE_REFRESH => (23, LONGEST),
        unknown => return Err(Notification::bad_type(unknown)),
    };
    match usize::from(length) {
        good if (at_least..=at_most).contains(&good) => Ok(Some(good)),
        _ => Err(Notification::bad_length(length)),
    }
}

/// Reads a message, which must be as long as [`length`] says.
///
/// # Errors
/// When it is none.
pub fn read(bytes: &[u8], terms: Terms) -> Result<Message, Notification> {
    let said = length(bytes)?;
    if said != Some(bytes.len()) {
        return Err(Notification::bad_length(u16::try_from(bytes.len()).unwrap_or(u16::MAX)));
    }
    let (kind, body) = (bytes[18], &bytes[HEAD..]);
    match kind {
        OPEN => Open::read(body).map(Message::Open),
        UPDATE => taken::read(body, terms).map(|taken| Message::Update(Box::new(taken))),
        NOTIFICATION => Ok(Message::Notification(Notification::read(body))),
        KEEPALIVE => Ok(Message::Keepalive),
        // The octet in the middle is reserved. What is longer carries filters (RFC 5291), which nobody asked us to keep.
        ROUTE_REFRESH => {
            let afi = u16::from_be_bytes([body[0], body[1]]);
            Ok(Message::Refresh(Family { afi, safi: body[3] }))
        }
        unknown => Err(Notification::bad_type(unknown)),
    }
}

/// Writes KEEPALIVE.
#[must_use]
pub fn keepalive() -> Vec<u8> {
    framed(KEEPALIVE, &[])
}

/// Writes ROUTE-REFRESH.
#[must_use]
pub fn refresh(family: Family) -> Vec<u8> {
    let [high, low] = family.afi.to_be_bytes();
    framed(ROUTE_REFRESH, &[high, low, 0, family.safi])
}

/// Puts a head before the body of a message.
fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + body.len());
    out.extend(MARKER);
    out.extend(u16::try_from(HEAD + body.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.push(kind);
    out.extend(body);
    out
}

/// Bytes that are taken from the front, as long as there are any.
#[derive(Clone, Copy, Debug)]
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk().copied()
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn short(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_be_bytes)
    }

    fn long(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }
}
