//! Whether the user of the API server can access its data directory and the configured files, by their modes.
//!
//! Checked by root before anything is changed. Missing files are reported by their readers. Files of the user count as accessible, whatever
//! their mode: otherwise a compromised API server could change a mode and would run as root after the next start.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use kernel::privileges::Account;

use crate::config::ServerArguments;

const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const ENTER: u32 = 0o1;

/// Checks all of them.
///
/// # Errors
/// The first path that the user cannot access, and the fix.
pub(super) fn check(settings: &ServerArguments, account: &Account) -> anyhow::Result<()> {
    is_open(&settings.place.data_dir, account)?;
    for (flag, path) in settings.files() {
        is_readable(flag, path, account)?;
    }
    match settings.audit.file() {
        Some(path) => is_writable("--audit-log-path", path, account),
        None => Ok(()),
    }
}

fn is_open(data_dir: &Path, account: &Account) -> anyhow::Result<()> {
    let Some(closed) = closed_directory(data_dir, account)? else { return Ok(()) };
    let (data_dir, closed) = (data_dir.display(), closed.display());
    bail!(
        "{account}, as which it would run, cannot enter {closed} on the way to the data directory {data_dir}; choose another with --data-dir, let \
         others enter it (chmod o+x {closed}), or set --user root"
    )
}

fn is_readable(flag: &str, path: &Path, account: &Account) -> anyhow::Result<()> {
    let remedy = match closed_directory(path, account)? {
        Some(closed) => format!("let it enter {} (chmod o+x {})", closed.display(), closed.display()),
        None if allows(path, account, READ) => return Ok(()),
        None => format!("give it the file (chown {} {})", account.uid, path.display()),
    };
    bail!("{flag} {}: {account}, as which it would run, cannot read it; {remedy}, or set --user root", path.display())
}

fn is_writable(flag: &str, path: &Path, account: &Account) -> anyhow::Result<()> {
    let path = std::path::absolute(path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let is_closed = closed_directory(&path, account)?.is_some();
    if !is_closed && allows(folder, account, WRITE | ENTER) && allows(&path, account, WRITE) {
        return Ok(());
    }
    bail!(
        "{flag} {}: {account}, as which it would run, cannot write it; give the directory and the file to it (chown -R {} {}), or set --user root",
        path.display(),
        account.uid,
        folder.display()
    )
}

/// The first directory of a path that the user cannot enter.
fn closed_directory(path: &Path, account: &Account) -> anyhow::Result<Option<PathBuf>> {
    let path = std::path::absolute(path)?;
    let mut way: Vec<&Path> = path.ancestors().skip(1).collect();
    way.reverse();
    Ok(way.into_iter().find(|directory| !allows(directory, account, ENTER)).map(Path::to_owned))
}

/// Whether the mode of a file allows an access; true for missing files.
fn allows(path: &Path, account: &Account, what: u32) -> bool {
    let Ok(found) = fs::metadata(path) else { return true };
    allowed(found.mode(), (found.uid(), found.gid()), account) & what == what
}

/// The permission bits of a mode for a user.
fn allowed(mode: u32, (uid, gid): (u32, u32), account: &Account) -> u32 {
    match () {
        () if uid == account.uid => 0o7,
        () if gid == account.gid => (mode >> 3) & 0o7,
        () => mode & 0o7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_that_of_owner_group_or_others() {
        let account = Account::numbered(7, 8);
        assert_eq!(allowed(0o100_000, (7, 0), &account), 0o7, "an owner can change the mode");
        assert_eq!(allowed(0o100_751, (0, 8), &account), 0o5);
        assert_eq!(allowed(0o100_751, (0, 0), &account), 0o1);
        assert_eq!(allowed(0o100_707, (0, 8), &account), 0, "who is of the group is not one of the others");
    }

    #[test]
    fn the_first_closed_directory_is_named() {
        let account = Account::numbered(7, 8);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let home = tempfile::Builder::new().permissions(mode).tempdir().expect("a directory");
        let path = home.path().join("a/b");
        assert_eq!(closed_directory(&path, &account).expect("a path"), Some(home.path().to_owned()));
        assert!(is_open(&path, &account).is_err() && is_readable("--x", &path, &account).is_err());
        assert!(is_open(Path::new("/usr/none/at/all"), &account).is_ok());
    }
}
