//! Sockets as the clients here need them: bound to an address or port on request, and never waited for without a limit.
//!
//! In: where from, where to, until when. Out: sockets of the namespace of the calling thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use super::Family;

/// The source address of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Source {
    /// Its address, when it is not the system's to choose.
    pub(super) address: Option<IpAddr>,
    /// Its port, likewise.
    pub(super) port: Option<u16>,
}

impl Source {
    /// The address to bind to; none when not requested.
    pub(super) fn for_family(self, family: Family) -> Option<SocketAddr> {
        let any = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        (self.address.is_some() || self.port.is_some())
            .then(|| SocketAddr::new(self.address.unwrap_or(any), self.port.unwrap_or(0)))
    }
}

/// A socket that never blocks.
pub(super) fn open(family: Family, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let family = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    Ok(socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, protocol)?)
}

/// A connected stream, of TCP or of the kernel's SCTP.
pub(super) fn stream(protocol: Protocol, source: Source, to: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let family = Family::of(to.ip());
    let socket = open(family, SocketType::STREAM, Some(protocol))?;
    if let Some(from) = source.for_family(family) {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &from)?;
    }
    // Closing resets: the port is free for the next request at once, so that no loop of requests runs out of ports.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    match connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            if wait(&[socket.as_fd()], PollFlags::OUT, deadline)?.is_none() {
                return Err(Errno::TIMEDOUT.into());
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(TcpStream::from(socket))
}

/// A datagram socket that receives from one peer only.
pub(super) fn datagrams(source: Source, to: SocketAddr) -> io::Result<UdpSocket> {
    let family = Family::of(to.ip());
    let socket = open(family, SocketType::DGRAM, None)?;
    if let Some(from) = source.for_family(family) {
        bind(&socket, &from)?;
    }
    connect(&socket, &to)?;
    Ok(UdpSocket::from(socket))
}

/// Waits until one of these is ready or failed, and returns which; none on timeout.
pub(super) fn wait(any: &[BorrowedFd<'_>], events: PollFlags, deadline: Instant) -> io::Result<Option<usize>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        let mut all: Vec<PollFd<'_>> = any.iter().map(|one| PollFd::from_borrowed_fd(*one, events)).collect();
        match poll(&mut all, Some(&limit)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(all.iter().position(|one| !one.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a local rule dropped the packet. The sender keeps listening: the rule may also have sent an ICMP error.
pub(super) fn was_swallowed(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::PERM)
}
