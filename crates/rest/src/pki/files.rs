//! Private files that are replaced atomically.
//!
//! In: a path and bytes. Out: a file of mode 0600 that holds either the old bytes or all of the new ones, also after a crash: the bytes are
//! written to a temporary file, synced, and renamed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::PkiError;

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PkiError {
    move |source| PkiError::Io { doing, path: path.into(), source }
}

/// Creates a directory that only its owner can enter.
pub(crate) fn private_dir(dir: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("making the folder", dir))?;
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed("protecting the folder", dir))
}

/// Locks the files of a directory until the returned value is dropped.
pub(crate) fn lock(dir: &Path) -> Result<File, PkiError> {
    let locked = File::open(dir).and_then(|dir| dir.lock().map(|()| dir));
    locked.map_err(failed("locking the folder", dir))
}

/// The bytes of a file, or `None` when there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, PkiError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("reading", path)(error)),
    }
}

/// Removes a file, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), PkiError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("removing", path)(error)),
        _ => Ok(()),
    }
}

/// Makes removals durable.
pub(super) fn sync(dir: &Path) -> Result<(), PkiError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("writing", dir))
}

/// Removes permissions of other users from a key file.
pub(super) fn tighten(path: &Path) -> Result<(), PkiError> {
    let mode = fs::metadata(path).map_err(failed("reading", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(file = %path.display(), "removed permissions of other users from private key");
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("protecting", path))?;
    }
    Ok(())
}

/// Replaces a file atomically; only its owner can read it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    replace(path, bytes).map_err(failed("writing", path))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not the name of a file"));
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    let temporary = folder.join(temporary);
    // A leftover of a crash has unknown permissions: files made here always have 0600.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    // An empty parent is the current directory.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}
