//! Lock that only one proxy per machine holds.
//!
//! The lock is an abstract Unix socket. The kernel releases the name when the process ends, however it ends, and such
//! names belong to a network namespace, as rules do.

use std::io::{ErrorKind, Read as _, Result};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// A held lock, released when dropped.
#[derive(Debug)]
pub struct Lock {
    _listener: UnixListener,
}

impl Lock {
    /// Takes the lock, if it is free.
    ///
    /// # Errors
    /// When no socket can be opened.
    pub fn take(name: &str) -> Result<Option<Self>> {
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(listener) => Ok(Some(Self { _listener: listener })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// When no socket can be opened.
    pub fn acquire(name: &str) -> Result<Self> {
        loop {
            if let Some(lock) = Self::take(name)? {
                return Ok(lock);
            }
            // The holder never replies; the end of the connection means that the lock is free.
            if let Ok(mut holder) = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?) {
                let _ = holder.read(&mut [0]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_exclusive_and_waiting_ends_on_release() {
        let name = format!("waypost-test-{}", std::process::id());
        let first = Lock::take(&name).expect("sockets").expect("it is free");
        assert!(Lock::take(&name).expect("sockets").is_none());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| Lock::acquire(&name).expect("sockets"));
            drop(first);
            let next = next.join().expect("it gets its turn");
            assert!(Lock::take(&name).expect("sockets").is_none());
            drop(next);
        });
        assert!(Lock::take(&name).expect("sockets").is_some());
    }
}
