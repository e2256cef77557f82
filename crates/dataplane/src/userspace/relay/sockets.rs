//! Non-blocking sockets with the options of the relay.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_socket_reuseaddr, set_tcp_keepidle, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

/// Listen backlog; limited by net.core.somaxconn.
const BACKLOG: i32 = 4096;
/// Idle time before TCP keepalive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);

fn open(family: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let number = if family.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(number, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if family.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// A TCP listener. Accepted sockets inherit TCP_NODELAY and keepalive.
pub(super) fn tcp_listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(at, SocketType::STREAM)?;
    set_socket_reuseaddr(&socket, true)?;
    set_tcp_nodelay(&socket, true)?;
    set_socket_keepalive(&socket, true)?;
    set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A UDP socket that reports the destination address of each datagram.
pub(super) fn udp_listener(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(at, SocketType::DGRAM)?;
    kernel::socket::enable_pktinfo(&socket, at.is_ipv4())?;
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
    set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    socket.connect(to).await
}

/// A UDP socket connected to one endpoint.
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
