//! What an administrator does with a store: back it up while it runs, check it while it does not, bring it back.
//!
//! A backup is a snapshot file, so what is restored is read by the same code that every start uses.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::facts::Facts;

use crate::disk::{self, Disk, Real};
use crate::embedded::OpenError;
use crate::encryption::{DecryptError, Decryptor, Encryption, Encryptor, Values};
use crate::frame::FrameError;
use crate::history::Keep;
use crate::home::{self, FORMAT_ENCRYPTED, FORMAT_PLAIN, Home, snapshot_path};
use crate::recover::Recovery;
use crate::{Embedded, Revision, snapshot};

/// What [`check`] found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The newest revision that could be read.
    pub revision: Revision,
    /// Entries in each table.
    pub tables: BTreeMap<&'static str, usize>,
    /// How the values of each table are stored: all that a start would read, older versions in the log included.
    pub values: BTreeMap<&'static str, Values>,
    /// The segments of the log after the newest snapshot, with their good bytes.
    pub segments: Vec<(PathBuf, u64)>,
    /// The snapshots.
    pub snapshots: Vec<PathBuf>,
    /// What the next start mends by itself, such as a write torn by a crash.
    pub notes: Vec<String>,
    /// Damage, and values that cannot be decrypted. With any, the store does not open.
    pub problems: Vec<String>,
    /// How many values the encryption configuration cannot read.
    pub unreadable: u64,
}

/// Why a backup cannot be made or brought back.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A restore only goes into an empty directory.
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
    /// The file is not a whole backup.
    #[error("{} is not a whole backup: damaged at byte {offset}: {why}", file.display())]
    BadBackup {
        /// The file.
        file: PathBuf,
        /// Where it goes wrong.
        offset: u64,
        /// How.
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
    /// The store's directory could not be taken.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Writes all entries at one revision to a file, while the store goes on, encrypted as the store is. Answers the revision. An
/// existing file is replaced once the new one is whole.
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

/// Reads a store that is not running, as a start would, and changes nothing.
///
/// # Errors
///
/// When the directory is not there, in use, or holds no store. Damage and missing keys are no error but part of the report.
pub fn check(dir: &Path, encryption: &Encryption) -> Result<Report, ToolError> {
    if !home::is_store(dir).map_err(|source| ToolError::Io { path: dir.to_owned(), source })? {
        return Err(ToolError::NoStore { dir: dir.to_owned() });
    }
    let home = Home::lock(dir)?;
    let listing = home.list()?;
    let keep = Keep { max_events: 0, min_events: 0, ..Keep::default() };
    let decryptor = Decryptor::tolerant(Arc::new(encryption.clone()));
    let mut found = Recovery::new(|_, _| Facts::default(), &keep, decryptor);
    let result = home.check_format(&listing).and_then(|()| found.run(&listing));
    let state = found.memory.read();
    let mut notes = found.avoided.clone();
    notes.extend(found.torn.as_ref().map(|torn| {
        let file = torn.file.display();
        format!("{file}: the last write is torn at byte {}; the next start cuts off {} bytes", torn.offset, torn.bytes)
    }));
    notes.extend(found.obsolete.iter().map(|path| {
        format!("{}: superseded by a snapshot; the next start removes it, with the values in it", path.display())
    }));
    let mut problems: Vec<String> = result.err().iter().map(ToString::to_string).collect();
    problems.extend(found.decryptor.refused().iter().map(|(error, count)| format!("{error} ({count} values)")));
    Ok(Report {
        revision: state.revision(),
        tables: state.counts().map(|(table, entries)| (table.as_str(), entries)).collect(),
        values: found.decryptor.tally().iter().map(|(table, values)| (table.as_str(), values.clone())).collect(),
        segments: found.segments.iter().map(|segment| (segment.path.clone(), segment.bytes)).collect(),
        snapshots: listing.snapshots.iter().map(|(_, path)| path.clone()).collect(),
        notes,
        problems,
        unreadable: found.decryptor.refused().iter().map(|(_, count)| count).sum(),
    })
}

/// Makes a store out of a backup, in a directory that is empty or not there yet. Answers its revision.
///
/// # Errors
///
/// When the directory is not empty, the backup is not whole, or the encryption configuration cannot read it: what is restored could
/// not be served.
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
    let home = Home::lock(dir)?;
    let target = snapshot_path(dir, revision);
    copy(backup, &target).map_err(failed(&target))?;
    home.write_format(&Real, if encrypted { FORMAT_ENCRYPTED } else { FORMAT_PLAIN })?;
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
