//! Parsing and encoding of BGP-4 messages (RFC 4271). No I/O, no state.
//!
//! In: untrusted bytes, or a message. Out: a [`Message`], or the [`Notification`] for the sender; or bytes. Every length is
//! checked before it is used, and allocations are bounded by the length of the input.

pub mod notification;
pub mod open;
pub mod update;

mod attributes;
mod prefix;
mod received;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

pub use attributes::{Attributes, Large, Reach, Segment, Unreach};
pub use notification::Notification;
pub use open::{Capability, Open, Restart};
pub use received::{ErrorAction, ReceivedUpdate, UpdateError};
pub use update::Update;

/// Length of the header: marker, length, type.
pub const HEADER_LEN: usize = 19;
/// Maximum length of a message.
pub const MAX_LEN: usize = 4096;

const MARKER: [u8; 16] = [0xff; 16];

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// Address family (AFI) and subsequent address family (SAFI).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Family {
    /// AFI.
    pub afi: u16,
    /// SAFI.
    pub safi: u8,
}

impl Family {
    /// IPv4 unicast.
    pub const V4: Self = Self { afi: 1, safi: 1 };
    /// IPv6 unicast.
    pub const V6: Self = Self { afi: 2, safi: 1 };
    /// Supported families.
    pub const OURS: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
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

/// Negotiated parameters that the encoding of UPDATE depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Whether AS numbers have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// Whether the session is iBGP.
    pub internal: bool,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// OPEN.
    Open(Open),
    /// UPDATE.
    Update(Box<ReceivedUpdate>),
    /// NOTIFICATION.
    Notification(Notification),
    /// KEEPALIVE.
    Keepalive,
    /// ROUTE-REFRESH of a family (RFC 2918).
    Refresh(Family),
}

/// Length of the message at the start of the bytes; none if the header is incomplete.
///
/// # Errors
/// When the header is invalid.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Notification> {
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    if head[..16] != MARKER {
        return Err(Notification::NOT_SYNCHRONIZED);
    }
    let length = u16::from_be_bytes([head[16], head[17]]);
    let (at_least, at_most) = match head[18] {
        OPEN => (29, MAX_LEN),
        UPDATE => (23, MAX_LEN),
        NOTIFICATION => (21, MAX_LEN),
        KEEPALIVE => (HEADER_LEN, HEADER_LEN),
        ROUTE_REFRESH => (23, MAX_LEN),
        unknown => return Err(Notification::bad_type(unknown)),
    };
    match usize::from(length) {
        good if (at_least..=at_most).contains(&good) => Ok(Some(good)),
        _ => Err(Notification::bad_length(length)),
    }
}

/// Parses a message of the length that [`length`] returned.
///
/// # Errors
/// When it is malformed.
pub fn read(bytes: &[u8], negotiated: Negotiated) -> Result<Message, Notification> {
    let expected = length(bytes)?;
    if expected != Some(bytes.len()) {
        return Err(Notification::bad_length(u16::try_from(bytes.len()).unwrap_or(u16::MAX)));
    }
    let (kind, body) = (bytes[18], &bytes[HEADER_LEN..]);
    match kind {
        OPEN => Open::read(body).map(Message::Open),
        UPDATE => received::read(body, negotiated).map(|taken| Message::Update(Box::new(taken))),
        NOTIFICATION => Ok(Message::Notification(Notification::read(body))),
        KEEPALIVE => Ok(Message::Keepalive),
        // The third octet is reserved. Longer messages carry outbound route filters (RFC 5291), which are not supported.
        ROUTE_REFRESH => {
            let afi = u16::from_be_bytes([body[0], body[1]]);
            Ok(Message::Refresh(Family { afi, safi: body[3] }))
        }
        unknown => Err(Notification::bad_type(unknown)),
    }
}

/// KEEPALIVE.
#[must_use]
pub fn keepalive() -> Vec<u8> {
    frame(KEEPALIVE, &[])
}

/// ROUTE-REFRESH.
#[must_use]
pub fn refresh(family: Family) -> Vec<u8> {
    let [high, low] = family.afi.to_be_bytes();
    frame(ROUTE_REFRESH, &[high, low, 0, family.safi])
}

/// Prepends the header.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + body.len());
    out.extend(MARKER);
    out.extend(u16::try_from(HEADER_LEN + body.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.push(kind);
    out.extend(body);
    out
}

/// Reads bytes from the front.
#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
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
