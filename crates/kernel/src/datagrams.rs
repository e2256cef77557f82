//! Many datagrams with one system call.
//!
//! In: an address to listen on. Out: a [`Socket`], of which several may share an address so that the kernel spreads the
//! load, and a [`Batch`] of received datagrams and their replies. A server that answers hundreds of thousands of small
//! questions a second spends its time on entering the kernel; so it enters twice for a whole batch. Replies leave from
//! the address that was asked, also when the socket listens on all of them.
//!
//! This is the only file that says `unsafe`: `recvmmsg` and `sendmmsg` take arrays of pointers, and one socket option
//! has no safe form. The pointers are made anew for each call, point into buffers that the batch owns, and are not used
//! after it. What the kernel writes (addresses, control data) is read as bytes.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::net::{self, AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};
use rustix::thread::CpuSet;

/// How many datagrams a batch holds.
pub const BATCH: usize = 64;
/// For how many there is room in any case.
const LEAST: usize = 8;
/// How long a datagram may be that is received; a longer one is dropped.
const LONGEST: usize = 4096;
/// Room for an address.
const NAME: usize = size_of::<libc::sockaddr_in6>();
/// Room for the address that was asked, with its header.
const CONTROL: usize = 40;
/// The length of the header of control data.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// A socket for datagrams.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    local: SocketAddr,
    /// Whether it listens on all addresses, so that each datagram must say which one was meant.
    wild: bool,
}

/// The other side: its address, and which of ours it spoke to.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    asked: Asked,
}

/// The control data of a datagram, ready to be sent back.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Asked {
    bytes: [u8; CONTROL],
    len: usize,
}

/// An address as the kernel writes it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Name([u8; NAME]);

/// Datagrams that were received, and what is replied to them.
pub struct Batch {
    received: Box<[[u8; LONGEST]]>,
    names: Box<[Name]>,
    asked: Box<[Asked]>,
    /// Lengths of what was received; none for what must not be looked at.
    lens: [Option<usize>; BATCH],
    count: usize,
    replies: Box<[Vec<u8>]>,
    /// What the kernel is shown: made anew for each call.
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    /// How many datagrams are taken next time.
    offer: usize,
}

impl Socket {
    /// Listens on an address, which several sockets may share.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bind(address: SocketAddr, receive_buffer: usize) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&fd, true)?;
        // Both are wishes: who may not have a large buffer has the largest that is allowed.
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

    /// Where it listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Waits for datagrams and takes as many as there are, up to a batch. None come after [`Self::shut`].
    ///
    /// # Errors
    /// When the kernel says so.
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
        // Room for twice as many next time: who gets few at a time does not prepare for many.
        batch.offer = (count * 2).clamp(LEAST, BATCH);
        batch.count = count;
        Ok(count)
    }

    /// Sends every reply of a batch that is not empty; how many the kernel took. One that it does not take is lost, as
    /// datagrams are, and does not hold up the others.
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

    /// Sends one reply later than its batch.
    ///
    /// # Errors
    /// When the kernel does not take it.
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

    /// Wakes whoever waits for datagrams: nothing will come any more.
    pub fn shut(&self) {
        // It is not connected, which the kernel says; it wakes the waiting all the same.
        let _ = net::shutdown(&self.fd, Shutdown::Both);
    }
}

/// A header that points nowhere.
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

/// Asks to be told which of our addresses each datagram was for.
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
    /// Room for one.
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

    /// A datagram, who sent it, and where the reply to it goes; none when it was longer than any should be, or came
    /// from nowhere.
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
    /// Keeps the address that was asked and forgets through which interface: the way back is the routing's to find.
    /// Only addresses of a link mean nothing without it. What is not understood is not sent back.
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

/// Keeps this thread on one of the processors that it may use, counted from 0 and round again.
///
/// # Errors
/// When the kernel refuses; the thread runs all the same.
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

    /// Answers each datagram with its bytes backwards until it is shut.
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
        // Connected: a reply from another address than the one asked would not arrive.
        client.connect(to).expect("a way there");
        client
    }

    #[test]
    fn datagrams_are_answered_from_the_address_that_was_asked() {
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
    fn a_reply_may_come_later_and_what_is_too_long_is_not_looked_at() {
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
    fn several_may_share_an_address() {
        let first = Socket::bind("127.0.0.1:0".parse().expect("an address"), 1 << 16).expect("a socket");
        let second = Socket::bind(first.local(), 1 << 16).expect("the same");
        assert_eq!(first.local(), second.local());
        std::thread::spawn(|| pin(1)).join().expect("it ended").expect("pinned");
    }
}
