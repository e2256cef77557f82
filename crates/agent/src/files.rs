//! Atomic writes (temporary file and rename), and bounded reads of untrusted files that neither block nor follow links.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a file atomically: readers see the old or the new content.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let written = File::create(&aside).and_then(|mut file| file.write_all(bytes));
    written.and_then(|()| fs::rename(&aside, path)).inspect_err(|_| {
        // Do not leave a partial file, in particular on a full disk.
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

/// Reads a JSON value; `None` when the file is missing or invalid.
#[must_use]
pub fn get<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Opening does not block on a FIFO, does not acquire a controlling terminal, and the descriptor is not inherited.
const CAREFULLY: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Reads the beginning of a file that a container may have written, at most `limit` bytes of it.
///
/// # Errors
/// When it cannot be opened, or is not a regular file: a link, a FIFO, a device.
pub fn read_untrusted(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    regular(openat(CWD, path, CAREFULLY | OFlags::NOFOLLOW, Mode::empty())?.into(), limit)
}

/// Opens a regular file for reading.
///
/// # Errors
/// When it cannot be opened, or is not a regular file: a link, a FIFO, a device.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file: File = openat(CWD, path, CAREFULLY | OFlags::NOFOLLOW, Mode::empty())?.into();
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular()),
    }
}

/// Reads a file of an image; links are resolved inside the image root. A file longer than `limit` is an error, because a truncated passwd file
/// could change its meaning.
///
/// # Errors
/// When it cannot be opened, is not a regular file, or is too long.
pub fn read_in_root(root: &Path, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    read_whole(root, path, limit, ResolveFlags::IN_ROOT)
}

/// Reads a file below a directory; links must stay below it.
///
/// # Errors
/// When it cannot be opened, is not a regular file, or is longer than `limit`; [`io::ErrorKind::CrossesDevices`] when a link leads out.
pub fn read_beneath(root: &Path, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    read_whole(root, path, limit, ResolveFlags::BENEATH)
}

fn read_whole(root: &Path, path: &Path, limit: usize, how: ResolveFlags) -> io::Result<Vec<u8>> {
    let top = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let how = how | ResolveFlags::NO_MAGICLINKS;
    let found = regular(openat2(&top, path, CAREFULLY, Mode::empty(), how)?.into(), limit + 1)?;
    match found.len() > limit {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"))),
        false => Ok(found),
    }
}

fn regular(file: File, limit: usize) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(not_regular());
    }
    let mut out = Vec::new();
    file.take(limit as u64).read_to_end(&mut out)?;
    Ok(out)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Reads the last `limit` bytes of a trusted file.
///
/// # Errors
/// When it cannot be read.
pub fn read_tail(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(limit as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut out = Vec::new();
    file.take(limit as u64).read_to_end(&mut out)?;
    Ok(out)
}

/// Removes a directory recursively; a missing one is no error.
///
/// # Errors
/// When an entry cannot be removed.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn kind(result: io::Result<Vec<u8>>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    /// Files that a container could create where the agent reads one.
    #[test]
    fn reading_untrusted_files_does_not_block_leak_or_exhaust_memory() {
        let home = tempfile::tempdir().expect("a folder");
        let at = |name: &str| home.path().join(name);
        fs::write(at("plain"), "0123456789").expect("written");
        assert_eq!(read_untrusted(&at("plain"), 4).expect("read"), b"0123");
        rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).expect("made");
        assert_eq!(kind(read_untrusted(&at("fifo"), 4)), Some(io::ErrorKind::InvalidInput));
        symlink("/etc/passwd", at("link")).expect("linked");
        assert!(read_untrusted(&at("link"), 4).is_err(), "a file of the machine was read");
        assert_eq!(kind(read_untrusted(Path::new("/dev/zero"), 4)), Some(io::ErrorKind::InvalidInput));
        assert_eq!(kind(read_untrusted(home.path(), 4)), Some(io::ErrorKind::InvalidInput));
        // A sparse file of 10 GB.
        File::create(at("sparse")).and_then(|file| file.set_len(10_000_000_000)).expect("made");
        assert_eq!(read_untrusted(&at("sparse"), 4096).expect("read").len(), 4096);
        assert_eq!(kind(read_in_root(home.path(), Path::new("sparse"), 4096)), Some(io::ErrorKind::FileTooLarge));
        assert_eq!(read_tail(&at("plain"), 3).expect("read"), b"789");
    }

    #[test]
    fn links_of_an_image_resolve_inside_the_image() {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().join("root");
        fs::create_dir_all(root.join("etc")).expect("made");
        fs::write(home.path().join("outside"), "outside").expect("written");
        fs::write(root.join("inside"), "inside").expect("written");
        symlink("/inside", root.join("etc/passwd")).expect("linked");
        symlink("../../outside", root.join("etc/group")).expect("linked");
        let read = |name: &str| read_in_root(&root, Path::new(name), 100);
        assert_eq!(read("etc/passwd").expect("read"), b"inside");
        assert_eq!(kind(read("etc/group")), Some(io::ErrorKind::NotFound));
    }
}
