//! Sockets, made as the relay wants them, at once and without waiting.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_socket_reuseaddr, set_tcp_keepidle, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

/// How many connections may wait to be taken, if the kernel lets so many.
const BACKLOG: i32 = 4096;
/// After how long without a byte a peer is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(300);

fn open(family: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let number = if family.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(number, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if family.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Listens for connections. What they are made with, they have from the listener: small writes leave at once, and peers that
/// vanished are noticed.
pub(super) fn tcp_listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(at, SocketType::STREAM)?;
    set_socket_reuseaddr(&socket, true)?;
    set_tcp_nodelay(&socket, true)?;
    set_socket_keepalive(&socket, true)?;
    set_tcp_keepidle(&socket, QUIET)?;
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Listens for datagrams, each of which tells where it was sent.
pub(super) fn udp_listener(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(at, SocketType::DGRAM)?;
    kernel::socket::tell_destination(&socket, at.is_ipv4())?;
    bind(&socket, &at)?;
    UdpSocket::from_std(socket.into())
}

/// Connects to an endpoint.
pub(super) async fn dial(to: SocketAddr, mark: Option<u32>) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bits) = mark {
        kernel::socket::mark(&socket, bits)?;
    }
    socket.set_nodelay(true)?;
    socket.set_keepalive(true)?;
    set_tcp_keepidle(&socket, QUIET)?;
    socket.connect(to).await
}

/// A socket that speaks with one endpoint only.
pub(super) fn udp_to(to: SocketAddr, mark: Option<u32>) -> io::Result<UdpSocket> {
    let socket = open(to, SocketType::DGRAM)?;
    if let Some(bits) = mark {
        kernel::socket::mark(&socket, bits)?;
    }
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    bind(&socket, &any)?;
    connect(&socket, &to)?;
    UdpSocket::from_std(socket.into())
}
