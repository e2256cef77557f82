//! Why a session is not there, in words that help.
//!
//! In: what the machine, the wire or the peer said. Out: a [`Down`], whose text names the likely cause and what to look at. Equal reasons
//! are equal, so that people hear of each once and not at every try.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use super::wire::Notification;

/// Why a session is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Down {
    /// Nobody listens there.
    Refused,
    /// Nobody answers.
    NoAnswer,
    /// The address that we are to speak from is none of ours.
    NoSource(Option<IpAddr>),
    /// The machine cannot do it.
    Machine(String),
    /// The peer hung up before it said who it is.
    Rejected,
    /// The connection broke.
    Broken(String),
    /// Nothing was heard for so many seconds.
    Silent(u64),
    /// The peer says why.
    Told(Notification),
    /// The peer says what cannot be understood.
    Fault(Notification),
    /// The peer is of another autonomous system.
    OtherSystem {
        /// Which one we were told.
        expected: u32,
        /// Which one it is.
        is: u32,
    },
    /// The peer has our identifier.
    SameIdentifier,
    /// The peer told us of more networks than this.
    TooMany(usize),
}

impl Down {
    /// Why a connection could not be opened.
    #[must_use]
    pub fn connecting(error: &io::Error, source: Option<IpAddr>) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::TimedOut | ErrorKind::HostUnreachable => Self::NoAnswer,
            ErrorKind::AddrNotAvailable => Self::NoSource(source),
            _ => Self::Machine(error.to_string()),
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
            Self::NoAnswer => f.write_str(
                "no answer; if a password is set, both sides must have the same; \
                 else check spec.peerAddress, the route to it, and firewalls",
            ),
            Self::NoSource(Some(source)) => {
                write!(f, "this node has no address {source}; check spec.sourceAddress, or spec.nodeSelector")
            }
            Self::NoSource(None) => f.write_str("this node has no address to speak from"),
            Self::Machine(why) => write!(f, "the connection cannot be opened: {why}"),
            Self::Rejected => f.write_str(
                "the peer hung up before it said who it is: \
                 does its configuration have this node's address as a neighbour?",
            ),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Silent(seconds) => {
                write!(f, "nothing was heard for {seconds} seconds (hold timer): the router is down, or the way to it")
            }
            Self::Told(notification) => write!(f, "the peer ended it: {notification}"),
            Self::Fault(notification) => write!(f, "the peer said what BGP does not allow: {notification}"),
            Self::OtherSystem { expected, is } => {
                write!(f, "the peer is of AS {is}, not {expected}; check spec.peerASN")
            }
            Self::SameIdentifier => {
                f.write_str("the peer has the same router ID as this node; set spec.routerID, or another one there")
            }
            Self::TooMany(limit) => write!(
                f,
                "the peer sent more than {limit} prefixes (spec.maxPrefixes); filter them there: nodes need none; \
                 it is tried again after ten minutes, or at once when the BGPPeer changes"
            ),
        }
    }
}
