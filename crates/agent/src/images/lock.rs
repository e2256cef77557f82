//! Locks of the image store between processes (the agent and `waypost image`).
//!
//! `names` is held exclusively while names change. `use` is shared by pulls and container starts, and exclusive while layers are removed.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// A lock (flock); released on drop or exit.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

fn open(images: &Path, name: &str) -> io::Result<File> {
    std::fs::create_dir_all(images)?;
    File::options().create(true).truncate(false).write(true).open(images.join(format!(".{name}.lock")))
}

/// Locks names exclusively; blocks.
pub(super) fn names(images: &Path) -> io::Result<Lock> {
    let file = open(images, "names")?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(Lock { _file: file })
}

/// Locks layers shared, so that they are not removed; blocks.
pub(super) fn using(images: &Path) -> io::Result<Lock> {
    let file = open(images, "use")?;
    flock(&file, FlockOperation::LockShared)?;
    Ok(Lock { _file: file })
}

/// Locks layers exclusively for removal; `None` while they are in use.
pub(super) fn exclusive(images: &Path) -> io::Result<Option<Lock>> {
    let file = open(images, "use")?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
