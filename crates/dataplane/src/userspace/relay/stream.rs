//! Carries bytes between two TCP connections, both ways, until both ends have said all they had to say.
//!
//! The end of one direction is passed on and leaves the other open. When one side breaks, the other is broken too, so that
//! nobody takes half of something for the whole.
//!
//! A little is copied, which is cheaper than two calls for a pipe; much goes through a pipe and never leaves the kernel.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::pipes::Pipes;

/// More than this is much.
const LITTLE: usize = 16 << 10;

thread_local! {
    /// Where a little is between two sockets: never longer than one call, so each thread needs only one.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; LITTLE].into());
}

/// Carries everything.
pub(super) async fn carry(client: TcpStream, server: TcpStream, pipes: &Pipes) {
    let ended = AtomicBool::new(false);
    let (there, back) = (one_way(&client, &server, pipes, &ended), one_way(&server, &client, pipes, &ended));
    let both = tokio::try_join!(there, back);
    if both.is_err() {
        reset(&client);
        reset(&server);
    }
}

/// Has a connection end, when it is dropped, as one that is broken.
pub(super) fn reset(connection: &TcpStream) {
    // One that is gone already needs no telling.
    let _ = set_socket_linger(connection, Some(Duration::ZERO));
}

/// Carries everything in one direction, and its end: when the other direction has ended too, both are closed, which says it.
async fn one_way(from: &TcpStream, to: &TcpStream, pipes: &Pipes, ended: &AtomicBool) -> io::Result<()> {
    let end = || if ended.swap(true, Ordering::Relaxed) { Ok(()) } else { end(to) };
    loop {
        from.readable().await?;
        match sip(from, to) {
            Ok(Sip::Nothing) => return end(),
            Ok(Sip::Little) => continue,
            Ok(Sip::Left(rest)) => pour(&rest, to).await?,
            Ok(Sip::Much) => {}
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        }
        let mut vessel = pipes.take();
        loop {
            match from.try_io(Interest::READABLE, || vessel.fill(from)) {
                Ok(0) => return end(),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(error),
            }
            while !vessel.is_empty() {
                to.async_io(Interest::WRITABLE, || vessel.pour(to)).await?;
            }
        }
    }
}

/// What came of a first taste.
enum Sip {
    /// The end.
    Nothing,
    /// All there was, and it was passed on.
    Little,
    /// There is more where that came from.
    Much,
    /// The other side did not take all of it.
    Left(Vec<u8>),
}

/// Takes a little and passes it on at once.
fn sip(from: &TcpStream, to: &TcpStream) -> io::Result<Sip> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut taken = 0;
        let outcome = from.try_io(Interest::READABLE, || {
            taken = rustix::io::read(from, &mut **buffer)?;
            // Less than there was room for is all there is: the next byte is announced anew, and needs no asking.
            if (1..LITTLE).contains(&taken) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (outcome, taken) {
            (Err(error), 0) => return Err(error),
            (_, 0) => return Ok(Sip::Nothing),
            _ => {}
        }
        let given = match rustix::net::send(to, &buffer[..taken], SendFlags::NOSIGNAL) {
            Ok(given) => given,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        Ok(match given == taken {
            false => Sip::Left(buffer[given..taken].to_vec()),
            true if taken == LITTLE => Sip::Much,
            true => Sip::Little,
        })
    })
}

/// Passes on what is left.
async fn pour(mut rest: &[u8], to: &TcpStream) -> io::Result<()> {
    while !rest.is_empty() {
        let send = || Ok(rustix::net::send(to, rest, SendFlags::NOSIGNAL)?);
        let given = to.async_io(Interest::WRITABLE, send).await?;
        rest = rest.get(given..).unwrap_or_default();
    }
    Ok(())
}

/// Whether it is worth trying again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn end(to: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(to, Shutdown::Write) {
        // It may have been closed from the other side, which knows then.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
