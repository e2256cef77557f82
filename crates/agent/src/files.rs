//! Files that are whole or not there: written beside their place and moved into it.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a file as a whole. Readers see the old one or the new one.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let written = fs::File::create(&aside).and_then(|mut file| file.write_all(bytes));
    written.and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        // Half a file is of no use, least of all on a full disk.
        let _ = fs::remove_file(&aside);
    })
}

/// Writes a value as JSON.
///
/// # Errors
/// When it cannot be written.
pub fn put<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    write(path, &serde_json::to_vec(value).map_err(io::Error::other)?)
}

/// Reads a value; nothing when the file is not there or not what it should be.
#[must_use]
pub fn get<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Removes a folder with all in it; one that is not there is as good.
///
/// # Errors
/// When something in it cannot be removed.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
