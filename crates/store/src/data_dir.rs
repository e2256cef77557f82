//! The data directory of a store: its files, its lock, its format version.
//!
//! ```text
//! FORMAT   LOCK   log-<first revision>.wal …   snapshot-<revision>.snap
//! ```
//! In: a path. Out: a locked [`DataDir`], and the lists of files that recovery reads.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::disk::{self, Disk};
use crate::embedded::OpenError;
use crate::{Revision, disk::sync_parent};

const FORMAT: &str = "FORMAT";
const FORMAT_NAME: &str = "waypost-store";
/// The newest supported format.
const FORMAT_KNOWN: u32 = FORMAT_ENCRYPTED;
/// No value is encrypted.
pub(crate) const FORMAT_PLAIN: u32 = 1;
/// Values may be encrypted.
pub(crate) const FORMAT_ENCRYPTED: u32 = 2;

/// A directory that is locked for this process until the value is dropped.
pub(crate) struct DataDir {
    dir: PathBuf,
    _lock: File,
}

/// The files of a store, each list in the order of revisions.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) segments: Vec<(Revision, PathBuf)>,
    pub(crate) snapshots: Vec<(Revision, PathBuf)>,
    /// Temporary files left by a crash.
    pub(crate) unfinished: Vec<PathBuf>,
}

impl Listing {
    /// Whether the directory holds no store.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.snapshots.is_empty()
    }
}

impl DataDir {
    /// Locks the directory; creates it if it does not exist.
    pub(crate) fn lock(dir: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: dir.to_owned(), source };
        if !dir.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
            sync_parent(dir).map_err(failed)?;
        }
        let lock = File::options().create(true).append(true).open(dir.join("LOCK")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir: dir.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked { dir: dir.to_owned() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn list(&self) -> Result<Listing, OpenError> {
        list(&self.dir).map_err(|source| OpenError::Io { path: self.dir.clone(), source })
    }

    /// Refuses an unsupported format.
    pub(crate) fn check_format(&self, listing: &Listing) -> Result<(), OpenError> {
        let path = self.dir.join(FORMAT);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if listing.is_empty() {
                    return Ok(());
                }
                let why = "file is missing although the directory holds a store".into();
                return Err(OpenError::Damaged { file: path, offset: 0, why });
            }
            Err(source) => return Err(OpenError::Io { path, source }),
        };
        match format_in(&text) {
            Some(FORMAT_PLAIN..=FORMAT_KNOWN) => Ok(()),
            Some(found) => Err(OpenError::Format { dir: self.dir.clone(), found, known: FORMAT_KNOWN }),
            None => Err(OpenError::Damaged { file: path, offset: 0, why: "no format version in it".into() }),
        }
    }

    /// Records the format, unless the directory already has it or a newer one.
    pub(crate) fn write_format(&self, disk: &dyn Disk, format: u32) -> Result<(), OpenError> {
        write_format(&self.dir, disk, format).map_err(|source| OpenError::Io { path: self.dir.join(FORMAT), source })
    }
}

/// See [`DataDir::write_format`].
pub(crate) fn write_format(dir: &Path, disk: &dyn Disk, format: u32) -> io::Result<()> {
    let path = dir.join(FORMAT);
    if fs::read_to_string(&path).is_ok_and(|text| format_in(&text).is_some_and(|found| found >= format)) {
        return Ok(());
    }
    let text = format!("{FORMAT_NAME} {format}\n");
    disk::create(disk, &path, |file| file.append(text.as_bytes())).map(drop)
}

/// The number in a format file.
fn format_in(text: &str) -> Option<u32> {
    text.trim_end().strip_prefix(FORMAT_NAME).and_then(|rest| rest.trim_start().parse().ok())
}

/// The path of the log segment that begins with a revision.
pub(crate) fn segment_path(dir: &Path, first: Revision) -> PathBuf {
    dir.join(format!("log-{first:020}.wal"))
}

/// The path of the snapshot of a revision.
pub(crate) fn snapshot_path(dir: &Path, revision: Revision) -> PathBuf {
    dir.join(format!("snapshot-{revision:020}.snap"))
}

/// Whether the directory holds a store.
pub(crate) fn is_store(dir: &Path) -> io::Result<bool> {
    let listing = list(dir)?;
    Ok(!listing.is_empty() || dir.join(FORMAT).exists())
}

fn list(dir: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for item in fs::read_dir(dir)? {
        let path = item?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let number = |prefix: &str, suffix: &str| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok();
        if let Some(first) = number("log-", ".wal") {
            listing.segments.push((first, path));
        } else if let Some(revision) = number("snapshot-", ".snap") {
            listing.snapshots.push((revision, path));
        } else if name.ends_with(".tmp") {
            listing.unfinished.push(path);
        }
    }
    listing.segments.sort();
    listing.snapshots.sort();
    Ok(listing)
}
