//! Files of the kernel that tasks wait for: processes that end, terminals that say something.

use std::io;
use std::os::fd::OwnedFd;

use kernel::process::Handle;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An open file that tasks can wait for.
#[expect(deprecated, reason = "it is unsound for files that others close; an `OwnedFd` is nobody else's")]
pub(crate) fn watched(file: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(file, interest)
}

/// Waits until a process has ended.
pub(crate) async fn ended(process: Handle) -> io::Result<()> {
    let process = watched(process.0, Interest::READABLE)?;
    process.readable().await.map(drop)
}
