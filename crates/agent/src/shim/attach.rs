//! Those who attach to a container: a socket in its folder, frames both ways.
//!
//! A frame is a kind (one byte), a length (four, the big end first) and that many bytes. To a client: what came from the container,
//! kind 1 or 2. From a client: input (0), the end of input (3), a size of the terminal (4: columns and lines, two bytes each). Whoever
//! reads too slowly is let go: the container never waits for anybody.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::event::{PollFd, PollFlags};

use super::log::Stream;
use super::{SOCKET, short_path};

/// Input.
pub const INPUT: u8 = 0;
/// The end of input.
pub const END_OF_INPUT: u8 = 3;
/// A size of the terminal.
pub const RESIZE: u8 = 4;

/// How much may wait for a client.
const PATIENCE: usize = 4 << 20;
/// How much input may wait for the container.
const WAITING: usize = 64 << 10;
/// The longest frame that is taken.
const LONGEST: usize = 1 << 20;

/// A frame.
#[must_use]
pub fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[kind], &length.to_be_bytes()[..], bytes].concat()
}

/// Takes the first frame out of what was read, when it is whole.
pub(crate) fn take_frame(read: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let (head, rest) = read.split_first_chunk::<5>()?;
    let [kind, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let body = rest.get(..length)?.to_vec();
    read.drain(..5 + length);
    Some((kind, body))
}

/// What the container reads.
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
                // Nobody reads it any more.
                Err(_) => self.to = None,
            }
        }
        if self.ends {
            self.to = None;
        }
    }

    /// The end of what one client has to say.
    fn end(&mut self) {
        // A terminal is not closed by whoever leaves it.
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

/// Everybody who is attached.
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

    /// What is waited for: newcomers, the input's room, then each client.
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

    /// Does what was waited for.
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

    /// Sends what came from the container to everybody.
    pub(super) fn send(&mut self, stream: Stream, bytes: &[u8]) {
        for client in &mut self.all {
            let kind = if stream == Stream::Out { 1 } else { 2 };
            client.write.extend(frame(kind, bytes));
            client.flush();
            client.gone |= client.write.len() > PATIENCE;
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
