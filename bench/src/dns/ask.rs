//! Single queries over UDP, which show the state of a server.
//!
//! In: a name, and the expected address. Out: the time at which the server returned it. The parser here implements only as
//! much of DNS as these queries need.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::sentry::Sentry;

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_millis(200);
/// The type of addresses.
const A: u16 = 1;

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The code.
    pub code: u8,
    /// The addresses, sorted.
    pub addresses: Vec<Ipv4Addr>,
}

/// The client.
pub struct Asker {
    socket: UdpSocket,
    id: u16,
}

impl Asker {
    /// A client of this server.
    ///
    /// # Errors
    /// When there is no socket for it.
    pub fn new(to: SocketAddr) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a socket for questions")?;
        socket.set_read_timeout(Some(TIMEOUT)).context("limiting the time of questions")?;
        socket.connect(to).context("a way to the server")?;
        Ok(Self { socket, id: 0 })
    }

    /// Queries the addresses of a name; none when there was no response.
    pub fn ask(&mut self, name: &str) -> Option<Answer> {
        self.id = self.id.wrapping_add(1);
        self.socket.send(&question(self.id, name)).ok()?;
        let (mut buffer, begun) = ([0; 4096], Instant::now());
        // The response to an earlier query may be late.
        while begun.elapsed() < TIMEOUT {
            let count = self.socket.recv(&mut buffer).ok()?;
            if buffer[..count].starts_with(&self.id.to_be_bytes()) {
                return read(&buffer[..count]);
            }
        }
        None
    }
}

/// Starts querying, from a separate thread, until the answer is the wanted one; without wanted addresses any answer is
/// accepted.
///
/// # Errors
/// When it ends before its first query.
pub async fn post(
    to: SocketAddr,
    name: &str,
    wanted: Option<Vec<Ipv4Addr>>,
    pause: Duration,
) -> anyhow::Result<Sentry> {
    let (mut asker, name) = (Asker::new(to)?, name.to_owned());
    let what = format!("{name} leads to {wanted:?}");
    let is_so = move || {
        let answer = asker.ask(&name);
        answer.is_some_and(|answer| wanted.as_ref().is_none_or(|wanted| answer.addresses == *wanted))
    };
    Sentry::post(what, pause, move |watch| watch.until(is_so)).await
}

fn question(id: u16, name: &str) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    // Recursion desired, one question.
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend([A.to_be_bytes(), [0, 1]].concat());
    out
}

/// Parses the addresses of a response to one question.
fn read(message: &[u8]) -> Option<Answer> {
    let number = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let (code, count) = (message.get(3)? & 15, number(6)?);
    let mut at = after_name(message, 12)? + 4;
    let mut addresses = Vec::new();
    for _ in 0..count {
        at = after_name(message, at)?;
        let (kind, length) = (number(at)?, usize::from(number(at + 8)?));
        let data = message.get(at + 10..at + 10 + length)?;
        if let (A, Ok(octets)) = (kind, <[u8; 4]>::try_from(data)) {
            addresses.push(Ipv4Addr::from(octets));
        }
        at += 10 + length;
    }
    addresses.sort_unstable();
    Some(Answer { code, addresses })
}

/// The end offset of the name that starts here.
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match message.get(at)? {
            0 => return Some(at + 1),
            192.. => return Some(at + 2),
            length => at += 1 + usize::from(*length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_whatever_else_is_there() {
        let mut message = question(7, "web.ns");
        message[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 2]);
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 5, 0, 2, 0xc0, 12]);
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 0, 0, 9]);
        assert_eq!(read(&message), Some(Answer { code: 0, addresses: vec![Ipv4Addr::new(10, 0, 0, 9)] }));
        assert_eq!(read(&message[..message.len() - 1]), None);
        assert_eq!(read(&[]), None);
    }
}
