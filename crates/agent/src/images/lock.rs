//! Who changes images: several programs may (an agent, and people with `waypost image`), and none takes away what another needs.
//!
//! Two files are locked. `names` is held while names are changed, for moments. `use` is shared by whoever brings an image or begins a
//! container, and held alone by whoever removes layers.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// A lock. Dropping it frees it, as does the end of the program.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

fn open(images: &Path, name: &str) -> io::Result<File> {
    std::fs::create_dir_all(images)?;
    File::options().create(true).truncate(false).write(true).open(images.join(format!(".{name}.lock")))
}

/// For those who change names. Waits for others.
pub(super) fn names(images: &Path) -> io::Result<Lock> {
    let file = open(images, "names")?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(Lock { _file: file })
}

/// For those who need layers to stay. Waits for whoever removes some.
pub(super) fn using(images: &Path) -> io::Result<Lock> {
    let file = open(images, "use")?;
    flock(&file, FlockOperation::LockShared)?;
    Ok(Lock { _file: file })
}

/// For those who remove layers; nothing while others need them.
pub(super) fn alone(images: &Path) -> io::Result<Option<Lock>> {
    let file = open(images, "use")?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
