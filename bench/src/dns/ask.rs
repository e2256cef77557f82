//! Single questions over UDP, which alone say what a server knows.
//!
//! In: a name, and what it should lead to. Out: the moment the server said so. The reader here knows as much of DNS as these
//! questions need.
#![expect(clippy::disallowed_methods, reason = "between two looks at the world there must be a pause")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_millis(200);
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

/// Who asks.
pub struct Asker {
    socket: UdpSocket,
    id: u16,
}

/// Asks, from a thread of its own, until the answer is the wanted one.
pub struct Sentry {
    seen: JoinHandle<Option<Instant>>,
    enough: Arc<AtomicBool>,
    what: String,
}

// === impl Asker ===

impl Asker {
    /// Asks this server.
    ///
    /// # Errors
    /// When there is no socket for it.
    pub fn new(to: SocketAddr) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("a socket for questions")?;
        socket.set_read_timeout(Some(PATIENCE)).context("limiting the time of questions")?;
        socket.connect(to).context("a way to the server")?;
        Ok(Self { socket, id: 0 })
    }

    /// Asks for the addresses of a name; nothing when nobody answered.
    pub fn ask(&mut self, name: &str) -> Option<Answer> {
        self.id = self.id.wrapping_add(1);
        self.socket.send(&question(self.id, name)).ok()?;
        let (mut buffer, begun) = ([0; 4096], Instant::now());
        // An answer to an earlier question may be late.
        while begun.elapsed() < PATIENCE {
            let count = self.socket.recv(&mut buffer).ok()?;
            if buffer[..count].starts_with(&self.id.to_be_bytes()) {
                return read(&buffer[..count]);
            }
        }
        None
    }
}

// === impl Sentry ===

impl Sentry {
    /// Begins to ask, with so long a pause between two questions; returns after the first question. Without wanted addresses
    /// any answer will do.
    ///
    /// # Errors
    /// When it ends before.
    pub async fn post(
        to: SocketAddr,
        name: &str,
        wanted: Option<Vec<Ipv4Addr>>,
        pause: Duration,
    ) -> anyhow::Result<Self> {
        let mut asker = Asker::new(to)?;
        let what = format!("{name} leads to {wanted:?}");
        let (enough, name) = (Arc::new(AtomicBool::new(false)), name.to_owned());
        let (begun, has_begun) = oneshot::channel();
        let seen = tokio::task::spawn_blocking({
            let enough = Arc::clone(&enough);
            move || watch(&mut asker, &name, wanted.as_deref(), pause, &enough, begun)
        });
        has_begun.await.context("nobody asks")?;
        Ok(Self { seen, enough, what })
    }

    /// The moment of the first wanted answer.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn seen(mut self, patience: Duration) -> anyhow::Result<Instant> {
        match tokio::time::timeout(patience, &mut self.seen).await {
            Ok(seen) => seen.context("an asker")?.context("it was told to stop"),
            Err(_) => bail!("after {patience:?} it was not yet so that {}", self.what),
        }
    }

    /// Whether it has come.
    #[must_use]
    pub fn has_seen(&self) -> bool {
        self.seen.is_finished()
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

fn watch(
    asker: &mut Asker,
    name: &str,
    wanted: Option<&[Ipv4Addr]>,
    pause: Duration,
    enough: &AtomicBool,
    begun: oneshot::Sender<()>,
) -> Option<Instant> {
    let mut begun = Some(begun);
    while !enough.load(Ordering::Relaxed) {
        let answer = asker.ask(name);
        let at = Instant::now();
        // Whoever waits for the first question may have gone.
        let _ = begun.take().map(|begun| begun.send(()));
        if answer.is_some_and(|answer| wanted.is_none_or(|wanted| answer.addresses == wanted)) {
            return Some(at);
        }
        std::thread::sleep(pause);
    }
    None
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

/// Reads the addresses of an answer to one question.
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

/// Where the name that begins here ends.
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
