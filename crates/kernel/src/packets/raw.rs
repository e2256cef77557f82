//! Packet sockets through libc: there are no safe calls for their addresses.
//!
//! In: an EtherType. Out: a socket that receives it on all interfaces of the network namespace, frames with their
//! interface, and sent frames. What the kernel writes is read at fixed offsets; no length is trusted.

#![allow(unsafe_code, reason = "no safe call carries the interface of a frame, sets a filter, or reads CLOCK_BOOTTIME")]

use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

/// Do not receive our own frames.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Packet type of outgoing frames, for kernels without the option above.
const OUTGOING: u8 = 4;

/// A BPF instruction: code, jump if true, jump if false, operand.
pub(super) type Step = (u16, u8, u8, u32);

/// Opens a socket for an EtherType and a filter; an empty filter accepts everything.
pub(super) fn open(kind: u16, filter: &[Step]) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers are passed.
    let raw = unsafe { libc::socket(libc::AF_PACKET, flags, i32::from(kind.to_be())) };
    if raw < 0 {
        return Err(last());
    }
    // SAFETY: the kernel has just given us this descriptor, and nothing else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let steps: Vec<libc::sock_filter> =
        filter.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    if !steps.is_empty() {
        let program = libc::sock_fprog {
            len: u16::try_from(steps.len()).map_err(|_| Errno::TOOBIG)?,
            filter: steps.as_ptr().cast_mut(),
        };
        set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    }
    // Older kernels lack it: outgoing frames are skipped when received.
    let _ = set(&fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32);
    Ok(fd)
}

fn set<T>(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &T) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the descriptor is open; pointer and length are those of `value`, which outlives the call, as does the filter that one of
    // the values points to: the kernel copies it.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if done == 0 { Ok(()) } else { Err(last()) }
}

/// Receives a frame: its length and interface. None when there is none.
pub(super) fn receive(fd: impl AsFd, buffer: &mut [u8]) -> Result<Option<(usize, u32)>, Errno> {
    loop {
        // SAFETY: all its members are numbers, for which zero is a value.
        let mut from: libc::sockaddr_ll = unsafe { zeroed() };
        let mut length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(|_| Errno::INVAL)?;
        // SAFETY: the descriptor is open while it is borrowed; both pointers point to memory that is exclusively ours and has the length
        // given beside it.
        let taken = unsafe {
            libc::recvfrom(
                fd.as_fd().as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
                (&raw mut from).cast(),
                &raw mut length,
            )
        };
        match usize::try_from(taken) {
            Ok(_) if from.sll_pkttype == OUTGOING => {}
            Ok(taken) => return Ok(Some((taken, u32::try_from(from.sll_ifindex).unwrap_or(0)))),
            Err(_) => match last() {
                Errno::AGAIN => return Ok(None),
                // An interface went down: reported once.
                Errno::INTR | Errno::NETDOWN => {}
                errno => return Err(errno),
            },
        }
    }
}

/// Sends a frame on an interface.
pub(super) fn send(fd: impl AsFd, interface: u32, frame: &[u8]) -> Result<(), Errno> {
    // SAFETY: all its members are numbers, for which zero is a value.
    let mut to: libc::sockaddr_ll = unsafe { zeroed() };
    to.sll_family = u16::try_from(libc::AF_PACKET).map_err(|_| Errno::INVAL)?;
    to.sll_ifindex = i32::try_from(interface).map_err(|_| Errno::NODEV)?;
    to.sll_halen = 6;
    let (Some(mac), Some(kind)) = (frame.first_chunk::<6>(), frame.get(12..14)) else { return Err(Errno::INVAL) };
    to.sll_addr[..6].copy_from_slice(mac);
    to.sll_protocol = kind.first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the descriptor is open while it is borrowed; both pointers point to memory that outlives the call and has the length given
    // beside it.
    let sent = unsafe {
        libc::sendto(
            fd.as_fd().as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            libc::MSG_DONTWAIT,
            (&raw const to).cast(),
            length,
        )
    };
    if sent < 0 { Err(last()) } else { Ok(()) }
}

/// Time since boot, including suspend.
pub(super) fn since_start() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer leads to `now`, which outlives the call. It cannot fail: every kernel of the last fifteen years has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
