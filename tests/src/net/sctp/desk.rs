//! The server side of associations: one server per address, for all its ports.
//!
//! In: packets for the address. Out: answers to lines on open ports, aborts for the rest, as a kernel with SCTP does.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{SocketType, bind, ipproto};
use tokio::net::UdpSocket;

use super::super::echo::line;
use super::super::{Family, socket};
use super::association::behind_ip;
use super::packet::{Chunk, Init, Packet};

/// The ports that are open, shared with the code that opens and closes them.
pub(in super::super) type Ports = Arc<Mutex<BTreeSet<u16>>>;

/// A client that returns it has received our tag; it need not contain more.
const COOKIE: &[u8] = b"waypost testbed";

/// A server for all ports of one address.
pub(in super::super) struct Desk {
    name: String,
    address: IpAddr,
    /// A raw socket; the type is that of the runtime for any socket that is not a stream.
    socket: UdpSocket,
    ports: Ports,
    peers: HashMap<(SocketAddr, u16), Peer>,
}

/// The peer.
struct Peer {
    /// The tag that packets to it must carry.
    tag: u32,
    /// How this side began.
    own: Init,
    /// How many lines it got.
    sent: u16,
}

impl Desk {
    /// Opens a socket in the namespace of this thread, which must also have entered the runtime that is to serve it.
    pub(in super::super) fn open(name: &str, address: IpAddr, ports: Ports) -> std::io::Result<Self> {
        let socket = socket::open(Family::of(address), SocketType::RAW, Some(ipproto::SCTP))?;
        bind(&socket, &SocketAddr::new(address, 0))?;
        Ok(Self {
            name: name.to_owned(),
            address,
            socket: UdpSocket::from_std(socket.into())?,
            ports,
            peers: HashMap::new(),
        })
    }

    /// Serves until it is dropped.
    pub(in super::super) async fn serve(mut self) {
        let mut buffer = [0; 2048];
        loop {
            // An error is news of a client that is gone.
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else { continue };
            let packet = behind_ip(Family::of(self.address), &buffer[..length]).and_then(Packet::decode);
            let Some(packet) = packet else { continue };
            for answer in self.hear(SocketAddr::new(from.ip(), packet.source), packet) {
                // A client that cannot be reached times out, and reports it.
                let _ = self.socket.send_to(&answer.encode(), SocketAddr::new(from.ip(), 0)).await;
            }
        }
    }

    /// What is to be answered to a packet.
    fn hear(&mut self, client: SocketAddr, packet: Packet) -> Vec<Packet> {
        let port = packet.destination;
        let answers = packet.chunks.into_iter().filter_map(|chunk| self.hear_chunk(client, port, packet.tag, chunk));
        let addressed = |(tag, chunks)| Packet { source: port, destination: client.port(), tag, chunks };
        answers.map(addressed).collect()
    }

    /// What is to be answered to a chunk, and the tag for it.
    fn hear_chunk(&mut self, client: SocketAddr, port: u16, tag: u32, chunk: Chunk) -> Option<(u32, Vec<Chunk>)> {
        let is_open = self.ports.lock().contains(&port);
        match chunk {
            Chunk::Init(init) if is_open => {
                let own = Init::random();
                self.peers.insert((client, port), Peer { tag: init.tag, own, sent: 0 });
                return Some((init.tag, vec![Chunk::InitAck(own, COOKIE.to_vec())]));
            }
            Chunk::Init(init) => return Some((init.tag, vec![Chunk::Abort])),
            _ => {}
        }
        // Packets to other ports are ignored, such as those for a client on this machine.
        let peer = self.peers.get_mut(&(client, port)).filter(|peer| peer.own.tag == tag)?;
        match chunk {
            Chunk::Abort => {
                self.peers.remove(&(client, port));
                None
            }
            _ if !is_open => Some((self.peers.remove(&(client, port))?.tag, vec![Chunk::Abort])),
            Chunk::CookieEcho(cookie) if cookie == COOKIE => Some((peer.tag, vec![Chunk::CookieAck])),
            Chunk::Data { tsn, .. } => {
                let payload = line(&self.name, client, SocketAddr::new(self.address, port)).into_bytes();
                let (own, sequence) = (peer.own.tsn.wrapping_add(u32::from(peer.sent)), peer.sent);
                peer.sent = peer.sent.wrapping_add(1);
                Some((peer.tag, vec![Chunk::Sack { tsn }, Chunk::Data { tsn: own, sequence, payload }]))
            }
            _ => None,
        }
    }
}
