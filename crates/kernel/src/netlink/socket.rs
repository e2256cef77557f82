//! A netlink socket.
//!
//! A socket belongs to the network namespace of the thread that opened it. Requests are processed while they are sent,
//! so after [`Socket::send`] the replies can be read at once; only [`Socket::ready`] blocks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recvfrom, sendto,
    socket_with,
};

use super::read::Meaning;
use super::{Message, Messages, Writer, flags};

/// Longer than any datagram of the kernel: the longest is an error that repeats our message.
const DATAGRAM: usize = 128 * 1024;
/// How often an interrupted dump is repeated.
const ATTEMPTS: usize = 50;

/// Requests sent at once: their replies must fit into the receive buffer.
const ORDERS: usize = 256;

/// A netlink socket.
pub(crate) struct Socket {
    fd: OwnedFd,
    port: u32,
    sequence: u32,
    send_buffer: usize,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket and subscribes to these groups (a mask). `room` is the size of the receive buffer in bytes.
    pub(crate) fn open(protocol: Option<Protocol>, groups: u32, room: usize) -> Result<Self, Errno> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        // Without CAP_NET_ADMIN the normal limit applies.
        sockopt::set_socket_recv_buffer_size_force(&fd, room)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&fd, room))?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        let port = SocketAddrNetlink::try_from(getsockname(&fd)?)?.pid();
        Ok(Self { fd, port, sequence: 0, send_buffer: 0, buffer: vec![0; DATAGRAM] })
    }

    /// Port ID of this socket.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// Reserves sequence numbers; returns the first.
    pub(crate) fn sequences(&mut self, count: u32) -> u32 {
        // Zero marks unsolicited messages; numbers are not reused while replies may be pending.
        let first = self.sequence.checked_add(1).filter(|first| first.checked_add(count).is_some()).unwrap_or(1);
        self.sequence = first + count - 1;
        first
    }

    /// Sends messages in one datagram.
    pub(crate) fn send(&mut self, messages: &[u8]) -> Result<(), Errno> {
        // The send buffer must be larger than the datagram.
        let wanted = messages.len() + 4096;
        if wanted > self.send_buffer {
            sockopt::set_socket_send_buffer_size_force(&self.fd, wanted)
                .or_else(|_| sockopt::set_socket_send_buffer_size(&self.fd, wanted))?;
            self.send_buffer = wanted;
        }
        loop {
            match sendto(&self.fd, messages, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The next datagram of the kernel, if any.
    pub(crate) fn receive(&mut self) -> Result<Option<&[u8]>, Errno> {
        loop {
            match recvfrom(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, length, _)) if length > self.buffer.len() => return Err(Errno::MSGSIZE),
                // Ignore datagrams of other processes.
                Ok((_, length, from)) => match from.map(SocketAddrNetlink::try_from) {
                    Some(Ok(sender)) if sender.pid() == 0 => return Ok(self.buffer.get(..length)),
                    _ => {}
                },
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Waits until a datagram can be received. False after the timeout.
    pub(crate) fn ready(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Sends one request and passes its replies to `each`.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        extra: u16,
        body: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<(), Errno> {
        let sequence = self.sequences(1);
        let mut writer = Writer::default();
        writer.message(kind, flags::REQUEST | flags::ACK | extra, sequence, body);
        self.send(&writer.finish()?)?;
        self.answers(sequence, &mut each).map(|_| ())
    }

    /// Sends many requests of one type, a few hundred at a time. Each succeeds or fails by itself; failures are
    /// returned with their index.
    pub(crate) fn orders(
        &mut self,
        kind: u16,
        extra: u16,
        count: usize,
        body: impl Fn(&mut Writer, usize),
    ) -> Result<Vec<(usize, Errno)>, Errno> {
        let mut refused = Vec::new();
        let mut done = 0;
        while done < count {
            let some = (count - done).min(ORDERS);
            let first = self.sequences(u32::try_from(some).map_err(|_| Errno::TOOBIG)?);
            let mut writer = Writer::default();
            for (place, sequence) in (done..done + some).zip(first..) {
                writer.message(kind, flags::REQUEST | flags::ACK | extra, sequence, |w| body(w, place));
            }
            self.send(&writer.finish()?)?;
            let mut open = some;
            while open > 0 {
                let Some(datagram) = self.receive()? else { return Err(Errno::PROTO) };
                for message in Messages::new(datagram) {
                    let Some(place) = message.sequence.checked_sub(first).and_then(|place| usize::try_from(place).ok())
                    else {
                        continue;
                    };
                    match message.meaning() {
                        _ if place >= some => continue,
                        Meaning::Content => continue,
                        Meaning::End => {}
                        Meaning::Failure(errno) => refused.push((done + place, errno)),
                    }
                    open = open.saturating_sub(1);
                }
            }
            done += some;
        }
        Ok(refused)
    }

    /// Dumps all objects of a type. `begin` is called before each attempt, to discard the results of an interrupted
    /// one; `each` gets every message.
    pub(crate) fn dump<State>(
        &mut self,
        state: &mut State,
        kind: u16,
        body: impl Fn(&mut Writer),
        begin: impl Fn(&mut State),
        each: impl Fn(&mut State, &Message<'_>),
    ) -> Result<(), Errno> {
        for _ in 0..ATTEMPTS {
            begin(state);
            let sequence = self.sequences(1);
            let mut writer = Writer::default();
            writer.message(kind, flags::REQUEST | flags::DUMP, sequence, &body);
            self.send(&writer.finish()?)?;
            match self.answers(sequence, &mut |message| each(state, message)) {
                Ok(false) => return Ok(()),
                Ok(true) | Err(Errno::INTR) => {}
                Err(errno) => {
                    self.drain();
                    return Err(errno);
                }
            }
        }
        Err(Errno::INTR)
    }

    /// Reads the replies to a request. True when they were interrupted by changes.
    fn answers(&mut self, sequence: u32, each: &mut dyn FnMut(&Message<'_>)) -> Result<bool, Errno> {
        let mut interrupted = false;
        loop {
            let Some(datagram) = self.receive()? else { return Err(Errno::PROTO) };
            for message in Messages::new(datagram).filter(|message| message.sequence == sequence) {
                interrupted |= message.flags & flags::INTERRUPTED != 0;
                match message.meaning() {
                    Meaning::Content => each(&message),
                    Meaning::End => return Ok(interrupted),
                    Meaning::Failure(errno) => return Err(errno),
                }
            }
        }
    }

    /// Discards replies of earlier requests. Reading also completes an unfinished dump, without which the kernel would
    /// accept no other.
    pub(crate) fn drain(&mut self) {
        let mut failures = 0;
        while failures < ATTEMPTS {
            match self.receive() {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => failures += 1,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
