//! Socket features that the standard library lacks: datagrams with their destination address, marks, TCP MD5
//! signatures, and IPv6-only listeners.
//!
//! A socket bound to all addresses does not see the destination of a datagram. But a reply must come from that address,
//! or neither the client nor NAT accepts it. In: a socket. Out: datagrams with both addresses, and replies with a
//! chosen source.
//!
//! The system calls are made through libc; what the kernel writes is parsed as bytes, with every length checked.

#![allow(unsafe_code, reason = "no safe call for the destination of a datagram, socket marks or TCP MD5 signatures")]

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A local address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// Interface index for link-local IPv6 addresses; else 0.
    pub interface: u32,
}

/// A received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Length in bytes.
    pub length: usize,
    /// Sender.
    pub from: SocketAddr,
    /// Local address it was sent to.
    pub at: LocalAddress,
}

/// Buffer for a control message, aligned for the kernel.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Buffer for a socket address.
#[repr(C, align(8))]
struct Name([u8; NAME]);

const NAME: usize = size_of::<libc::sockaddr_in6>();
/// Header of a control message: length, level and type.
const HEAD: usize = size_of::<libc::cmsghdr>();

/// Enables destination addresses (IP_PKTINFO). Call it before the first datagram arrives.
///
/// # Errors
/// When the kernel refuses: not a datagram socket of this family.
pub fn enable_pktinfo(socket: impl AsFd, is_ipv4: bool) -> io::Result<()> {
    let (level, option) =
        if is_ipv4 { (libc::IPPROTO_IP, libc::IP_PKTINFO) } else { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) };
    set(socket, level, option, 1)
}

/// Listens at an address. IPv6 listeners do not accept IPv4: another socket may do that.
///
/// # Errors
/// When the kernel refuses, for example because the address is in use.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Allow reuse while old connections are in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, 1024)?;
    Ok(socket.into())
}

/// Sets SO_MARK, which rules can match.
///
/// # Errors
/// Without CAP_NET_ADMIN.
pub fn mark(socket: impl AsFd, bits: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MARK, bits)
}

/// Sets the TTL or hop limit.
///
/// # Errors
/// When the kernel refuses: not a socket of this family.
pub fn limit_hops(socket: impl AsFd, is_ipv4: bool, hops: u8) -> io::Result<()> {
    match is_ipv4 {
        true => sockopt::set_ip_ttl(socket, hops.into())?,
        false => sockopt::set_ipv6_unicast_hops(socket, Some(hops))?,
    }
    Ok(())
}

/// Enables TCP MD5 signatures (RFC 2385) for a peer; segments without a valid signature are dropped. Call it before
/// connecting, or while listening.
///
/// # Errors
/// When the kernel lacks support, or the password is longer than 80 bytes.
pub fn sign(socket: impl AsFd, with: IpAddr, password: &[u8]) -> io::Result<()> {
    // Socket address storage, flags, prefix, length, interface, password.
    let mut order = [0; SIGNING];
    let mut name = [0; NAME];
    let named = write_name(&mut name, SocketAddr::new(with, 0));
    order[..named].copy_from_slice(&name[..named]);
    let length = u16::try_from(password.len()).unwrap_or(u16::MAX);
    order[KEY_LENGTH..KEY_LENGTH + 2].copy_from_slice(&length.to_ne_bytes());
    let room = order.get_mut(KEY..KEY + password.len());
    room.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?.copy_from_slice(password);
    set_bytes(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &order)
}

/// Offsets in `struct tcp_md5sig`.
const KEY_LENGTH: usize = size_of::<libc::sockaddr_storage>() + 2;
const KEY: usize = KEY_LENGTH + 2 + 4;
const SIGNING: usize = KEY + libc::TCP_MD5SIG_MAXKEYLEN;

fn set(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: u32) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

fn set_bytes(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = socklen(value.len());
    // SAFETY: the descriptor is open while it is borrowed, and the pointer and length are those of `value`, which outlives the
    // call; the kernel copies it, however it is aligned.
    let done = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives a datagram.
///
/// # Errors
/// `WouldBlock` when there is none; otherwise the error.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Arrival> {
    let (mut control, mut name) = (Control([0; 64]), Name([0; NAME]));
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = libc::msghdr {
        msg_name: name.0.as_mut_ptr().cast(),
        msg_namelen: socklen(NAME),
        msg_iov: &raw mut vector,
        msg_iovlen: 1,
        msg_control: control.0.as_mut_ptr().cast(),
        msg_controllen: control.0.len(),
        msg_flags: 0,
    };
    // SAFETY: the descriptor is open while it is borrowed; every pointer in `message` points to memory that is exclusively
    // ours, has the length given beside it, and outlives the call.
    let taken = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
    let data = control.0.get(..message.msg_controllen).unwrap_or(&control.0);
    let nameless = || io::Error::new(io::ErrorKind::InvalidData, "a datagram without addresses");
    Ok(Arrival { length, from: sender(&name.0).ok_or_else(nameless)?, at: destination(data).ok_or_else(nameless)? })
}

/// Sends a datagram from this local address.
///
/// # Errors
/// `WouldBlock` when the buffer is full; otherwise the error.
pub fn send(socket: impl AsFd, bytes: &[u8], to: SocketAddr, from: LocalAddress) -> io::Result<()> {
    let (mut control, mut name) = (Control([0; 64]), Name([0; NAME]));
    let length = write_source(&mut control.0, from);
    let named = write_name(&mut name.0, to);
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let message = libc::msghdr {
        msg_name: name.0.as_mut_ptr().cast(),
        msg_namelen: socklen(named),
        msg_iov: &raw mut vector,
        msg_iovlen: 1,
        msg_control: control.0.as_mut_ptr().cast(),
        msg_controllen: length,
        msg_flags: 0,
    };
    // SAFETY: the descriptor is open while it is borrowed; every pointer in `message` points to memory that has the length
    // given beside it and outlives the call, which reads all of it and writes none.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socklen(length: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(length).unwrap_or(libc::socklen_t::MAX)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Parses a socket address.
fn sender(name: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(number(name, 2)?);
    match i32::from(u16::from_ne_bytes(number(name, 0)?)) {
        libc::AF_INET => Some(SocketAddr::new(Ipv4Addr::from(number::<4>(name, 4)?).into(), port)),
        libc::AF_INET6 => {
            let (flow, scope) = (u32::from_be_bytes(number(name, 4)?), u32::from_ne_bytes(number(name, 24)?));
            Some(SocketAddrV6::new(number::<16>(name, 8)?.into(), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Writes a socket address; returns its length.
fn write_name(name: &mut [u8; NAME], to: SocketAddr) -> usize {
    let mut put = |at: usize, bytes: &[u8]| name[at..at + bytes.len()].copy_from_slice(bytes);
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    put(0, &u16::try_from(family).unwrap_or_default().to_ne_bytes());
    put(2, &to.port().to_be_bytes());
    match to {
        SocketAddr::V4(to) => {
            put(4, &to.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(to) => {
            put(4, &to.flowinfo().to_be_bytes());
            put(8, &to.ip().octets());
            put(24, &to.scope_id().to_ne_bytes());
            NAME
        }
    }
}

/// Finds the destination address in control data.
fn destination(mut control: &[u8]) -> Option<LocalAddress> {
    loop {
        let length = usize::from_ne_bytes(number(control, 0)?);
        let (level, kind) =
            (i32::from_ne_bytes(number(control, HEAD - 8)?), i32::from_ne_bytes(number(control, HEAD - 4)?));
        let body = control.get(HEAD..length)?;
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                return Some(LocalAddress { ip: Ipv4Addr::from(number::<4>(body, 4)?).into(), interface: 0 });
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let ip = Ipv6Addr::from(number::<16>(body, 0)?);
                let interface = u32::from_ne_bytes(number(body, 16)?);
                return Some(LocalAddress {
                    ip: ip.into(),
                    interface: if ip.is_unicast_link_local() { interface } else { 0 },
                });
            }
            _ => control = control.get(length.next_multiple_of(size_of::<usize>())..)?,
        }
    }
}

/// Writes the source address as control data; returns its length.
fn write_source(control: &mut [u8; 64], from: LocalAddress) -> usize {
    let (level, kind, body) = match from.ip {
        IpAddr::V4(ip) => (libc::IPPROTO_IP, libc::IP_PKTINFO, [&[0; 4], &ip.octets()[..], &[0; 4]].concat()),
        IpAddr::V6(ip) => {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, [&ip.octets()[..], &from.interface.to_ne_bytes()].concat())
        }
    };
    let length = HEAD + body.len();
    let head = [&length.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes()].concat();
    control[..HEAD].copy_from_slice(&head);
    control[HEAD..length].copy_from_slice(&body);
    length.next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::time::Duration;

    use rustix::io::Errno;

    use super::*;

    /// Opens a connection with signatures; returns whether it was established in time.
    fn signed(to: SocketAddr, password: &[u8]) -> bool {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).expect("a socket");
        sign(&socket, to.ip(), password).expect("the kernel can sign");
        limit_hops(&socket, to.is_ipv4(), 1).expect("limited");
        let timeout = Some(Duration::from_millis(300));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, timeout).expect("a limit");
        match rustix::net::connect(&socket, &to) {
            Ok(()) => TcpStream::from(socket).peer_addr().is_ok(),
            Err(Errno::INPROGRESS) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn only_matching_signatures_are_accepted() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let server = listen(here.parse().expect("an address")).expect("a server");
            let at = server.local_addr().expect("bound");
            sign(&server, at.ip(), b"open sesame").expect("the kernel can sign");
            assert!(signed(at, b"open sesame"), "{here}");
            assert!(!signed(at, b"open barley"), "{here}");
            assert!(sign(&server, at.ip(), &[b'x'; 81]).is_err(), "the kernel has no room for more than 80");
        }
    }

    #[test]
    fn replies_come_from_the_destination_address() {
        for (any, asked) in [("0.0.0.0:0", "127.0.0.77"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let server = UdpSocket::bind(any).expect("a server");
            enable_pktinfo(&server, asked.contains('.')).expect("enabled");
            let asked: IpAddr = asked.parse().expect("an address");
            let at = SocketAddr::new(asked, server.local_addr().expect("bound").port());
            // A connected socket drops datagrams from other addresses.
            let client = UdpSocket::bind(any).expect("a client");
            client.connect(at).expect("connected");
            client.send(b"a question").expect("sent");
            let mut buffer = [0; 100];
            let arrival = receive(&server, &mut buffer).expect("received");
            assert_eq!(&buffer[..arrival.length], b"a question");
            let whole = Arrival {
                length: 10,
                from: client.local_addr().expect("bound"),
                at: LocalAddress { ip: asked, interface: 0 },
            };
            assert_eq!(arrival, whole);
            send(&server, b"an answer", arrival.from, arrival.at).expect("sent");
            let length = client.recv(&mut buffer).expect("received");
            assert_eq!(&buffer[..length], b"an answer");
        }
    }

    #[test]
    fn unknown_control_data_is_skipped() {
        let mut other = usize::to_ne_bytes(HEAD + 1).to_vec();
        other.extend([1i32.to_ne_bytes(), 2i32.to_ne_bytes()].concat());
        other.resize((HEAD + 1).next_multiple_of(size_of::<usize>()), 0);
        let here = LocalAddress { ip: [10, 0, 0, 1].into(), interface: 0 };
        let mut ours = [0; 64];
        let length = write_source(&mut ours, here);
        assert_eq!(destination(&[&other[..], &ours[..length]].concat()), Some(here));
        for end in 0..length {
            let cut = destination(&ours[..end]);
            assert!(cut.is_none() || end >= HEAD + 12, "{end}");
        }
        assert_eq!(destination(&[0; 64]), None, "a message without a length does not end the world");
    }
}
