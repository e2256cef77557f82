//! Batched datagrams: many per system call.
//!
//! In: a listen address. Out: a [`Socket`], of which several may share an address so that the kernel distributes the
//! load, and a [`Batch`] of received datagrams and replies. A server of hundreds of thousands of small queries per
//! second is dominated by system calls, so there are two per batch. Replies are sent from the address that the client
//! used, even if the socket is bound to all addresses.
//!
//! `unsafe`: `recvmmsg` and `sendmmsg` take arrays of pointers, and one socket option has no safe form. The pointers
//! are rebuilt for each call, point into buffers owned by the batch, and are not used afterwards. What the kernel
//! writes (addresses, control data) is parsed as bytes.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::net::{self, AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use rustix::thread::CpuSet;

/// Datagrams per batch.
pub const BATCH: usize = 64;
/// Minimum number of datagrams offered.
const LEAST: usize = 8;
/// Maximum datagram size; longer ones are dropped.
const LONGEST: usize = 4096;
/// Size of an address buffer.
const NAME: usize = size_of::<libc::sockaddr_in6>();
/// Size of the control data with the destination address.
const CONTROL: usize = 40;
/// Length of a control message header.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// A UDP socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    local: SocketAddr,
    /// Whether it is bound to all addresses, so that the destination of each datagram is needed.
    wild: bool,
}

/// A client, and the local address it used.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Client address.
    pub address: SocketAddr,
    asked: Asked,
}

/// Control data of a datagram, ready to be sent back.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Asked {
    bytes: [u8; CONTROL],
    len: usize,
}

/// A socket address as written by the kernel.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Name([u8; NAME]);

/// Received datagrams and their replies.
pub struct Batch {
    received: Box<[[u8; LONGEST]]>,
    names: Box<[Name]>,
    asked: Box<[Asked]>,
    /// Lengths of received datagrams; none for invalid ones.
    lens: [Option<usize>; BATCH],
    count: usize,
    replies: Box<[Vec<u8>]>,
    /// Headers for the kernel, rebuilt for each call.
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    /// Datagrams to offer in the next call.
    offer: usize,
}

impl Socket {
    /// Binds an address, which several sockets may share.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bind(address: SocketAddr, receive_buffer: usize) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        // Best effort: without privileges the buffer is limited by rmem_max.
        if sockopt::set_socket_recv_buffer_size_force(&fd, receive_buffer).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&fd, receive_buffer);
        }
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        let wild = address.ip().is_unspecified();
        if wild {
            want_asked(&fd, address.ip())?;
        }
        net::bind(&fd, &address)?;
        let local = SocketAddr::try_from(net::getsockname(&fd)?)?;
        Ok(Self { fd, local, wild })
    }

    /// Local address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Waits for datagrams and receives up to a batch. Returns 0 after [`Self::shut`].
    ///
    /// # Errors
    /// When the system call fails.
    pub fn receive(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.forget();
        let offer = batch.offer;
        for slot in 0..offer {
            batch.vectors[slot] = libc::iovec { iov_base: batch.received[slot].as_mut_ptr().cast(), iov_len: LONGEST };
            batch.headers[slot] = EMPTY;
            let header = &mut batch.headers[slot].msg_hdr;
            header.msg_name = (&raw mut batch.names[slot]).cast();
            header.msg_namelen = NAME as libc::socklen_t;
            header.msg_iov = &raw mut batch.vectors[slot];
            header.msg_iovlen = 1;
            if self.wild {
                header.msg_control = batch.asked[slot].bytes.as_mut_ptr().cast();
                header.msg_controllen = CONTROL;
            }
        }
        let (fd, headers) = (self.fd.as_raw_fd(), batch.headers.as_mut_ptr());
        // SAFETY: `headers` has at least `offer` elements. Each was just made to point to a name, a vector and control data of
        // the lengths given, all owned by `batch`, which is borrowed exclusively until the call returns. No timeout is given.
        let got = unsafe { libc::recvmmsg(fd, headers, offer as u32, libc::MSG_WAITFORONE, ptr::null_mut()) };
        let Ok(count) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
        for (slot, header) in batch.headers[..count].iter().enumerate() {
            let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            batch.lens[slot] = (!cut).then_some(header.msg_len as usize);
            batch.asked[slot].len = if self.wild { header.msg_hdr.msg_controllen.min(CONTROL) } else { 0 };
            batch.asked[slot].clean();
        }
        // Offer twice as many next time: small batches need less preparation.
        batch.offer = (count * 2).clamp(LEAST, BATCH);
        batch.count = count;
        Ok(count)
    }

    /// Sends the non-empty replies of a batch; returns the number sent. A refused one is dropped and does not block the
    /// others.
    pub fn send(&self, batch: &mut Batch) -> usize {
        let mut ready = 0;
        for slot in 0..batch.count {
            let reply = &mut batch.replies[slot];
            if reply.is_empty() {
                continue;
            }
            batch.vectors[ready] = libc::iovec { iov_base: reply.as_mut_ptr().cast(), iov_len: reply.len() };
            batch.headers[ready] = EMPTY;
            let header = &mut batch.headers[ready].msg_hdr;
            header.msg_namelen = batch.names[slot].len();
            header.msg_name = (&raw mut batch.names[slot]).cast();
            header.msg_iov = &raw mut batch.vectors[ready];
            header.msg_iovlen = 1;
            if batch.asked[slot].len > 0 {
                header.msg_control = batch.asked[slot].bytes.as_mut_ptr().cast();
                header.msg_controllen = batch.asked[slot].len;
            }
            ready += 1;
        }
        let (mut done, mut sent) = (0, 0);
        while done < ready {
            let (fd, headers) = (self.fd.as_raw_fd(), batch.headers[done..ready].as_mut_ptr());
            // SAFETY: `headers` has `ready - done` elements. Each was made above to point to a name, a vector and control data of
            // the lengths given, all owned by `batch`, which is borrowed exclusively until the call returns.
            let took = unsafe { libc::sendmmsg(fd, headers, (ready - done) as u32, 0) };
            match usize::try_from(took) {
                Ok(took) => {
                    sent += took;
                    done += took.max(1);
                }
                Err(_) => done += 1,
            }
        }
        sent
    }

    /// Sends one reply outside of its batch.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn send_to(&self, reply: &mut Vec<u8>, peer: &Peer) -> io::Result<()> {
        let (mut name, mut asked) = (Name::new(peer.address), peer.asked);
        let mut vector = libc::iovec { iov_base: reply.as_mut_ptr().cast(), iov_len: reply.len() };
        let mut header = EMPTY.msg_hdr;
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = name.len();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        if asked.len > 0 {
            header.msg_control = asked.bytes.as_mut_ptr().cast();
            header.msg_controllen = asked.len;
        }
        // SAFETY: the header points to a name, a vector and control data of the lengths given, all of which live on
        // this stack or are borrowed exclusively until the call returns.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Wakes blocked receivers; nothing is received any more.
    pub fn shut(&self) {
        // Fails for an unconnected socket, but wakes receivers.
        let _ = net::shutdown(&self.fd, Shutdown::Both);
    }
}

/// A header without pointers.
const EMPTY: libc::mmsghdr = libc::mmsghdr {
    msg_hdr: libc::msghdr {
        msg_name: ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: ptr::null_mut(),
        msg_iovlen: 0,
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    },
    msg_len: 0,
};

/// Enables control data with the destination address.
fn want_asked(fd: &OwnedFd, address: IpAddr) -> io::Result<()> {
    let (level, option) = match address {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    let on: libc::c_int = 1;
    // SAFETY: the value is an integer of the length given, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// === impl Batch ===

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            received: vec![[0; LONGEST]; BATCH].into(),
            names: vec![Name([0; NAME]); BATCH].into(),
            asked: vec![Asked { bytes: [0; CONTROL], len: 0 }; BATCH].into(),
            lens: [None; BATCH],
            count: 0,
            replies: vec![Vec::new(); BATCH].into(),
            headers: vec![EMPTY; BATCH].into(),
            vectors: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH].into(),
            offer: LEAST,
        }
    }

    fn forget(&mut self) {
        self.replies[..self.count].iter_mut().for_each(Vec::clear);
        self.count = 0;
    }

    /// A datagram, its sender, and the buffer for the reply; none if it was too long or has no sender.
    pub fn exchange(&mut self, slot: usize) -> Option<(&[u8], Peer, &mut Vec<u8>)> {
        let len = self.lens[slot].filter(|_| slot < self.count)?;
        let peer = Peer { address: self.names[slot].address()?, asked: self.asked[slot] };
        Some((&self.received[slot][..len], peer, &mut self.replies[slot]))
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} datagrams", self.count)
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.address)
    }
}

// === impl Name ===

const INET: [u8; 2] = (libc::AF_INET as u16).to_ne_bytes();
const INET6: [u8; 2] = (libc::AF_INET6 as u16).to_ne_bytes();

impl Name {
    fn new(address: SocketAddr) -> Self {
        let mut bytes = [0; NAME];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&INET);
                bytes[4..8].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&INET6);
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        Self(bytes)
    }

    fn address(&self) -> Option<SocketAddr> {
        let bytes = &self.0;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match [bytes[0], bytes[1]] {
            INET => Some(SocketAddrV4::new([bytes[4], bytes[5], bytes[6], bytes[7]].into(), port).into()),
            INET6 => {
                let octets: [u8; 16] = bytes[8..24].try_into().ok()?;
                let scope = u32::from_ne_bytes(bytes[24..28].try_into().ok()?);
                Some(SocketAddrV6::new(octets.into(), port, 0, scope).into())
            }
            _ => None,
        }
    }

    fn len(&self) -> libc::socklen_t {
        let len = if self.0[..2] == INET { size_of::<libc::sockaddr_in>() } else { NAME };
        len as libc::socklen_t
    }
}

// === impl Asked ===

impl Asked {
    /// Keeps the destination address and clears the interface, so that routing decides; link-local addresses keep it.
    /// Unknown control data is dropped.
    fn clean(&mut self) {
        let v4 = HEADER + size_of::<libc::in_pktinfo>();
        let v6 = HEADER + size_of::<libc::in6_pktinfo>();
        let number = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|byte| self.bytes[at + byte]));
        let kind = (number(size_of::<usize>()), number(size_of::<usize>() + 4));
        match kind {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if self.len >= v4 => self.bytes[HEADER..HEADER + 4].fill(0),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if self.len >= v6 => {
                let octets: [u8; 16] = self.bytes[HEADER..HEADER + 16].try_into().unwrap_or_default();
                if !Ipv6Addr::from(octets).is_unicast_link_local() {
                    self.bytes[HEADER + 16..v6].fill(0);
                }
            }
            _ => self.len = 0,
        }
    }
}

/// Pins this thread to one of its CPUs, counted from 0 modulo their number.
///
/// # Errors
/// When the kernel refuses; the thread continues.
pub fn pin(number: usize) -> io::Result<()> {
    let may = rustix::thread::sched_getaffinity(None)?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| may.is_set(*cpu)).collect();
    let Some(cpu) = usable.get(number % usable.len().max(1)) else { return Ok(()) };
    let mut one = CpuSet::new();
    one.set(*cpu);
    rustix::thread::sched_setaffinity(None, &one)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    /// Replies to each datagram with its bytes reversed, until shut.
    fn echo(socket: &Socket) -> usize {
        let (mut batch, mut all) = (Batch::new(), 0);
        loop {
            let count = socket.receive(&mut batch).expect("datagrams");
            let mut seen = 0;
            for slot in 0..count {
                let Some((bytes, _, reply)) = batch.exchange(slot) else { continue };
                reply.extend(bytes.iter().rev());
                seen += usize::from(!bytes.is_empty());
            }
            socket.send(&mut batch);
            all += seen;
            if seen == 0 {
                return all;
            }
        }
    }

    fn client(to: &str) -> UdpSocket {
        let from = if to.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
        let client = UdpSocket::bind(from).expect("a socket");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("patience");
        // Connected: a reply from another address would be dropped.
        client.connect(to).expect("a way there");
        client
    }

    #[test]
    fn replies_come_from_the_address_the_client_used() {
        for (listen, ask) in
            [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.9"), ("[::1]:0", "[::1]"), ("[::]:0", "[::1]")]
        {
            let socket = Socket::bind(listen.parse().expect("an address"), 1 << 20).expect("a socket");
            let to = format!("{ask}:{}", socket.local().port());
            std::thread::scope(|scope| {
                let server = scope.spawn(|| echo(&socket));
                let clients: Vec<UdpSocket> = (0..3).map(|_| client(&to)).collect();
                for (number, client) in clients.iter().enumerate() {
                    for round in 0..40 {
                        client.send(format!("{number} asks {round}").as_bytes()).expect("sent");
                    }
                }
                let mut buffer = [0; 100];
                for (number, client) in clients.iter().enumerate() {
                    for round in 0..40 {
                        let len = client.recv(&mut buffer).expect("a reply");
                        let wanted: Vec<u8> = format!("{number} asks {round}").bytes().rev().collect();
                        assert_eq!(buffer[..len], wanted, "{listen}");
                    }
                }
                socket.shut();
                assert_eq!(server.join().expect("it ended"), 120);
            });
        }
    }

    #[test]
    fn late_replies_are_sent_and_oversized_datagrams_are_dropped() {
        let socket = Socket::bind("0.0.0.0:0".parse().expect("an address"), 1 << 20).expect("a socket");
        let client = client(&format!("127.0.0.3:{}", socket.local().port()));
        client.send(&[7; LONGEST + 1]).expect("sent");
        client.send(b"late").expect("sent");
        let (mut batch, mut found) = (Batch::new(), None);
        while found.is_none() {
            let count = socket.receive(&mut batch).expect("datagrams");
            found = (0..count).find_map(|slot| batch.exchange(slot).map(|(bytes, peer, _)| (bytes.to_vec(), peer)));
        }
        let (mut bytes, peer) = found.expect("one of them");
        assert_eq!((&bytes[..], peer.address), (&b"late"[..], client.local_addr().expect("an address")));
        socket.send_to(&mut bytes, &peer).expect("sent");
        let mut buffer = [0; 100];
        assert_eq!(client.recv(&mut buffer).expect("a reply"), 4);
    }

    #[test]
    fn several_sockets_may_share_an_address() {
        let first = Socket::bind("127.0.0.1:0".parse().expect("an address"), 1 << 16).expect("a socket");
        let second = Socket::bind(first.local(), 1 << 16).expect("the same");
        assert_eq!(first.local(), second.local());
        std::thread::spawn(|| pin(1)).join().expect("it ended").expect("pinned");
    }
}
