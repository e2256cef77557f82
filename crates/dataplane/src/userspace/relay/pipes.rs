//! Pipes that splice data from socket to socket inside the kernel.
//!
//! A connection direction uses a pipe only while data is in flight, so idle connections have none. Pipes are pooled.
//! Where no pipe is available or the kernel cannot splice sockets, data is copied through a buffer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::net::TcpStream;

/// Requested pipe capacity in bytes.
const SIZE: usize = 256 << 10;
/// Buffer size in bytes.
const BUFFER: usize = 32 << 10;
/// Maximum number of unused pipes in the pool.
const SPARE: usize = 256;

/// A pool of pipes, shared by clones.
#[derive(Clone)]
pub(super) struct Pipes(Arc<Pool>);

struct Pool {
    most: usize,
    made: AtomicUsize,
    /// Whether the kernel cannot splice sockets.
    refused: AtomicBool,
    spare: Mutex<Vec<Pipe>>,
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

/// A pipe or buffer for data in flight.
pub(super) struct TransferBuffer {
    pool: Arc<Pool>,
    storage: Storage,
    /// Bytes in it.
    left: usize,
}

enum Storage {
    Pipe(Pipe),
    Buffer { bytes: Box<[u8]>, begin: usize },
    Nothing,
}

impl Pipes {
    /// A pool of at most this many pipes.
    pub(super) fn new(most: usize) -> Self {
        let (made, refused) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Pool { most, made, refused, spare: Mutex::default() }))
    }

    /// An empty transfer buffer.
    pub(super) fn take(&self) -> TransferBuffer {
        let spare = self.0.spare.lock().pop();
        let pipe = spare.or_else(|| self.0.make());
        let storage = pipe.map_or_else(|| Storage::Buffer { bytes: vec![0; BUFFER].into(), begin: 0 }, Storage::Pipe);
        TransferBuffer { pool: Arc::clone(&self.0), storage, left: 0 }
    }

    /// Disables pipes.
    #[cfg(test)]
    pub(super) fn refuse(&self) {
        self.0.refused.store(true, Ordering::Relaxed);
    }
}

impl Pool {
    fn make(&self) -> Option<Pipe> {
        if self.refused.load(Ordering::Relaxed) || self.made.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let Ok((out, into)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else {
            self.made.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // Above pipe-user-pages-soft the kernel keeps a smaller capacity, which works too.
        let _ = fcntl_setpipe_size(&into, SIZE);
        Some(Pipe { out, into })
    }
}

impl TransferBuffer {
    /// Whether nothing is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Reads from a socket into the empty buffer; 0 means end of stream.
    pub(super) fn read_from(&mut self, from: &TcpStream) -> io::Result<usize> {
        match &mut self.storage {
            Storage::Pipe(pipe) => match splice(from, None, &pipe.into, None, SIZE, FLAGS) {
                Err(Errno::INVAL | Errno::NOSYS) => Err(self.become_buffer()),
                taken => Ok(taken.inspect(|count| self.left = *count)?),
            },
            Storage::Buffer { bytes, begin } => {
                *begin = 0;
                let taken = rustix::io::read(from, &mut **bytes)?;
                self.left = taken;
                Ok(taken)
            }
            Storage::Nothing => Ok(0),
        }
    }

    /// Writes as much as the socket accepts.
    pub(super) fn write_to(&mut self, to: &TcpStream) -> io::Result<()> {
        let given = match &mut self.storage {
            Storage::Pipe(pipe) => splice(&pipe.out, None, to, None, self.left, FLAGS)?,
            Storage::Buffer { bytes, begin } => {
                let rest = bytes.get(*begin..*begin + self.left).unwrap_or_default();
                let given = rustix::net::send(to, rest, rustix::net::SendFlags::NOSIGNAL)?;
                *begin += given;
                given
            }
            Storage::Nothing => 0,
        };
        self.left = self.left.saturating_sub(given);
        if given == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    /// Falls back to copying, here and for all later transfers. The returned error means: try again.
    fn become_buffer(&mut self) -> io::Error {
        if !self.pool.refused.swap(true, Ordering::Relaxed) {
            tracing::info!("kernel cannot splice sockets; copying instead");
        }
        self.pool.made.fetch_sub(1, Ordering::Relaxed);
        self.storage = Storage::Buffer { bytes: vec![0; BUFFER].into(), begin: 0 };
        io::ErrorKind::Interrupted.into()
    }
}

const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

impl Drop for TransferBuffer {
    fn drop(&mut self) {
        let Storage::Pipe(pipe) = std::mem::replace(&mut self.storage, Storage::Nothing) else { return };
        let mut spare = self.pool.spare.lock();
        // A pipe with leftover data must not be reused.
        if self.left == 0 && spare.len() < SPARE {
            spare.push(pipe);
        } else {
            self.pool.made.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
