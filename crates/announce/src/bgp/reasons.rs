//! Why a session is down.
//!
//! In: errors of the socket, the protocol or the peer. Out: a [`Down`], whose text names the likely cause and the next step.
//! Equal reasons compare equal, so that each is reported once and not at every attempt.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use super::wire::Notification;

/// Why a session is down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Down {
    /// Connection refused.
    Refused,
    /// The connect timed out.
    ConnectTimeout,
    /// The configured source address is not an address of this node.
    NoSource(Option<IpAddr>),
    /// Local error.
    Local(String),
    /// The peer closed the connection before its OPEN.
    Rejected,
    /// The connection failed.
    Broken(String),
    /// The hold timer expired after so many seconds.
    HoldTimerExpired(u64),
    /// The peer sent a NOTIFICATION.
    Notified(Notification),
    /// The peer violated the protocol.
    ProtocolError(Notification),
    /// The peer has another AS number.
    AsMismatch {
        /// The configured one.
        expected: u32,
        /// The one in its OPEN.
        is: u32,
    },
    /// The peer has our router ID.
    RouterIdConflict,
    /// The peer exceeded this number of prefixes.
    PrefixLimit(usize),
}

impl Down {
    /// Why a connection could not be opened.
    #[must_use]
    pub fn connecting(error: &io::Error, source: Option<IpAddr>) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable => Self::ConnectTimeout,
            ErrorKind::AddrNotAvailable => Self::NoSource(source),
            _ => Self::Local(error.to_string()),
        }
    }
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str(
                "the connection was refused: nothing listens at this address and port, or a firewall is between; \
                 check spec.peerAddress and spec.peerPort, and that BGP runs there",
            ),
            Self::ConnectTimeout => f.write_str(
                "connection timed out; if a password is set, both sides must have the same; \
                 else check spec.peerAddress, the route to it, and firewalls",
            ),
            Self::NoSource(Some(source)) => {
                write!(f, "this node has no address {source}; check spec.sourceAddress, or spec.nodeSelector")
            }
            Self::NoSource(None) => f.write_str("this node has no source address"),
            Self::Local(why) => write!(f, "the connection cannot be opened: {why}"),
            Self::Rejected => f.write_str(
                "the peer closed the connection before its OPEN: \
                 does its configuration have this node's address as a neighbour?",
            ),
            Self::Broken(why) => write!(f, "the connection failed: {why}"),
            Self::HoldTimerExpired(seconds) => {
                write!(f, "hold timer expired after {seconds} seconds: the router or the path to it is down")
            }
            Self::Notified(notification) => write!(f, "the peer sent NOTIFICATION: {notification}"),
            Self::ProtocolError(notification) => write!(f, "protocol error of the peer: {notification}"),
            Self::AsMismatch { expected, is } => {
                write!(f, "the peer has AS number {is}, not {expected}; check spec.peerASN")
            }
            Self::RouterIdConflict => {
                f.write_str("the peer has the same router ID as this node; set spec.routerID, or another one there")
            }
            Self::PrefixLimit(limit) => write!(
                f,
                "the peer sent more than {limit} prefixes (spec.maxPrefixes); filter them there: nodes need none; \
                 retried after ten minutes, or at once when the BGPPeer changes"
            ),
        }
    }
}
