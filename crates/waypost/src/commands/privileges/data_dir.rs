//! The data directory of two users: the API server's files belong to its user, all others to root.
//!
//! In: a directory, maybe of an earlier version in which root owned all files. Out: for `server` a directory of the API server's user; for `up`
//! one of root that this user can enter, with `store` and `pki` of its own. For `up` root must own the directory: the owner of a directory
//! can replace the agent's.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use kernel::privileges::{self, Account};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, fstat, fsync};

/// Directories of the API server.
const SERVERS: [&str; 2] = ["store", "pki"];
/// Directories of the agent and of nodes.
const AGENTS: [&str; 3] = ["agent", "images", "node"];

/// Gives the directory to the API server's user.
///
/// # Errors
/// When an owner cannot be changed.
pub(in crate::commands) fn give(data_dir: &Path, account: &Account) -> anyhow::Result<()> {
    let (path, folder) = open(data_dir)?;
    let found = fstat(&folder)?;
    if found.st_uid != account.uid {
        if let Some(name) = AGENTS.iter().find(|name| path.join(name).exists()) {
            bail!(
                "{} holds {name} of an agent, which runs as root; choose another data directory for the API server with --data-dir, end the Pods of this \
                 machine and remove it (waypost down), or run the API server as root with --user root",
                path.display()
            );
        }
        may_change(&path, found.st_uid, account)?;
        fchown(&folder, Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)))
            .with_context(|| format!("giving {} to {account}", path.display()))?;
    }
    take_over(&path, account)
}

/// Whether the user owns files in a data directory, so that it may have changed others.
pub(super) fn has_files_of(data_dir: &Path, account: &Account) -> bool {
    let is_of = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.uid() == account.uid);
    is_of(data_dir) || SERVERS.iter().any(|name| is_of(&data_dir.join(name)))
}

/// Shares the directory: root owns it, the API server's user can enter it and has its own directories.
///
/// # Errors
/// When an owner or a mode cannot be changed.
pub(in crate::commands) fn share(data_dir: &Path, account: &Account) -> anyhow::Result<()> {
    let (path, folder) = open(data_dir)?;
    let found = fstat(&folder)?;
    let has_entrance = found.st_mode & 0o001 != 0 || (found.st_gid == account.gid && found.st_mode & 0o010 != 0);
    if found.st_uid != 0 || !has_entrance {
        may_change(&path, found.st_uid, account)?;
        fchown(&folder, Some(Uid::ROOT), Some(Gid::from_raw(account.gid)))
            .and_then(|()| fchmod(&folder, Mode::from_raw_mode((found.st_mode | 0o010) & 0o7777)))
            .with_context(|| format!("letting {account} enter {}", path.display()))?;
    }
    is_of_root(&path)?;
    for name in SERVERS {
        make(&path.join(name))?;
    }
    // The server may not: it can only enter the directory.
    fsync(&folder).with_context(|| format!("writing {}", path.display()))?;
    take_over(&path, account)
}

/// Rejects a data directory in which another user could have placed files that the agent trusts.
///
/// # Errors
/// When another user owns a file.
pub(in crate::commands) fn is_of_root(data_dir: &Path) -> anyhow::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for path in [data_dir.to_owned()].into_iter().chain(AGENTS.map(|name| data_dir.join(name))) {
        match fs::symlink_metadata(&path) {
            Ok(found) => ensure!(
                found.uid() == own,
                "{} belongs to uid {}, which could have the agent run anything as root; give the agent a data directory of its own with \
                 --data-dir, or give this one back (chown {own} {}) after looking at what is in it",
                path.display(),
                found.uid(),
                path.display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    Ok(())
}

/// The directory, created if it is missing: its real path, and a descriptor.
fn open(data_dir: &Path) -> anyhow::Result<(PathBuf, OwnedFd)> {
    make(data_dir)?;
    let path = fs::canonicalize(data_dir).with_context(|| format!("finding {}", data_dir.display()))?;
    let folder = privileges::directory(&path)?;
    Ok((path, folder))
}

fn make(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(|| {
        format!("making the directory {}; choose another data directory with --data-dir", path.display())
    })
}

/// Only an empty directory or one of ours is changed: `--data-dir /srv` must not change the owner of `/srv`.
fn may_change(path: &Path, owner: u32, account: &Account) -> anyhow::Result<()> {
    let is_ours = SERVERS.iter().chain(&AGENTS).any(|name| path.join(name).exists());
    let is_empty = fs::read_dir(path).with_context(|| path.display().to_string())?.next().is_none();
    if is_ours || (is_empty && owner == 0) {
        return Ok(());
    }
    bail!(
        "the data directory {} belongs to uid {owner} and is not one of waypost; {account}, as which the API server runs, has no right to it: choose a \
         directory of its own with --data-dir, or run the API server as root with --user root",
        path.display()
    )
}

fn take_over(path: &Path, account: &Account) -> anyhow::Result<()> {
    for name in SERVERS {
        let path = path.join(name);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => privileges::take_over(&path, account).with_context(|| {
                format!(
                    "giving {} to {account}, as which the API server runs; give it to that user yourself (chown -R {}:{} {}), or run the API server \
                     as root with --user root",
                    path.display(),
                    account.uid,
                    account.gid,
                    path.display()
                )
            })?,
        }
    }
    Ok(())
}
