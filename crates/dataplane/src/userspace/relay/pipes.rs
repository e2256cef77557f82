//! What bytes are carried in on their way from socket to socket: pipes, so that they never leave the kernel.
//!
//! A direction of a connection has a vessel only while bytes are on their way, so ten thousand idle connections have none. Pipes
//! are used again and again. Where there are no more to be had, or a kernel does not let sockets be spliced, bytes are copied
//! through a buffer instead.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::net::TcpStream;

/// How much a pipe holds, if the kernel lets us.
const SIZE: usize = 256 << 10;
/// How much a buffer holds.
const BUFFER: usize = 32 << 10;
/// How many pipes are kept that nobody uses.
const SPARE: usize = 256;

/// All pipes. Clones share them.
#[derive(Clone)]
pub(super) struct Pipes(Arc<Kept>);

struct Kept {
    most: usize,
    made: AtomicUsize,
    /// Whether the kernel does not splice sockets.
    refused: AtomicBool,
    spare: Mutex<Vec<Pipe>>,
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

/// Bytes on their way.
pub(super) struct Vessel {
    kept: Arc<Kept>,
    hold: Hold,
    /// How many bytes are in it.
    left: usize,
}

enum Hold {
    Pipe(Pipe),
    Buffer { bytes: Box<[u8]>, begin: usize },
    Nothing,
}

impl Pipes {
    /// At most so many.
    pub(super) fn new(most: usize) -> Self {
        let (made, refused) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Kept { most, made, refused, spare: Mutex::default() }))
    }

    /// An empty vessel.
    pub(super) fn take(&self) -> Vessel {
        let spare = self.0.spare.lock().pop();
        let pipe = spare.or_else(|| self.0.make());
        let hold = pipe.map_or_else(|| Hold::Buffer { bytes: vec![0; BUFFER].into(), begin: 0 }, Hold::Pipe);
        Vessel { kept: Arc::clone(&self.0), hold, left: 0 }
    }

    /// None is used from now on.
    #[cfg(test)]
    pub(super) fn refuse(&self) {
        self.0.refused.store(true, Ordering::Relaxed);
    }
}

impl Kept {
    fn make(&self) -> Option<Pipe> {
        if self.refused.load(Ordering::Relaxed) || self.made.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let Ok((out, into)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // A user who has many gets smaller ones, which do as well.
        let _ = fcntl_setpipe_size(&into, SIZE);
        Some(Pipe { out, into })
    }
}

impl Vessel {
    /// Whether nothing is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Takes what a socket has, if nothing is in it; 0 is the end.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        match &mut self.hold {
            Hold::Pipe(pipe) => match splice(from, None, &pipe.into, None, SIZE, FLAGS) {
                Err(Errno::INVAL | Errno::NOSYS) => Err(self.become_buffer()),
                taken => Ok(taken.inspect(|count| self.left = *count)?),
            },
            Hold::Buffer { bytes, begin } => {
                *begin = 0;
                let taken = rustix::io::read(from, &mut **bytes)?;
                self.left = taken;
                Ok(taken)
            }
            Hold::Nothing => Ok(0),
        }
    }

    /// Gives a socket as much as it takes of what is in it.
    pub(super) fn pour(&mut self, to: &TcpStream) -> io::Result<()> {
        let given = match &mut self.hold {
            Hold::Pipe(pipe) => splice(&pipe.out, None, to, None, self.left, FLAGS)?,
            Hold::Buffer { bytes, begin } => {
                let rest = bytes.get(*begin..*begin + self.left).unwrap_or_default();
                let given = rustix::net::send(to, rest, rustix::net::SendFlags::NOSIGNAL)?;
                *begin += given;
                given
            }
            Hold::Nothing => 0,
        };
        self.left = self.left.saturating_sub(given);
        if given == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    /// Goes on with a buffer in the place of a pipe, as will all others; its error means: try again.
    fn become_buffer(&mut self) -> io::Error {
        if !self.kept.refused.swap(true, Ordering::Relaxed) {
            tracing::info!("this kernel does not splice sockets; bytes are copied instead");
        }
        self.kept.made.fetch_sub(1, Ordering::Relaxed);
        self.hold = Hold::Buffer { bytes: vec![0; BUFFER].into(), begin: 0 };
        io::ErrorKind::Interrupted.into()
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

impl Drop for Vessel {
    fn drop(&mut self) {
        let Hold::Pipe(pipe) = std::mem::replace(&mut self.hold, Hold::Nothing) else { return };
        let mut spare = self.kept.spare.lock();
        // Bytes that are left over belong to nobody else.
        if self.left == 0 && spare.len() < SPARE {
            spare.push(pipe);
        } else {
            self.kept.made.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
