//! The client's side of an association.
//!
//! In: where to, and lines. Out: lines from there, or why there are none. Dropping it aborts the association, which also ends
//! what a node remembers of it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, bind, connect, getsockname, ipproto, recv, send};

use super::super::Family;
use super::super::failure::{Failure, Kind};
use super::super::icmp::{Ears, Flow};
use super::super::socket::{Source, open, wait, was_swallowed};
use super::NUMBER;
use super::packet::{Chunk, Init, Packet};

/// An established association.
#[derive(Debug)]
pub(in super::super) struct Association {
    socket: OwnedFd,
    ears: Ears,
    flow: Flow,
    own: Init,
    /// The tag of the other side; nothing before it has agreed.
    peer: Option<u32>,
    /// How many lines were sent.
    sent: u16,
    /// Received chunks that were not processed yet.
    waiting: VecDeque<Chunk>,
}

impl Association {
    /// Opens an association, and waits until it is established.
    pub(in super::super) fn open(source: Source, to: SocketAddr, deadline: Instant) -> Result<Self, Failure> {
        let mut new = Self::raw(source, to).map_err(|error| Failure::of("an SCTP association", &error))?;
        new.send(0, Chunk::Init(new.own))?;
        let cookie = new.wait_for("the answer to INIT", deadline, |chunk| match chunk {
            Chunk::InitAck(init, cookie) => Some((init, cookie)),
            _ => None,
        });
        let (init, cookie) = cookie.map_err(|failure| match failure.kind {
            // Before it is established, an abort is a refusal.
            Kind::Reset => Failure { kind: Kind::Refused, ..failure },
            _ => failure,
        })?;
        new.peer = Some(init.tag);
        new.send(init.tag, Chunk::CookieEcho(cookie))?;
        new.wait_for("the answer to COOKIE ECHO", deadline, |chunk| (chunk == Chunk::CookieAck).then_some(()))?;
        Ok(new)
    }

    /// A socket that receives from the peer; nothing was sent yet.
    fn raw(source: Source, to: SocketAddr) -> io::Result<Self> {
        let family = Family::of(to.ip());
        let ears = Ears::open(family)?;
        let socket = open(family, SocketType::RAW, Some(ipproto::SCTP))?;
        // Ports are filled in by us; raw sockets have none.
        if let Some(from) = source.for_family(family) {
            bind(&socket, &SocketAddr::new(from.ip(), 0))?;
        }
        connect(&socket, &SocketAddr::new(to.ip(), 0))?;
        let flow = Flow { protocol: NUMBER, source_port: source.port.unwrap_or_else(next_port), to };
        Ok(Self { socket, ears, flow, own: Init::random(), peer: None, sent: 0, waiting: VecDeque::new() })
    }

    /// Sends a line and waits for one.
    pub(in super::super) fn ask(&mut self, line: &[u8], deadline: Instant) -> Result<Vec<u8>, Failure> {
        let peer = self.peer.expect("it stands");
        let tsn = self.own.tsn.wrapping_add(u32::from(self.sent));
        self.send(peer, Chunk::Data { tsn, sequence: self.sent, payload: line.to_vec() })?;
        self.sent = self.sent.wrapping_add(1);
        let (tsn, payload) = self.wait_for("an answer", deadline, |chunk| match chunk {
            Chunk::Data { tsn, payload, .. } => Some((tsn, payload)),
            _ => None,
        })?;
        self.send(peer, Chunk::Sack { tsn })?;
        Ok(payload)
    }

    /// Its own end.
    pub(in super::super) fn local(&self) -> Option<SocketAddr> {
        let address: SocketAddr = getsockname(&self.socket).ok()?.try_into().ok()?;
        Some(SocketAddr::new(address.ip(), self.flow.source_port))
    }

    fn send(&self, tag: u32, chunk: Chunk) -> Result<(), Failure> {
        let (source, destination) = (self.flow.source_port, self.flow.to.port());
        let bytes = Packet { source, destination, tag, chunks: vec![chunk] }.encode();
        match send(&self.socket, &bytes, SendFlags::empty()).map_err(io::Error::from) {
            Ok(_) => Ok(()),
            Err(error) if was_swallowed(&error) => Ok(()),
            Err(error) => Err(Failure::of("sending", &error)),
        }
    }

    /// Waits for a chunk of this kind; others are passed over, an abort or an ICMP error ends the wait.
    fn wait_for<T>(
        &mut self,
        what: &str,
        deadline: Instant,
        wanted: impl Fn(Chunk) -> Option<T>,
    ) -> Result<T, Failure> {
        loop {
            while let Some(chunk) = self.waiting.pop_front() {
                if chunk == Chunk::Abort {
                    return Err(Failure::new(Kind::Reset, format!("{what}: ABORT")));
                }
                if let Some(found) = wanted(chunk) {
                    return Ok(found);
                }
            }
            let ready = wait(&[self.socket.as_fd(), self.ears.as_fd()], PollFlags::IN, deadline)
                .map_err(|error| Failure::of(what, &error))?;
            match ready {
                None => return Err(Failure::silence(what)),
                Some(0) => self.receive().map_err(|error| Failure::of(what, &error))?,
                Some(_) => {
                    let heard = self.ears.heard(self.flow).map_err(|error| Failure::of(what, &error))?;
                    heard.map_or(Ok(()), Err)?;
                }
            }
        }
    }

    /// Takes one packet from the socket, and keeps it when it is ours.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 2048];
        let length = match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
            Ok((length, _)) => length,
            // ICMP errors are reported to raw sockets too, but without the flow; the ICMP listener knows it.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED | Errno::NOPROTOOPT | Errno::HOSTUNREACH) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let Some(packet) = behind_ip(Family::of(self.flow.to.ip()), &buffer[..length]).and_then(Packet::decode) else {
            return Ok(());
        };
        let ours = packet.source == self.flow.to.port() && packet.destination == self.flow.source_port;
        if ours && packet.tag == self.own.tag {
            self.waiting.extend(packet.chunks);
        }
        Ok(())
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        if let Some(peer) = self.peer {
            // The peer may be gone.
            let _ = self.send(peer, Chunk::Abort);
        }
    }
}

/// The payload after the IP header, which a raw socket returns for IPv4 only.
pub(super) fn behind_ip(family: Family, bytes: &[u8]) -> Option<&[u8]> {
    match family {
        Family::V4 => bytes.get(usize::from(bytes.first()? & 0x0f) * 4..),
        Family::V6 => Some(bytes),
    }
}

/// A port that no other association of these tests has, as the kernel would choose one.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    32_768 + NEXT.fetch_add(1, Ordering::Relaxed) % 28_000
}
