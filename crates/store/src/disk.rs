//! The write operations of the store on a disk, as traits, so that tests can inject faults.
//!
//! Reads are not abstracted: damage is tested on real files. [`Real`] is the file system, [`fake::Faulty`] the same with
//! injected faults.

pub mod fake;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Creates and removes files.
pub trait Disk: Send + Sync {
    /// Opens a file for appending, truncated to its first `keep` bytes. Creates it if needed.
    fn open(&self, path: &Path, keep: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, replacing the target, and makes that durable.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file open for writing at its end.
pub trait DiskFile: Send {
    /// Writes all the bytes; after an error, any part of them may be written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes writes durable. After an error, the state of writes since the last success is unknown, even after another
    /// success.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file to this length.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// The file system.
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

/// The temporary name of a file until it is complete.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Writes a file atomically and durably. Returns it open at its end.
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
