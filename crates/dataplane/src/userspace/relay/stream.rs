//! Copies data between two TCP connections in both directions until both are closed.
//!
//! A half-close is passed on and leaves the other direction open. When one side is reset, so is the other, so that
//! truncated data is never taken for complete.
//!
//! Small amounts are copied through a buffer, which is cheaper than two splice calls; larger ones are spliced through a
//! pipe.

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

/// Buffer size for copying; more is spliced.
const COPY_SIZE: usize = 16 << 10;

thread_local! {
    /// Copy buffer. Used only within one call, so one per thread is enough.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; COPY_SIZE].into());
}

/// Copies in both directions, until both are closed or `cut` is ready: then both connections are reset.
pub(super) async fn carry_until(client: TcpStream, server: TcpStream, pipes: &Pipes, cut: impl Future<Output = ()>) {
    let ended = AtomicBool::new(false);
    let both = async {
        let (there, back) = (one_way(&client, &server, pipes, &ended), one_way(&server, &client, pipes, &ended));
        tokio::try_join!(there, back).is_ok()
    };
    let is_complete = tokio::select! {
        is_complete = both => is_complete,
        () = cut => false,
    };
    if !is_complete {
        reset(&client);
        reset(&server);
    }
}

/// Makes a connection send RST when it is dropped.
pub(super) fn reset(connection: &TcpStream) {
    // Fails only for a connection that is already closed.
    let _ = set_socket_linger(connection, Some(Duration::ZERO));
}

/// Copies one direction and its end. When the other direction has ended too, dropping both sockets closes them.
async fn one_way(from: &TcpStream, to: &TcpStream, pipes: &Pipes, ended: &AtomicBool) -> io::Result<()> {
    let end = || if ended.swap(true, Ordering::Relaxed) { Ok(()) } else { end(to) };
    loop {
        from.readable().await?;
        match copy_once(from, to) {
            Ok(Copied::Eof) => return end(),
            Ok(Copied::All) => continue,
            Ok(Copied::Unsent(rest)) => send_all(&rest, to).await?,
            Ok(Copied::Full) => {}
            Err(error) if is_transient(&error) => continue,
            Err(error) => return Err(error),
        }
        let mut buffer = pipes.take();
        loop {
            match from.try_io(Interest::READABLE, || buffer.read_from(from)) {
                Ok(0) => return end(),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
            while !buffer.is_empty() {
                to.async_io(Interest::WRITABLE, || buffer.write_to(to)).await?;
            }
        }
    }
}

/// Result of [`copy_once`].
enum Copied {
    /// End of stream.
    Eof,
    /// Everything available was forwarded.
    All,
    /// The buffer was full: more data is available.
    Full,
    /// The receiver did not accept all of it.
    Unsent(Vec<u8>),
}

/// Reads once and forwards at once.
fn copy_once(from: &TcpStream, to: &TcpStream) -> io::Result<Copied> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut taken = 0;
        let outcome = from.try_io(Interest::READABLE, || {
            taken = rustix::io::read(from, &mut **buffer)?;
            // A short read means that the socket is empty: readiness is signalled again, and no second read is needed.
            if (1..COPY_SIZE).contains(&taken) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (outcome, taken) {
            (Err(error), 0) => return Err(error),
            (_, 0) => return Ok(Copied::Eof),
            _ => {}
        }
        let given = match rustix::net::send(to, &buffer[..taken], SendFlags::NOSIGNAL) {
            Ok(given) => given,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        Ok(match given == taken {
            false => Copied::Unsent(buffer[given..taken].to_vec()),
            true if taken == COPY_SIZE => Copied::Full,
            true => Copied::All,
        })
    })
}

/// Sends the rest of a buffer.
async fn send_all(mut rest: &[u8], to: &TcpStream) -> io::Result<()> {
    while !rest.is_empty() {
        let send = || Ok(rustix::net::send(to, rest, SendFlags::NOSIGNAL)?);
        let given = to.async_io(Interest::WRITABLE, send).await?;
        rest = rest.get(given..).unwrap_or_default();
    }
    Ok(())
}

/// Whether to retry.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn end(to: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(to, Shutdown::Write) {
        // The peer has closed the connection already.
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
