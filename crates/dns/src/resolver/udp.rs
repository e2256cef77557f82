//! Upstream queries over UDP.
//!
//! In: a query and an address. Out: the reply message. Each query has its own socket, and so a random source port, a
//! random id and a connected peer; replies that do not match all of these and the question are ignored (RFC 5452).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::UdpSocket;

use super::message::{Outgoing, u16_at};

/// Number of mismatched replies after which the query is retried over TCP.
const MAX_MISMATCHED: usize = 32;

/// Result of a UDP query.
#[derive(Debug)]
pub(super) enum UdpResult {
    /// Matching reply.
    Answer(Vec<u8>),
    /// Too many mismatched replies.
    Mismatched,
}

/// Sends one query. The caller sets the timeout.
pub(super) async fn query(to: SocketAddr, outgoing: &Outgoing, edns: bool) -> io::Result<UdpResult> {
    let local = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(to).await?;
    let id = random_id()?;
    socket.send(&outgoing.message(id, edns)).await?;
    let mut buffer = vec![0; 4096];
    for _ in 0..MAX_MISMATCHED {
        let length = socket.recv(&mut buffer).await?;
        let message = &buffer[..length];
        if u16_at(message, 0) == Some(id) && outgoing.is_answered_by(message) {
            buffer.truncate(length);
            return Ok(UdpResult::Answer(buffer));
        }
    }
    Ok(UdpResult::Mismatched)
}

/// Unpredictable message id.
pub(super) fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("failed to read random bytes"))?;
    Ok(u16::from_be_bytes(bytes))
}
