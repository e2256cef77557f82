//! A user namespace whose root is the user of this process.
//!
//! In: a process with one thread, of any user. Out: all capabilities over namespaces that it creates from then on. Files and processes outside keep
//! their rights: the kernel sees the same user as before.

use std::fs;
use std::io;

use rustix::thread::UnshareFlags;

use crate::namespace::unshare;

/// The map of the initial namespace: every user is itself.
const IDENTITY: [u32; 3] = [0, 0, u32::MAX];

/// Makes this process root of a user namespace of its own.
///
/// # Errors
/// When the kernel or its security policy forbids user namespaces to unprivileged users, or the process has several threads.
pub fn enter() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER)?;
    // Required before a map of groups is written: giving up a group could give access to files.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {} 1", uid.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("0 {} 1", gid.as_raw()))
}

/// Whether this process is in a user namespace other than the initial one.
#[must_use]
pub fn is_inside() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_identity(&map))
}

fn is_identity(map: &str) -> bool {
    let numbers: Vec<u32> = map.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers == IDENTITY
}

#[cfg(test)]
mod tests {
    use super::is_identity;

    #[test]
    fn the_initial_namespace_maps_every_user_to_itself() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0       1000          1\n"));
        assert!(!is_identity("0 1000 1\n1 100000 65536\n"));
    }
}
