//! Changes the owner of directories safely.
//!
//! In: a directory and its new owner. Out: the directory and everything below belongs to them. The previous owner may
//! be hostile, so nothing is followed: entries are opened by descriptor (`O_NOFOLLOW`), stay on one file system and are
//! changed only if they belong to root, to the owner of the directory or to the new one. A file of root in a directory
//! of another user may be a hard link to a file elsewhere: it is refused if it has another link, or if the kernel
//! allows users to create such links.

use std::ffi::CStr;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chownat, fchown, fstat, openat, statat};
use rustix::io::Errno;

use super::Account;

/// Open flags of directories.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why an entry is refused.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// A system call failed.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The entry.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Neither a file nor a directory.
    #[error("{path} is a {what}; neither links nor devices belong there", path = path.display())]
    Special {
        /// The entry.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It belongs to another user.
    #[error("{path} belongs to uid {uid}", path = path.display())]
    Foreign {
        /// The entry.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// It may be a hard link to a file elsewhere.
    #[error("{path} belongs to root in a directory of another user and may be a hard link", path = path.display())]
    Linked {
        /// The entry.
        path: PathBuf,
    },
    /// It is on another file system.
    #[error("{path} is a mount point", path = path.display())]
    Mount {
        /// The entry.
        path: PathBuf,
    },
}

/// Opens a directory that is not a symbolic link.
///
/// # Errors
/// When it does not exist, or is something else.
pub fn directory(path: &Path) -> Result<OwnedFd, OwnerError> {
    openat(CWD, path, FOLDER, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => OwnerError::Special { path: path.to_owned(), what: "link or a file" },
        errno => OwnerError::Io { path: path.to_owned(), source: errno.into() },
    })
}

/// Changes the owner of a directory and everything below. The directory itself comes last, so that an interrupted run
/// is resumed.
///
/// # Errors
/// The first entry that was refused.
pub fn take_over(path: &Path, account: &Account) -> Result<(), OwnerError> {
    let top = directory(path)?;
    let found = fstat(&top).map_err(failed(path))?;
    let links_are_protected =
        std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|on| on.trim() != "0");
    let walk = Walk { account, previous: found.st_uid, device: found.st_dev, links_are_protected };
    walk.below(&top, path)?;
    give(&top, &found, account).map_err(failed(path))
}

struct Walk<'a> {
    account: &'a Account,
    /// Previous owner of the directory.
    previous: u32,
    device: u64,
    links_are_protected: bool,
}

impl Walk<'_> {
    fn below(&self, folder: &OwnedFd, path: &Path) -> Result<(), OwnerError> {
        for entry in Dir::read_from(folder).map_err(failed(path))? {
            let entry = entry.map_err(failed(path))?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let path = path.join(std::ffi::OsStr::new(&*name.to_string_lossy()));
                self.entry(folder, name, &path)?;
            }
        }
        Ok(())
    }

    fn entry(&self, folder: &OwnedFd, name: &CStr, path: &Path) -> Result<(), OwnerError> {
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed(path))?;
        self.check(&found, path)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            let inner = openat(folder, name, FOLDER, Mode::empty()).map_err(failed(path))?;
            // Check the opened file, whatever has its name by now.
            let found = fstat(&inner).map_err(failed(path))?;
            self.check(&found, path)?;
            self.below(&inner, path)?;
            return give(&inner, &found, self.account).map_err(failed(path));
        }
        let file = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(failed(path))?;
        let found = fstat(&file).map_err(failed(path))?;
        self.check(&found, path)?;
        if is_of(&found, self.account) {
            return Ok(());
        }
        chownat(&file, c"", Some(self.account.uid()), Some(self.account.gid()), AtFlags::EMPTY_PATH)
            .map_err(failed(path))
    }

    fn check(&self, found: &Stat, path: &Path) -> Result<(), OwnerError> {
        let path = || path.to_owned();
        let kind = FileType::from_raw_mode(found.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            let what = if kind == FileType::Symlink { "symbolic link" } else { "special file" };
            return Err(OwnerError::Special { path: path(), what });
        }
        if found.st_dev != self.device {
            return Err(OwnerError::Mount { path: path() });
        }
        if ![0, self.previous, self.account.uid].contains(&found.st_uid) {
            return Err(OwnerError::Foreign { path: path(), uid: found.st_uid });
        }
        let is_planted = kind == FileType::RegularFile && found.st_uid == 0 && self.previous != 0;
        if is_planted && (found.st_nlink > 1 || !self.links_are_protected) {
            return Err(OwnerError::Linked { path: path() });
        }
        Ok(())
    }
}

fn is_of(found: &Stat, account: &Account) -> bool {
    (found.st_uid, found.st_gid) == (account.uid, account.gid)
}

fn give(file: impl AsFd, found: &Stat, account: &Account) -> rustix::io::Result<()> {
    if is_of(found, account) { Ok(()) } else { fchown(file, Some(account.uid()), Some(account.gid())) }
}

fn failed(path: &Path) -> impl Fn(Errno) -> OwnerError {
    let path = path.to_owned();
    move |errno| OwnerError::Io { path: path.clone(), source: errno.into() }
}
