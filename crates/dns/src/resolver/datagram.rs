//! One question by UDP.
//!
//! In: a question and where to send it. Out: the bytes of the answer. Each question has a socket, and so a port, of its own,
//! an unpredictable id, and a connected peer: an answer counts only when all of them and the question fit. Others are not
//! looked at, so whoever guesses wrong cannot even make us give up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::net::UdpSocket;

use super::message::{Outgoing, u16_at};

/// Wrong answers after which a question is being attacked and goes by TCP.
const MAX_WRONG: usize = 32;

/// What came of a question.
#[derive(Debug)]
pub(super) enum Datagram {
    /// An answer.
    Answer(Vec<u8>),
    /// Too many that were not.
    Attacked,
}

/// Asks once. The caller limits the time.
pub(super) async fn ask(to: SocketAddr, outgoing: &Outgoing, edns: bool) -> io::Result<Datagram> {
    let local = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(to).await?;
    let id = random_id()?;
    socket.send(&outgoing.message(id, edns)).await?;
    let mut buffer = vec![0; 4096];
    for _ in 0..MAX_WRONG {
        let length = socket.recv(&mut buffer).await?;
        let message = &buffer[..length];
        if u16_at(message, 0) == Some(id) && outgoing.is_answered_by(message) {
            buffer.truncate(length);
            return Ok(Datagram::Answer(buffer));
        }
    }
    Ok(Datagram::Attacked)
}

/// An id that nobody can guess.
pub(super) fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(u16::from_be_bytes(bytes))
}
