//! Who serves this machine: one program at a time may own its rules.
//!
//! The lock is a socket with a name and no file. The kernel frees the name with the process that has it, however that ends, and
//! such names belong to a network namespace, as rules do.

use std::io::{ErrorKind, Read as _, Result};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// A lock that is held. Dropping it gives it back.
#[derive(Debug)]
pub struct Lock {
    _listener: UnixListener,
}

impl Lock {
    /// Takes the lock of this name, if nobody has it.
    ///
    /// # Errors
    /// When there are no sockets.
    pub fn take(name: &str) -> Result<Option<Self>> {
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Ok(listener) => Ok(Some(Self { _listener: listener })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes it as soon as nobody else has it.
    ///
    /// # Errors
    /// When there are no sockets.
    pub fn await_turn(name: &str) -> Result<Self> {
        loop {
            if let Some(lock) = Self::take(name)? {
                return Ok(lock);
            }
            // Whoever has the lock never answers; that the connection ends is the sign that it is free.
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
    fn one_has_it_and_the_next_waits() {
        let name = format!("waypost-test-{}", std::process::id());
        let first = Lock::take(&name).expect("sockets").expect("it is free");
        assert!(Lock::take(&name).expect("sockets").is_none());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| Lock::await_turn(&name).expect("sockets"));
            drop(first);
            let next = next.join().expect("it gets its turn");
            assert!(Lock::take(&name).expect("sockets").is_none());
            drop(next);
        });
        assert!(Lock::take(&name).expect("sockets").is_some());
    }
}
