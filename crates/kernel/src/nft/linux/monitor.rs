//! Hearing of changes that others make to our tables, as they are made.
//!
//! The kernel tells every listener of every change, with the socket that made it. Ours are left out by that number. What
//! comes in one go is told as one touch for each family, so that a flushed ruleset is one message and not a thousand.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::netlink;

use super::decode;
use super::numbers::{GROUP, HEADER, SUBSYSTEM, message, table};
use crate::Family;
use crate::netlink::{Message, Messages, Socket};
use crate::nft::{Monitor, NftError, Touch};

/// How many bytes of messages the kernel may keep while nobody reads. A whole table of ours, written at once, has to fit.
const ROOM: usize = 128 << 20;

/// Hears of changes to one table, in both families, in the network namespace that it was opened in.
pub struct Watcher {
    socket: Socket,
    table: String,
    own: u32,
    heard: VecDeque<Touch>,
}

impl Watcher {
    /// Begins to listen. `own` is the number of the socket whose changes are ours ([`super::Linux::portid`]).
    ///
    /// # Errors
    /// When there is no socket to be had, or listening is not allowed.
    pub fn open(table: &str, own: u32) -> Result<Self, NftError> {
        let socket = Socket::open(Some(netlink::NETFILTER), GROUP, ROOM);
        let socket = socket.map_err(|errno| NftError::new("listening for changes", errno))?;
        Ok(Self { socket, table: table.to_owned(), own, heard: VecDeque::new() })
    }

    /// Reads everything that has been said so far.
    fn hear(&mut self) -> Result<(), NftError> {
        let mut touched = [None; 2];
        loop {
            let datagram = match self.socket.receive() {
                Ok(Some(datagram)) => datagram,
                Ok(None) => break,
                Err(Errno::NOBUFS) => {
                    self.heard.push_back(Touch::Unknown);
                    continue;
                }
                Err(errno) => return Err(NftError::new("listening for changes", errno)),
            };
            for told in Messages::new(datagram).filter(|told| told.port != self.own) {
                for (slot, family) in touched.iter_mut().zip(Family::ALL) {
                    if let Some(touch) = touch(&told, family, &self.table) {
                        *slot = Some(touch);
                    }
                }
            }
        }
        self.heard.extend(touched.into_iter().flatten());
        Ok(())
    }
}

/// What a message tells of a table.
fn touch(told: &Message<'_>, family: Family, name: &str) -> Option<Touch> {
    let kind = told.kind ^ SUBSYSTEM << 8;
    // Every message about something in a table names the table in the same attribute.
    let ours = || decode::family(told) == Some(family) && told.attributes(HEADER).text(table::NAME) == Some(name);
    match kind {
        message::NEW_GENERATION | message::TRACE => None,
        message::DELETE_TABLE => ours().then_some(Touch::Deleted(family)),
        0..256 => ours().then_some(Touch::Changed(family)),
        _ => None,
    }
}

impl Monitor for Watcher {
    fn wait(&mut self, patience: Option<Duration>) -> Result<Option<Touch>, NftError> {
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        loop {
            if let Some(touch) = self.heard.pop_front() {
                return Ok(Some(touch));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.socket.ready(left).map_err(|errno| NftError::new("listening for changes", errno))?;
            self.hear()?;
            if self.heard.is_empty() && left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
