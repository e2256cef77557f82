//! A simulated cluster: nodes, pods and outside clients made from network namespaces, with servers that return their name.
//!
//! In: names. Out: a [`Cluster`] that carries real packets of both families. It takes a few milliseconds per namespace, many
//! can exist side by side, and all of it is removed with the [`Cluster`], also after a panic.
//!
//! ```text
//!   outside clients        nodes                             pods
//!   192.0.2.101/24 ──┐  ┌─ 192.0.2.11/24   10.244.1.1/24 ─┬─ 10.244.1.2/32
//!   2001:db8::101/64 │  │  2001:db8::11/64                └─ fd00:10:244:1::2/128
//!                    ├──┤
//!               underlay└─ 192.0.2.12/24   10.244.2.1/24 ─── 10.244.2.2/32
//! ```
//!
//! The underlay has a router, 192.0.2.1 and 2001:db8::1, to which nodes send what they have no other way for.
//!
//! Pods are connected to a bridge of their node, but their addresses are single hosts: even to its neighbour a pod sends
//! through the node. Without that, the response of a neighbour would be bridged past the node and past its address
//! translation, and only `bridge-nf-call-iptables` would help. The ports of the bridge have hairpin mode on, so that a pod may
//! reach itself. Limits on ICMP errors are lifted: a refusal is to be seen every time, not once in a second.
//!
//! ```no_run
//! use testbed::net::{Cluster, Family, Kind, Protocol::Tcp};
//!
//! let cluster = Cluster::new();
//! let (web, client) = (cluster.node("n1").pod("web-1"), cluster.node("n2").pod("client"));
//! web.echo(8080);
//! let answer = client.ask(Tcp, web.v6(), 8080).expect("an answer");
//! assert_eq!((answer.name.as_str(), answer.client.ip()), ("web-1", client.address(Family::V6)));
//! assert_eq!(client.ask(Tcp, web.v6(), 81).unwrap_err().kind, Kind::Refused);
//! ```

mod caller;
mod cluster;
mod echo;
mod failure;
mod fleet;
mod hammer;
mod host;
mod http;
mod icmp;
mod inspect;
mod kubernetes;
mod mode;
mod namespace;
pub mod objects;
mod process;
mod sctp;
mod served;
mod socket;

pub use caller::{Answer, Caller, Connection};
pub use cluster::{Cluster, Node, Outside, Pod};
pub use failure::{Failure, Kind};
pub use fleet::{Fleet, backend};
pub use hammer::{Hammer, Tally};
pub use host::Host;
pub use http::Page;
pub use mode::{MODES, Mode};
pub use process::{Process, Words};
pub use served::{Served, eventually};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol of a Service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its name in API objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Its name in names of ports.
    #[must_use]
    pub const fn port_name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Its name in API objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Whatever a test may write for an address.
pub trait Address {
    /// The address.
    fn address(&self) -> IpAddr;
}

impl Address for IpAddr {
    fn address(&self) -> IpAddr {
        *self
    }
}

impl Address for Ipv4Addr {
    fn address(&self) -> IpAddr {
        (*self).into()
    }
}

impl Address for Ipv6Addr {
    fn address(&self) -> IpAddr {
        (*self).into()
    }
}

impl Address for str {
    fn address(&self) -> IpAddr {
        self.parse().unwrap_or_else(|_| panic!("{self:?} is not an address"))
    }
}

impl Address for String {
    fn address(&self) -> IpAddr {
        self.as_str().address()
    }
}

impl<T: Address + ?Sized> Address for &T {
    fn address(&self) -> IpAddr {
        (**self).address()
    }
}
