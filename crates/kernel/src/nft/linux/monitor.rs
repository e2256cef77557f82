//! Monitors changes of our tables by other programs.
//!
//! The kernel sends every change to all listeners, with the port ID of its socket; our own are filtered out by that.
//! Changes received together are reported as one touch per family, so that a flushed ruleset is one event and not a
//! thousand.

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

/// Receive buffer in bytes. A complete table, written at once, must fit.
const RECEIVE_BUFFER: usize = 128 << 20;

/// Monitors one table in both families, in the current network namespace.
pub struct Watcher {
    socket: Socket,
    table: String,
    own: u32,
    pending: VecDeque<Touch>,
}

impl Watcher {
    /// Opens the monitor. `own` is the port ID of our socket ([`super::Linux::portid`]).
    ///
    /// # Errors
    /// When the socket or the subscription is refused.
    pub fn open(table: &str, own: u32) -> Result<Self, NftError> {
        let socket = Socket::open(Some(netlink::NETFILTER), GROUP, RECEIVE_BUFFER);
        let socket = socket.map_err(|errno| NftError::new("listening for changes", errno))?;
        Ok(Self { socket, table: table.to_owned(), own, pending: VecDeque::new() })
    }

    /// Reads all pending messages.
    fn receive(&mut self) -> Result<(), NftError> {
        let mut touched = [None; 2];
        loop {
            let datagram = match self.socket.receive() {
                Ok(Some(datagram)) => datagram,
                Ok(None) => break,
                Err(Errno::NOBUFS) => {
                    self.pending.push_back(Touch::Unknown);
                    continue;
                }
                Err(errno) => return Err(NftError::new("listening for changes", errno)),
            };
            for message in Messages::new(datagram).filter(|message| message.port != self.own) {
                for (slot, family) in touched.iter_mut().zip(Family::ALL) {
                    if let Some(touch) = touch(&message, family, &self.table) {
                        *slot = Some(touch);
                    }
                }
            }
        }
        self.pending.extend(touched.into_iter().flatten());
        Ok(())
    }
}

/// What a message means for a table.
fn touch(message: &Message<'_>, family: Family, name: &str) -> Option<Touch> {
    let kind = message.kind ^ SUBSYSTEM << 8;
    // All messages about objects in a table have its name in the same attribute.
    let ours = || decode::family(message) == Some(family) && message.attributes(HEADER).text(table::NAME) == Some(name);
    match kind {
        message::NEW_GENERATION | message::TRACE => None,
        message::DELETE_TABLE => ours().then_some(Touch::Deleted(family)),
        0..256 => ours().then_some(Touch::Changed(family)),
        _ => None,
    }
}

impl Monitor for Watcher {
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Touch>, NftError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(touch) = self.pending.pop_front() {
                return Ok(Some(touch));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.socket.ready(left).map_err(|errno| NftError::new("listening for changes", errno))?;
            self.receive()?;
            if self.pending.is_empty() && left.is_some_and(|left| left.is_zero()) {
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
