//! Writes to nftables on a node, from the kernel's notifications: one for each rule, chain, set and element.
//!
//! Rules of iptables-legacy are not announced.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketType, bind, recv, socket};
use testbed::net::Node;

/// The group of nftables' announcements, as a mask.
const GROUP: u32 = 1 << 6;
/// The first byte of the type of its messages: whose they are.
const NFTABLES: u8 = 10;
/// The second one of the message that ends a transaction; it changes nothing.
const NEW_GENERATION: u8 = 15;
/// Room for the announcements of a large transaction.
const BUFFER: usize = 256 << 20;
/// The interval at which the thread checks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// Counts until it is dropped.
pub struct Writes {
    count: Arc<AtomicU64>,
    lost: Arc<AtomicBool>,
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writes {
    /// Starts counting on a node.
    ///
    /// # Errors
    /// When the kernel does not let us listen.
    pub fn count(node: &Node) -> anyhow::Result<Self> {
        let socket = node.in_namespace(open).context("listening to nftables")?;
        let (count, lost, enough) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default(), Arc::default());
        let thread = std::thread::Builder::new().name("writes".to_owned()).spawn({
            let (count, lost, enough) = (Arc::clone(&count), Arc::clone(&lost), Arc::clone(&enough));
            move || listen(&socket, &count, &lost, &enough)
        })?;
        Ok(Self { count, lost, enough, thread: Some(thread) })
    }

    /// Number of changes so far; a lower bound when notifications were lost.
    #[must_use]
    pub fn so_far(&self) -> u64 {
        if self.lost.load(Ordering::Relaxed) {
            eprintln!("the kernel announced more changes than could be counted");
        }
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn open() -> rustix::io::Result<OwnedFd> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER))?;
    set_socket_recv_buffer_size_force(&socket, BUFFER)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LOOK))?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
    Ok(socket)
}

fn listen(socket: &OwnedFd, count: &AtomicU64, lost: &AtomicBool, enough: &AtomicBool) {
    let mut buffer = vec![0_u8; 1 << 16];
    while !enough.load(Ordering::Relaxed) {
        match recv(socket.as_fd(), &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => drop(count.fetch_add(changes(&buffer[..length]), Ordering::Relaxed)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOBUFS) => lost.store(true, Ordering::Relaxed),
            Err(_) => return,
        }
    }
}

/// How many messages in a packet tell of a change.
fn changes(mut packet: &[u8]) -> u64 {
    let mut count = 0;
    // Length, type; what follows does not matter here.
    while let Some((length, kind)) = packet.get(..6).map(|head| {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        (length as usize, u16::from_ne_bytes([head[4], head[5]]).to_be_bytes())
    }) {
        count += u64::from(kind[0] == NFTABLES && kind[1] != NEW_GENERATION);
        match packet.get(length.next_multiple_of(4).max(16)..) {
            Some(rest) => packet = rest,
            None => break,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_and_the_end_of_a_transaction_is_none() {
        let message = |kind: u8, length: u32| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend((u16::from(NFTABLES) << 8 | u16::from(kind)).to_ne_bytes());
            bytes.resize(length.next_multiple_of(4) as usize, 0);
            bytes
        };
        let packet = [message(12, 21), message(12, 40), message(NEW_GENERATION, 32)].concat();
        assert_eq!((changes(&packet), changes(&packet[..50]), changes(&[])), (2, 2, 0));
    }
}
