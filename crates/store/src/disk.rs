//! The few things the store asks of a disk when it writes, so that tests can break each of them.
//!
//! Reading needs no seam: damage is tested on real files. [`Real`] is the operating system, [`fake::Faulty`] the same
//! with faults on request.

pub mod fake;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes and removes files.
pub trait Disk: Send + Sync {
    /// Opens a file to write after its first `keep` bytes; what stood after them is cut off. Creates it if need be.
    fn open(&self, path: &Path, keep: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file its final name, in place of what had it, and makes that durable.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file open for writing at its end.
pub trait DiskFile: Send {
    /// Writes all the bytes; after an error, any part of them may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable what was written. After an error, nothing is known about what was written since the last
    /// success, not even after another success.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file to this length.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// The disk of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    fn open(&self, path: &Path, keep: u64) -> io::Result<Box<dyn DiskFile>> {
        // Only the owner may read: Secrets are stored here.
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        file.set_len(keep)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        sync_parent(to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl DiskFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Makes the directory entry of a path durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// The name under which a file is written before it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Writes a file so that it is either there in full, durable, or not at all. Gives it back open at its end.
pub(crate) fn create(
    disk: &dyn Disk,
    path: &Path,
    fill: impl FnOnce(&mut dyn DiskFile) -> io::Result<()>,
) -> io::Result<Box<dyn DiskFile>> {
    let unfinished = unfinished(path);
    let written = disk.open(&unfinished, 0).and_then(|mut file| {
        fill(&mut *file)?;
        file.sync()?;
        Ok(file)
    });
    let file = written.inspect_err(|_| drop(disk.remove(&unfinished)))?;
    disk.rename(&unfinished, path).inspect_err(|_| drop(disk.remove(&unfinished)))?;
    Ok(file)
}
