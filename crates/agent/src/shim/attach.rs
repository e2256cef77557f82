//! Attach clients of a container: a socket in its directory, frames in both directions.
//!
//! A frame is a type (1 byte), a length (4 bytes, big endian) and the payload. To a client: stdout (1) and stderr (2). From a client: stdin (0), end
//! of stdin (3), terminal size (4: columns and rows, 2 bytes each). A client that reads too slowly is disconnected: the container never blocks on
//! a client.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{PollFd, PollFlags};

use super::log::Stream;
use super::{SOCKET, short_path};

/// Frame type: stdin.
pub const INPUT: u8 = 0;
/// Frame type: end of stdin.
pub const END_OF_INPUT: u8 = 3;
/// Frame type: terminal size.
pub const RESIZE: u8 = 4;

/// The output buffer of a client, in bytes; beyond it the client is disconnected.
const LOCK_TIMEOUT: usize = 4 << 20;
/// The input buffer of the container, in bytes.
const WAITING: usize = 64 << 10;
/// The longest frame from a client, in bytes.
const LONGEST: usize = 1 << 20;

/// Encodes a frame.
#[must_use]
pub fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[kind], &length.to_be_bytes()[..], bytes].concat()
}

/// Removes the first frame from the buffer, if it is complete.
pub(crate) fn take_frame(read: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (head, rest) = read.split_first_chunk::<5>()?;
    let [kind, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let body = rest.get(..length)?.to_vec();
    read.drain(..5 + length);
    Some((kind, body))
}

/// The stdin of the container.
pub(super) struct Input {
    to: Option<OwnedFd>,
    waiting: Vec<u8>,
    ends: bool,
    once: bool,
    terminal: bool,
}

impl Input {
    pub(super) fn new(to: Option<OwnedFd>, once: bool, terminal: bool) -> Self {
        Self { to, waiting: Vec::new(), ends: false, once, terminal }
    }

    fn push(&mut self) {
        while let Some(to) = self.to.as_ref().filter(|_| !self.waiting.is_empty()) {
            match rustix::io::write(to, &self.waiting) {
                Ok(length) => drop(self.waiting.drain(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                // The read end is closed.
                Err(_) => self.to = None,
            }
        }
        if self.ends {
            self.to = None;
        }
    }

    /// A client has closed its stdin.
    fn end(&mut self) {
        // A terminal stays open when a client disconnects.
        self.ends |= self.once && !self.terminal;
    }

    fn resize(&self, body: &[u8]) {
        if let (Some(terminal), [a, b, c, d]) = (self.to.as_ref().filter(|_| self.terminal), body) {
            let (ws_col, ws_row) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            let size = rustix::termios::Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = rustix::termios::tcsetwinsize(terminal, size);
        }
    }
}

struct Client {
    stream: UnixStream,
    read: Vec<u8>,
    write: Vec<u8>,
    wrote: bool,
    gone: bool,
}

/// All attached clients.
pub(super) struct Clients {
    listener: UnixListener,
    all: Vec<Client>,
}

impl Clients {
    pub(super) fn listen(folder: &Path) -> io::Result<Self> {
        let handle = std::fs::File::open(folder)?;
        let _ = std::fs::remove_file(folder.join(SOCKET));
        let listener = UnixListener::bind(short_path(&handle, SOCKET))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, all: Vec::new() })
    }

    /// Adds the file descriptors to poll: listener, stdin of the container, clients.
    pub(super) fn poll<'a>(&'a self, fds: &mut Vec<PollFd<'a>>, input: &'a Input) {
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        let full = input.waiting.len() >= WAITING;
        let waits = input.to.as_ref().filter(|_| !input.waiting.is_empty());
        fds.push(match waits {
            Some(to) => PollFd::new(to, PollFlags::OUT),
            None => PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::empty()),
        });
        for client in &self.all {
            let read = if full { PollFlags::empty() } else { PollFlags::IN };
            let write = if client.write.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&client.stream, read | write));
        }
    }

    /// Handles poll results.
    pub(super) fn turn(&mut self, ready: &[PollFlags], input: &mut Input) {
        let (before, ready) = ready.split_at_checked(2).unwrap_or_default();
        for (client, ready) in self.all.iter_mut().zip(ready) {
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                client.receive(input);
            }
            client.flush();
        }
        for gone in self.all.iter().filter(|client| client.gone && client.wrote) {
            let _ = gone;
            input.end();
        }
        self.all.retain(|client| !client.gone);
        input.push();
        if before.first().is_some_and(|ready| !ready.is_empty()) {
            while let Ok((stream, _)) = self.listener.accept() {
                if stream.set_nonblocking(true).is_ok() {
                    let (read, write) = (Vec::new(), Vec::new());
                    self.all.push(Client { stream, read, write, wrote: false, gone: false });
                }
            }
        }
    }

    /// Sends output of the container to all clients.
    pub(super) fn send(&mut self, stream: Stream, bytes: &[u8]) {
        for client in &mut self.all {
            let kind = if stream == Stream::Out { 1 } else { 2 };
            client.write.extend(frame(kind, bytes));
            client.flush();
            client.gone |= client.write.len() > LOCK_TIMEOUT;
        }
    }
}

impl Client {
    fn receive(&mut self, input: &mut Input) {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.gone = true,
            Ok(length) => self.read.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.gone = true,
        }
        while let Some((kind, body)) = take_frame(&mut self.read) {
            match kind {
                INPUT if input.to.is_some() => {
                    self.wrote = true;
                    input.waiting.extend(body);
                }
                END_OF_INPUT => {
                    self.wrote = false;
                    input.end();
                }
                RESIZE => input.resize(&body),
                _ => {}
            }
        }
        self.gone |= self.read.len() > LONGEST;
    }

    fn flush(&mut self) {
        while !self.write.is_empty() && !self.gone {
            match self.stream.write(&self.write) {
                Ok(length) => drop(self.write.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }
}
