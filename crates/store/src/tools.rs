//! Administration of a store: online backup, offline check, restore.
//!
//! A backup is a snapshot file, so a restored one is read by the same code as at every start.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::facts::Facts;

use crate::data_dir::{self, DataDir, FORMAT_ENCRYPTED, FORMAT_PLAIN, snapshot_path};
use crate::disk::{self, Disk, Real};
use crate::embedded::OpenError;
use crate::encryption::{DecryptError, Decryptor, Encryption, Encryptor, Values};
use crate::frame::FrameError;
use crate::history::Retention;
use crate::recover::Recovery;
use crate::{Embedded, Revision, snapshot};

/// The result of [`check`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The newest revision that could be read.
    pub revision: Revision,
    /// Entries in each table.
    pub tables: BTreeMap<&'static str, usize>,
    /// How the values of each table are stored, including older versions in the log.
    pub values: BTreeMap<&'static str, Values>,
    /// The segments of the log after the newest snapshot, with the length of their valid frames in bytes.
    pub segments: Vec<(PathBuf, u64)>,
    /// The snapshots.
    pub snapshots: Vec<PathBuf>,
    /// What the next start repairs, such as a write torn by a crash.
    pub notes: Vec<String>,
    /// Damage, and values that cannot be decrypted. With any, the store does not open.
    pub problems: Vec<String>,
    /// How many values the encryption configuration cannot read.
    pub unreadable: u64,
}

/// Why a backup, check or restore failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The target of a restore is not empty.
    #[error("{} is not empty; restore into a new directory, then start with it", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// There is nothing to check.
    #[error("there is no store in {}", dir.display())]
    NoStore {
        /// The directory.
        dir: PathBuf,
    },
    /// The file is not a complete backup.
    #[error("{} is not a complete backup: damaged at byte {offset}: {why}", file.display())]
    BadBackup {
        /// The file.
        file: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// A value in the backup cannot be read with the encryption configuration that was given.
    #[error("{}: {why}", file.display())]
    Encryption {
        /// The file.
        file: PathBuf,
        /// The first such value, and why.
        why: DecryptError,
    },
    /// The directory could not be locked or read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An I/O error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// Writes all entries at one revision to a file while the store is in use, encrypted as the store is. Returns the revision. An
/// existing file is replaced atomically.
///
/// # Errors
///
/// When the file cannot be written.
pub fn backup(store: &Embedded, path: &Path) -> Result<Revision, ToolError> {
    let (revision, entries) = store.view();
    snapshot::write(store.disk(), path, revision, &entries, &mut Encryptor::new(store.encryption()))
        .map_err(|source| ToolError::Io { path: path.to_owned(), source })?;
    Ok(revision)
}

/// Reads a store that is not in use, as a start does, and changes nothing.
///
/// # Errors
///
/// When the directory does not exist, is in use, or holds no store. Damage and missing keys are part of the report.
pub fn check(dir: &Path, encryption: &Encryption) -> Result<Report, ToolError> {
    if !data_dir::is_store(dir).map_err(|source| ToolError::Io { path: dir.to_owned(), source })? {
        return Err(ToolError::NoStore { dir: dir.to_owned() });
    }
    let data_dir = DataDir::lock(dir)?;
    let listing = data_dir.list()?;
    let retention = Retention { max_events: 0, min_events: 0, ..Retention::default() };
    let decryptor = Decryptor::tolerant(Arc::new(encryption.clone()));
    let mut recovery = Recovery::new(|_, _| Facts::default(), &retention, decryptor);
    let result = data_dir.check_format(&listing).and_then(|()| recovery.run(&listing));
    let state = recovery.memory.read();
    let mut notes = recovery.damaged_snapshots.clone();
    notes.extend(recovery.torn.as_ref().map(|torn| {
        let file = torn.file.display();
        format!("{file}: the last write is torn at byte {}; the next start truncates {} bytes", torn.offset, torn.bytes)
    }));
    notes.extend(recovery.obsolete.iter().map(|path| {
        format!("{}: superseded by a snapshot; the next start removes it, with the values in it", path.display())
    }));
    let mut problems: Vec<String> = result.err().iter().map(ToString::to_string).collect();
    problems.extend(recovery.decryptor.refused().iter().map(|(error, count)| format!("{error} ({count} values)")));
    Ok(Report {
        revision: state.revision(),
        tables: state.counts().map(|(table, entries)| (table.as_str(), entries)).collect(),
        values: recovery.decryptor.tally().iter().map(|(table, values)| (table.as_str(), values.clone())).collect(),
        segments: recovery.segments.iter().map(|segment| (segment.path.clone(), segment.bytes)).collect(),
        snapshots: listing.snapshots.iter().map(|(_, path)| path.clone()).collect(),
        notes,
        problems,
        unreadable: recovery.decryptor.refused().iter().map(|(_, count)| count).sum(),
    })
}

/// Creates a store from a backup, in a directory that is empty or does not exist. Returns its revision.
///
/// # Errors
///
/// When the directory is not empty, the backup is not complete, or the encryption configuration cannot read it.
pub fn restore(backup: &Path, dir: &Path, encryption: &Encryption) -> Result<Revision, ToolError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ToolError::Io { path, source }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))?;
    if fs::read_dir(dir).map_err(failed(dir))?.next().is_some() {
        return Err(ToolError::NotEmpty { dir: dir.to_owned() });
    }
    let mut decryptor = Decryptor::new(Arc::new(encryption.clone()));
    let read = snapshot::read(backup, |_, _| Facts::default(), &mut decryptor);
    let (revision, _) = read.map_err(|error| match error {
        FrameError::Io(source) => failed(backup)(source),
        FrameError::Bad { offset, why } => ToolError::BadBackup { file: backup.to_owned(), offset, why },
        FrameError::Encrypted(why) => ToolError::Encryption { file: backup.to_owned(), why },
    })?;
    let encrypted = decryptor.tally().values().any(|values| !values.encrypted.is_empty());
    let data_dir = DataDir::lock(dir)?;
    let target = snapshot_path(dir, revision);
    copy(backup, &target).map_err(failed(&target))?;
    data_dir.write_format(&Real, if encrypted { FORMAT_ENCRYPTED } else { FORMAT_PLAIN })?;
    Ok(revision)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let unfinished = disk::unfinished(to);
    drop(Real.open(&unfinished, 0)?);
    let mut target = File::options().write(true).open(&unfinished)?;
    io::copy(&mut File::open(from)?, &mut target)?;
    target.sync_all()?;
    Real.rename(&unfinished, to)
}
