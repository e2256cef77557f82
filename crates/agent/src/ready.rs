//! Async readiness of file descriptors: pidfds and terminals.

use std::io;
use std::os::fd::OwnedFd;

use kernel::process::Handle;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a file descriptor with the runtime.
#[expect(deprecated, reason = "it is unsound for files that others close; an `OwnedFd` is nobody else's")]
pub(crate) fn register(file: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(file, interest)
}

/// Waits until a process has exited.
pub(crate) async fn exited(process: Handle) -> io::Result<()> {
    let process = register(process.0, Interest::READABLE)?;
    process.readable().await.map(drop)
}
